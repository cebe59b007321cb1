"""TLS of a listener, from files that may be replaced while the broker runs."""

import logging
import ssl

from vibemq.config import Tls
from vibemq.errors import ConfigInvalid

log = logging.getLogger("vibemq.listener")


class ServerTls:
    """`context` is for the listener's whole life; which files a handshake uses is decided when it begins.

    A certificate loaded into a context cannot be taken out again, nor can a client CA. So a reload makes a new context,
    and the listener's own hands each handshake over to the newest. Connections that exist are left alone.

    Raises:
        ConfigInvalid: a file cannot be used; it is named.
    """

    def __init__(self, files: Tls) -> None:
        self._files = files
        self._newest = self.context = _load(files)
        # Called in every handshake, whether or not the client names a server.
        self.context.sni_callback = self._hand_over

    @property
    def certificate(self) -> str:
        """Where it stands, for people."""
        return str(self._files.certificate)

    def reload(self) -> None:
        """Read the files again. Raises ConfigInvalid; then the ones read before stay in use."""
        self._newest = _load(self._files)

    def _hand_over(self, connection: ssl.SSLObject, server_name: str | None, context: ssl.SSLContext) -> None:
        if connection.context is not self._newest:
            connection.context = self._newest


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


def _load(files: Tls) -> ssl.SSLContext:
    """TLS 1.2 or newer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.sslobject_class = _Handshaking
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(files.certificate, files.key)
        if files.client_ca is not None:
            context.load_verify_locations(files.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
            # A resumed session shows no certificate: a CA that was taken away would go on being trusted.
            context.options |= ssl.OP_NO_TICKET
            context.num_tickets = 0
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"the TLS files of a listener ({files.certificate}) cannot be used: {error}") from error
    return context
