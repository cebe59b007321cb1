"""Sockets that accept: one server per configured listener."""

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from vibemq import plugins
from vibemq.config import Listener
from vibemq.errors import ConfigInvalid
from vibemq.protocols.session import ProtocolPlugin
from vibemq.server.checks import plugin_settings
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.acceptor import Acceptor, Handshakes, bound_sockets
from vibemq.server.net.connections import ListenerEndpoint, ListenerTroubles
from vibemq.server.net.driving.rest import ReadingRest
from vibemq.server.net.tls import ServerTls
from vibemq.server.net.transport import Connection, SocketServices, acknowledge_at_once, waiting_in_system

log = logging.getLogger("vibemq.listener")

ETHERNET_SEGMENT_BYTES = 1448
HTTP_HANDSHAKES_MAX = 128


@dataclass(frozen=True, slots=True)
class Listening:
    protocol: str
    host: str
    port: int
    acceptor: Acceptor
    endpoint: ListenerEndpoint
    tls: ServerTls | None = None


def endpoint_of(listener: Listener, options: Mapping[str, Any] | None = None) -> ListenerEndpoint:
    """Find the protocol and check its options (None: those that stand with the listener). Raises ConfigInvalid."""
    try:
        plugin: ProtocolPlugin = plugins.find("protocols", listener.protocol)
    except LookupError as error:
        raise ConfigInvalid(f"listener protocol {listener.protocol!r} cannot be used: {error}") from error
    options = listener.settings if options is None else options
    settings = plugin_settings(plugin.settings, options, f"the {listener.protocol} listener's settings")
    return ListenerEndpoint(listener.protocol, plugin, settings)


def _remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another broker may be running: stop it, or choose another host or port"
    if error.errno == errno.EACCES:
        return "this user may not listen there; choose a port from 1024 up"
    return "choose an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all of them"


async def listen(listener: Listener, number: int, endpoint: ListenerEndpoint, services: SocketServices) -> Listening:
    """Accept connections from now on. `number`: the place of the listener in the settings.

    An accept that fails (no file descriptors left) is logged and tried again a second later. Raises ConfigInvalid when
    the address cannot be had.
    """
    port = endpoint.plugin.port if listener.port is None else listener.port
    tls = ServerTls(listener.tls, f"listeners[{number}].tls") if listener.tls is not None else None
    table = services.connection_table
    try:
        sockets = await bound_sockets(listener.host, port)
    except OSError as error:
        where = f"{listener.host}:{port}"
        raise ConfigInvalid(
            f"cannot listen on {where} for {listener.protocol}: {error.strerror or error}; {_remedy(error)}"
        ) from error
    await_acks = endpoint.plugin.peers_await_tcp_acks
    if await_acks:
        _offer_small_segments(sockets)
    host, chosen = sockets[0].getsockname()[:2]
    acceptor = Acceptor(
        sockets,
        lambda connected: Connection(
            services,
            endpoint,
            acknowledge_at_once(connected) if await_acks else None,
            gather=partial(ReadingRest, connected) if tls is None else None,
            in_system=partial(waiting_in_system, connected),
        ),
        lambda host: table.refuses(host, endpoint, speaks=tls is None),
        tls=tls.context if tls is not None else None,
        handshake_timeout_s=table.limits.handshake_timeout_ms / 1000,
        handshakes=table.handshakes,
        failed=partial(_note_failed_handshake, endpoint.troubles, services.metrics),
    )
    log.info("%s listens on %s:%d", listener.protocol, host, chosen, extra={"event": "listener.opened"})
    return Listening(listener.protocol, host, chosen, acceptor, endpoint, tls)


@dataclass(frozen=True, slots=True)
class HttpDoor:
    """How connections of the HTTP port are taken."""

    tls: ServerTls | None
    handshake_timeout_ms: int
    troubles: ListenerTroubles
    metrics: Metrics

    def accept(self, bound: socket.socket, make: Callable[[], asyncio.BaseProtocol]) -> Acceptor:
        return Acceptor(
            [bound],
            lambda _: make(),
            # Whoever speaks is not refused: in a full pool an idle connection makes room.
            lambda _: None,
            tls=self.tls.context if self.tls is not None else None,
            handshake_timeout_s=self.handshake_timeout_ms / 1000,
            handshakes=Handshakes(HTTP_HANDSHAKES_MAX),
            failed=partial(_note_failed_handshake, self.troubles, self.metrics),
        )


def _note_failed_handshake(troubles: ListenerTroubles, metrics: Metrics) -> None:
    troubles.handshakes_failed += 1
    metrics.handshakes_failed += 1


def _offer_small_segments(sockets: Iterable[socket.socket]) -> None:
    """Have peers send segments as on Ethernet, also within a machine, where they have 64 KiB: what does not fill one
    waits for the acknowledgement of what is under way."""
    if not hasattr(socket, "TCP_MAXSEG"):
        return
    for bound in sockets:
        with suppress(OSError):
            bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, ETHERNET_SEGMENT_BYTES)
