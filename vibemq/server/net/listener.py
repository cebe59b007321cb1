"""Sockets that accept: one server per configured listener."""

import asyncio
import logging
import ssl
from dataclasses import dataclass

from vibemq import plugins
from vibemq.config import Listener, Tls
from vibemq.errors import ConfigInvalid
from vibemq.protocols.session import Plugin
from vibemq.server.checks import plugin_settings
from vibemq.server.net.connection import Connection
from vibemq.server.net.connections import Entrance
from vibemq.server.shell import Shell

log = logging.getLogger("vibemq.listener")

BACKLOG = 1024


@dataclass(frozen=True, slots=True)
class Listening:
    protocol: str
    host: str
    port: int
    server: asyncio.Server


def entrance_of(listener: Listener) -> Entrance:
    """Find the protocol and check its options. Raises ConfigInvalid."""
    try:
        plugin: Plugin = plugins.find("protocols", listener.protocol)
    except LookupError as error:
        raise ConfigInvalid(f"listener protocol {listener.protocol!r} cannot be used: {error}") from error
    settings = plugin_settings(plugin.settings, listener.settings, f"the {listener.protocol} listener's settings")
    return Entrance(listener.protocol, plugin, settings)


async def listen(listener: Listener, entrance: Entrance, shell: Shell) -> Listening:
    """Accept connections from now on.

    An accept that fails (no file descriptors left) is logged by the loop and tried again a second later; the loop
    goes on. Raises ConfigInvalid when the address cannot be had.
    """
    port = entrance.plugin.port if listener.port is None else listener.port
    tls = tls_context(listener.tls) if listener.tls is not None else None
    try:
        server = await shell.loop.create_server(
            lambda: Connection(shell, entrance),
            listener.host,
            port,
            backlog=BACKLOG,
            ssl=tls,
            ssl_handshake_timeout=shell.limits.handshake_timeout_ms / 1000 if tls is not None else None,
        )
    except OSError as error:
        where = f"{listener.host}:{port}"
        raise ConfigInvalid(
            f"cannot listen on {where} for {listener.protocol}: {error.strerror or error}; choose another host or port"
        ) from error
    host, chosen = server.sockets[0].getsockname()[:2]
    log.info("%s listens on %s:%d", listener.protocol, host, chosen, extra={"event": "listener.opened"})
    return Listening(listener.protocol, host, chosen, server)


class _Handshaking(ssl.SSLObject):
    """Tells the log why a handshake failed; asyncio drops such a connection without a word."""

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            log.info("TLS handshake failed: %s", _why(error.reason or ""), extra={"event": "conn.rejected"})
            raise


def _why(reason: str) -> str:
    if reason == "HTTP_REQUEST":
        return "an HTTP request came to a TLS listener; health and metrics are served on another port"
    if reason in ("WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "UNSUPPORTED_PROTOCOL", "PACKET_LENGTH_TOO_LONG"):
        return "a client without TLS came to a TLS listener; it should write vibemqs://, not vibemq://"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client presented no certificate, which this listener asks for (client_ca)"
    return reason.lower().replace("_", " ") or "the client gave up"


def tls_context(tls: Tls) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises ConfigInvalid naming the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshaking
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca is not None:
            context.load_verify_locations(tls.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"the TLS files of a listener ({tls.certificate}) cannot be used: {error}") from error
    return context
