"""One connection to another machine's HTTP server, for one call after the other."""

import asyncio
import ssl
from typing import cast

from vibemq.errors import OutboundFailed
from vibemq.protocols.http1 import END_OF_HEAD, BodyReader, Http1Error, ResponseHead, response_head
from vibemq.protocols.session import HttpAnswer
from vibemq.server.outbound.targets import Address, Target

ANSWER_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 16_384
INTERIM_MAX = 8
"""Answers with a status below 200, of which a server may send some before its answer."""
STEPS_AT_ONCE = 2
"""Heads, or pieces of a body, that are read in about a millisecond; then others have their turn."""


class OutboundConnection(asyncio.Protocol):
    """Redirects are answers like others, and nothing is followed."""

    def __init__(self) -> None:
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._head: ResponseHead | None = None
        self._last: tuple[bytes, ResponseHead] | None = None
        """Servers often send the same head again and again."""
        self._body: BodyReader | None = None
        self._interim = 0
        self._ended, self._why = False, ""
        self._later: asyncio.Handle | None = None
        """What goes on with the bytes that have come; until then, nothing more is read."""
        self.open = False
        """Whether another call may be made."""
        self.used = False
        self.heard = False
        """Whether some of the answer has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.open = False
        self._ended, self._why = True, f" ({exc})" if exc is not None else ""
        if self._later is None:
            self._read()

    @property
    def _waits(self) -> bool:
        return self._waiting is not None and not self._waiting.done()

    def eof_received(self) -> bool:
        return False

    async def post(self, target: Target, headers: bytes, body: bytes) -> HttpAnswer:
        """One call; nothing else is under way. `headers`: whole lines.

        Raises:
            OutboundFailed: no answer that can be read. The connection is closed then.
        """
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._head = self._body = None
        self._interim = 0
        self.used, self.heard = True, False
        line = f"POST {target.path} HTTP/1.1\r\nhost: {target.authority}\r\n".encode()
        self._transport.write(b"%s%scontent-length: %d\r\n\r\n%s" % (line, headers, len(body), body))
        try:
            return await self._waiting
        except asyncio.CancelledError:
            # What comes yet would be taken for the answer to the next call.
            self.close()
            raise
        finally:
            self._waiting = None

    def data_received(self, data: bytes) -> None:
        if not self._waits:
            # Nothing was asked: what comes now could be taken for the answer to the next call.
            self.close()
            return
        self.heard = True
        self._buffer += data
        if self._later is None:
            self._read()

    def _read(self) -> None:
        """Some of what has come."""
        self._later = None
        try:
            for _ in range(STEPS_AT_ONCE):
                if not (self._waits and self._step()):
                    break
            else:
                self._go_on_later()
                return
        except Http1Error as error:
            error.__traceback__ = None
            self._fail(f"the answer cannot be read: {error}")
        if self._ended and self._waits:
            self._fail(f"the connection was closed before the answer was whole{self._why}")
        elif self._transport is not None and not (self._ended or self._transport.is_closing()):
            self._transport.resume_reading()

    def _go_on_later(self) -> None:
        if not self._waits:
            return
        if self._transport is not None and not (self._ended or self._transport.is_closing()):
            self._transport.pause_reading()
        self._later = asyncio.get_running_loop().call_soon(self._read)

    def _step(self) -> bool:
        """Read a head, or a piece of a body. False: more has to come. Raises Http1Error."""
        if self._body is None and not self._read_head():
            return False
        assert self._head is not None
        assert self._body is not None
        if not self._body.take(self._buffer, ended=self._ended):
            return self._body.more
        if self._head.status >= 200:
            self._answered(self._head, self._body.body)
        else:
            self._body = None
            self._interim += 1
            if self._interim > INTERIM_MAX:
                raise Http1Error(f"more than {INTERIM_MAX} interim answers come before it")
        return True

    def _read_head(self) -> bool:
        end = self._buffer.find(END_OF_HEAD, 0, HEAD_BYTES_MAX)
        if end < 0:
            if len(self._buffer) >= HEAD_BYTES_MAX:
                raise Http1Error(f"its head is longer than {HEAD_BYTES_MAX:,} bytes")
            return False
        head = bytes(self._buffer[:end])
        del self._buffer[: end + len(END_OF_HEAD)]
        if self._last is None or self._last[0] != head:
            self._last = head, response_head(head)
        self._head = self._last[1]
        self._body = BodyReader(self._head, ANSWER_BYTES_MAX)
        return True

    def _answered(self, head: ResponseHead, body: bytes) -> None:
        assert self._waiting is not None
        if not head.keeps or self._buffer:
            self.close()
        self._waiting.set_result(HttpAnswer(head.status, head.headers, body))

    def _fail(self, why: str) -> None:
        if self._waits:
            assert self._waiting is not None
            self._waiting.set_exception(OutboundFailed(why))
        self.close()

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()


async def connect(target: Target, address: Address, tls: ssl.SSLContext | None) -> OutboundConnection:
    """To this address and no other; with `tls` the certificate is checked against the host of the URL.

    Raises:
        OSError: nobody is there, or the certificate does not count.
    """
    _, connection = await asyncio.get_running_loop().create_connection(
        OutboundConnection,
        str(address),
        target.port,
        ssl=tls,
        server_hostname=target.host if tls is not None else None,
    )
    return connection
