"""One connection: the socket, a task that reads, a task that writes. The rest is `Link` and `ClientProtocol`."""

import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import checkpoint

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import ConfigInvalid, NotABroker, NotConnected, RemoteProtocolError, RequestTimeout, VibeMQError
from vibemq.protocols.native.codec.wire import WireMessage

READ_BYTES = 262_144
PIECE_BYTES = 262_144
"""Of a large message: so much is written at once."""
GOODBYE_SECONDS = 2.0
"""For the last bytes out, and the broker's hanging up."""
PATIENCE = 0.4
"""Share of the command timeout: how long a peer that owes an answer may be silent before it is pinged, and how long
the ping may go unanswered. Below one half, so that what a dead connection swallowed is sent again, not timed out."""

_BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)


class ClientConnection:
    """Carries a link's traffic until it breaks."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol, link: ClientLink) -> None:
        self._stream = stream
        self._protocol = protocol
        self._link = link
        self._scope = anyio.CancelScope()
        self._why = ""
        self._heard_at = self._spoke_at = anyio.current_time()
        self._pinged_at: float | None = None
        self._sending_row = False

    @property
    def descriptor(self) -> int:
        """Of the socket; -1 when it is closed."""
        return int(self._stream.extra(SocketAttribute.raw_socket).fileno())  # noqa: S610  # anyio's

    async def run(self) -> str:
        """Read and write until the connection ends; why it did."""
        self._link.online(self._protocol, anyio.current_time())
        try:
            with self._scope:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._write)
                    await self._read()
        finally:
            self._link.offline(anyio.current_time(), self._why or "the client closed it")
        return self._why

    def end(self, why: str) -> None:
        """Give the connection up; `run` returns soon."""
        self._why = self._why or why
        self._scope.cancel()

    def tick(self, now: float) -> None:
        """Send a ping into a long silence, give up on a peer that does not answer one, fail what is overdue."""
        if self._sending_row:
            self._tick_sending(now)
            return
        settings = self._link.settings
        patience = settings.command_timeout * PATIENCE
        if self._pinged_at is not None and now - self._pinged_at > patience:
            self.end(f"the broker has been silent for {now - self._heard_at:.1f} s and does not answer a ping")
            return
        silence_max = min(settings.keep_alive, patience) if self._link.waiting_for_peer else settings.keep_alive
        if self._pinged_at is None and (now - self._heard_at > silence_max or now - self._spoke_at > silence_max):
            self._pinged_at = now
            self._spoke_at = now
            self._link.ping()
        try:
            self._link.tick(now)
        except VibeMQError as exc:
            self.end(str(exc))

    async def _read(self) -> None:
        try:
            while True:
                data = await self._stream.receive(READ_BYTES)
                self._heard_at = anyio.current_time()
                self._pinged_at = None
                for frame in self._protocol.receive_data(data):
                    self._link.receive(frame)
        except anyio.EndOfStream:
            self.end("the broker closed the connection")
        except _BROKEN as exc:
            self.end(_sentence(exc))
        except VibeMQError as exc:
            self.end(str(exc))

    async def _write(self) -> None:
        link = self._link
        try:
            while True:
                await link.woken()
                # Whoever is ready in this turn of the loop adds its part; then one write takes it all.
                await checkpoint()
                while data := link.data_to_send(anyio.current_time()):
                    self._spoke_at = anyio.current_time()
                    await self._stream.send(data)
                    if (row := link.row_to_send()) is not None:
                        await self._send_row(row)
        except _BROKEN as exc:
            self.end(_sentence(exc))

    async def _send_row(self, row: bytes) -> None:
        """In pieces, each of which is a sign that the broker is there."""
        begun = self._spoke_at
        self._sending_row = True
        try:
            for start in range(0, len(row), PIECE_BYTES):
                await self._stream.send(row[start : start + PIECE_BYTES])
                self._spoke_at = anyio.current_time()
        finally:
            self._sending_row = False
            # Nothing could be asked for or answered in the meantime.
            self._pinged_at = None
            self._link.postpone(anyio.current_time() - begun)

    def _tick_sending(self, now: float) -> None:
        """Frames are not mixed: there is no ping before the end of a large message. A broker that makes it wait says so
        now and then."""
        silence = now - max(self._heard_at, self._spoke_at)
        if silence > self._link.settings.command_timeout:
            self.end(f"the broker has taken nothing of a large message for {silence:.1f} s")


@asynccontextmanager
async def dial(settings: ClientSettings) -> AsyncIterator[tuple[ByteStream, ClientProtocol]]:
    """Connect and shake hands.

    Raises:
        NotConnected: nobody there, TLS failed, or the connection ended during the handshake.
        NotABroker: the peer speaks something else, HTTP for example.
        RequestTimeout: the peer takes longer than `command_timeout`.
        VibeMQError: the broker refused.
    """
    stream = await _reach(settings)
    try:
        protocol = await _introduce(stream, settings)
        yield stream, protocol
    finally:
        await anyio.aclose_forcefully(stream)


async def _reach(settings: ClientSettings) -> ByteStream:
    where = f"{settings.host}:{settings.port}"
    context = tls_context(settings) if settings.tls else None
    try:
        with anyio.fail_after(settings.command_timeout):
            return await _open(settings, context)
    except TimeoutError:
        raise RequestTimeout(f"{where} did not answer within {settings.command_timeout} s") from None
    except ssl.SSLCertVerificationError as exc:
        hint = "name the authority that signed it with tlsCa (--tls-ca), or the name it holds with tlsServerName"
        raise NotConnected(f"the certificate of {where} is not accepted: {exc.verify_message}; {hint}") from exc
    except _BROKEN as exc:
        hint = "" if _is_tls(exc) else "; check the address and the port, and that a broker listens there"
        raise NotConnected(f"cannot connect to {where}: {_tls_sentence(exc)}{hint}") from exc


async def _introduce(stream: ByteStream, settings: ClientSettings) -> ClientProtocol:
    where = f"{settings.host}:{settings.port}"
    try:
        with anyio.fail_after(settings.command_timeout):
            return await _shake_hands(stream, settings)
    except TimeoutError:
        raise RequestTimeout(f"{where} did not finish the handshake in {settings.command_timeout} s") from None
    except anyio.EndOfStream:
        raise NotConnected(f"{where} closed the connection during the handshake{_closed_hint(settings)}") from None
    except _BROKEN as exc:
        why = f"{_tls_sentence(exc)}{_closed_hint(settings)}"
        raise NotConnected(f"the handshake with {where} failed: {why}") from exc


def tls_context(settings: ClientSettings) -> ssl.SSLContext:
    """
    Raises:
        ConfigInvalid: a file cannot be used.
    """
    _need_readable(settings)
    file = settings.tls_ca
    try:
        context = ssl.create_default_context(cafile=settings.tls_ca or None)
        if settings.tls_certificate:
            file = settings.tls_certificate
            # Without a password to give, OpenSSL would ask for one at the terminal.
            context.load_cert_chain(file, settings.tls_key or None, password=_no_password)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"the TLS file {file} cannot be used: {_file_sentence(error, settings)}") from error
    if not settings.verify_certificate:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _need_readable(settings: ClientSettings) -> None:
    """The operating system does not say which file it means."""
    for key, file in (
        ("tlsCa", settings.tls_ca),
        ("tlsCertificate", settings.tls_certificate),
        ("tlsKey", settings.tls_key),
    ):
        try:
            if file:
                Path(file).open("rb").close()
        except OSError as error:
            raise ConfigInvalid(
                f"{key}: the file {file} cannot be read ({error.strerror}); correct the path, or the file's owner or "
                "mode"
            ) from error


def _no_password() -> str:
    raise ValueError("its key is encrypted; give one without a password")


def _file_sentence(error: Exception, settings: ClientSettings) -> str:
    if isinstance(error, ssl.SSLError):
        key = " or its key does not belong to it" if settings.tls_certificate else ""
        return f"it is not a PEM file of this kind{key} ({error.reason or error})"
    return getattr(error, "strerror", None) or str(error)


async def _open(settings: ClientSettings, context: ssl.SSLContext | None) -> ByteStream:
    if context is None:
        return await anyio.connect_tcp(settings.host, settings.port)
    return await anyio.connect_tcp(
        settings.host,
        settings.port,
        ssl_context=context,
        tls_hostname=settings.tls_server_name or settings.host,
        # A broker that ends without a TLS goodbye is the usual end of a connection, no error.
        tls_standard_compatible=False,
    )


async def _shake_hands(stream: ByteStream, settings: ClientSettings) -> ClientProtocol:
    protocol = ClientProtocol(settings)
    await stream.send(protocol.connect("connect"))
    while True:
        data = await stream.receive(READ_BYTES)
        try:
            frames = list(protocol.receive_data(data))
        except RemoteProtocolError as exc:
            where = f"{settings.host}:{settings.port}"
            raise NotABroker(f"{where} does not speak the native protocol: {exc}") from exc
        for frame in frames:
            if not isinstance(frame, WireMessage):
                raise RemoteProtocolError("the broker answered Connect with a delivery")
            protocol.accept(frame)
            return protocol


def _closed_hint(settings: ClientSettings) -> str:
    """Brokers say why they refuse; a silent end comes from something else in between."""
    if settings.tls:
        return "" if settings.tls_certificate else "; it may ask for a client certificate (tlsCertificate, --tls-cert)"
    return "; if this port speaks TLS, write vibemqs:// instead of vibemq://"


def _tls_sentence(error: BaseException) -> str:
    """A TLS library's words in ours, where the cause is one that a user can remove."""
    tls = error if isinstance(error, ssl.SSLError) else error.__cause__
    reason = (tls.reason or "") if isinstance(tls, ssl.SSLError) else ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE"):
        return "this port does not speak TLS; write vibemq:// instead of vibemqs://, or the port of the TLS listener"
    if "CERTIFICATE_REQUIRED" in reason:
        return "it asks for a client certificate; give one with tlsCertificate and tlsKey (--tls-cert, --tls-key)"
    if "UNKNOWN_CA" in reason or "CERTIFICATE" in reason:
        return f"it does not accept our client certificate ({reason.lower().replace('_', ' ')})"
    return _sentence(error)


def _is_tls(error: BaseException) -> bool:
    """Whether something answered, and TLS failed."""
    return isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError)


def _sentence(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(error, OSError) and not error.errno and isinstance(cause, OSError | BaseExceptionGroup):
        # anyio says only that all attempts failed; of several addresses the first one's reason is shown.
        first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
        number = getattr(first, "errno", None) or 0
        return os.strerror(number).lower() if number > 0 else str(first)
    if isinstance(error, anyio.BrokenResourceError | anyio.ClosedResourceError):
        return f"the connection broke ({error.__cause__ or type(error).__name__})"
    return str(error) or type(error).__name__
