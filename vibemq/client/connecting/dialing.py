"""Making a connection: name, address, TLS, handshake, and what to say when one of them fails."""

import errno
import os
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.abc import ByteStream, SocketStream
from anyio.streams.tls import TLSStream

from vibemq.client.address import ClientSettings
from vibemq.client.connecting.own_task import on_asyncio
from vibemq.client.connecting.plain_socket import PlainSocket, connected_socket
from vibemq.client.connecting.tls import tls_context
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import NotABroker, NotConnected, RemoteProtocolError, RequestTimeout
from vibemq.protocols.native.codec.wire import WireMessage

READ_BYTES = 262_144
BROKEN = (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError, anyio.EndOfStream)
"""What a stream raises when it has ended."""


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
    except BROKEN as exc:
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
    except BROKEN as exc:
        why = f"{_tls_sentence(exc)}{_closed_hint(settings)}"
        raise NotConnected(f"the handshake with {where} failed: {why}") from exc


async def _open(settings: ClientSettings, context: ssl.SSLContext | None) -> ByteStream:
    if context is None and on_asyncio():
        return PlainSocket(await connected_socket(settings.host, settings.port))
    stream = await _stream_of(await connected_socket(settings.host, settings.port))
    if context is None:
        return stream
    try:
        return await TLSStream.wrap(
            stream,
            server_side=False,
            hostname=settings.tls_server_name or settings.host,
            ssl_context=context,
            # A broker that ends without a TLS goodbye is the usual end of a connection, no error.
            standard_compatible=False,
        )
    except BaseException:
        await anyio.aclose_forcefully(stream)
        raise


async def _stream_of(connected: socket.socket) -> SocketStream:
    try:
        return await SocketStream.from_socket(connected)
    except ValueError:
        # anyio has asked for the name of a peer that has hung up since.
        connected.close()
        raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None


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
    return sentence_of(error)


def _is_tls(error: BaseException) -> bool:
    """Whether something answered, and TLS failed."""
    return isinstance(error, ssl.SSLError) or isinstance(error.__cause__, ssl.SSLError)


def sentence_of(error: BaseException) -> str:
    cause = error.__cause__
    if isinstance(error, OSError) and not error.errno and isinstance(cause, OSError | BaseExceptionGroup):
        # anyio says only that all attempts failed; of several addresses the first one's reason is shown.
        first = cause.exceptions[0] if isinstance(cause, BaseExceptionGroup) else cause
        number = getattr(first, "errno", None) or 0
        return os.strerror(number).lower() if number > 0 else str(first)
    if isinstance(error, anyio.BrokenResourceError | anyio.ClosedResourceError):
        return f"the connection broke ({error.__cause__ or type(error).__name__})"
    if isinstance(error, socket.gaierror) and error.strerror:
        # Without its number, which says nothing to a person.
        return error.strerror.lower()
    return str(error) or type(error).__name__
