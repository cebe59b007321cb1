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
    status.draining = True
    parts.connection_table.closed_to_new = True
    for place in listening:
        place.acceptor.close()
    with anyio.move_on_after(timeout_ms / 1000):
        parts.long_polls.wake_all()
        await parts.job_runner.stop()
        for connection in parts.connection_table:
            connection.goodbye(REASON)
        for each in services:
            await each.stop(REASON)
        await parts.connection_table.wait_until_empty()
    for each in services:
        each.cut()
    for connection in parts.connection_table:
        connection.drop("it did not end within the drain timeout")
    await anyio.sleep(0)
    while parts.pacer.busy:
        # What they held is still going back.
        await anyio.sleep(0)
    parts.timers.stop()
    parts.housekeeping.stop()
    await parts.committer.finish()
