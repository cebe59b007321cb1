"""Graceful shutdown: no new connections, goodbye to clients, release of their messages, final flush."""

import logging
from collections.abc import Sequence

import anyio

from vibemq.server.assembly import Assembly
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.net.listener import Listening
from vibemq.server.net.plugin_services import PluginServices

log = logging.getLogger("vibemq.stopping")

REASON = "server_shutdown"


async def drain(
    parts: Assembly,
    status: BrokerStatus,
    listening: Sequence[Listening],
    services: Sequence[PluginServices],
    timeout_ms: int,
) -> None:
    """Return when every record is on disk; connections that do not end within the timeout are cut."""
    shell = parts.shell
    status.draining = True
    shell.roster.closed_to_new = True
    for place in listening:
        place.server.close()
    with anyio.move_on_after(timeout_ms / 1000):
        parts.waiters.wake_all()
        for connection in shell.roster:
            connection.goodbye(REASON)
        for each in services:
            await each.stop(REASON)
        await shell.roster.wait_until_empty()
    for each in services:
        each.cut()
    for connection in shell.roster:
        connection.drop("it did not end within the drain timeout")
    await anyio.sleep(0)
    while shell.pacer.busy:
        # What they held is still going back.
        await anyio.sleep(0)
    shell.ticker.stop()
    parts.housekeeping.stop()
    await shell.committer.finish()
