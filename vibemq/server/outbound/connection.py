"""One connection to another machine's HTTP server, for one call after the other."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import cast

import h11

from vibemq.errors import OutboundFailed
from vibemq.protocols.session import HttpAnswer
from vibemq.server.outbound.targets import Address, Target

ANSWER_BYTES_MAX = 65_536
HEAD_BYTES_MAX = 16_384


class OutboundConnection(asyncio.Protocol):
    """Redirects are answers like others, and nothing is followed."""

    def __init__(self) -> None:
        self._parser = h11.Connection(h11.CLIENT, HEAD_BYTES_MAX)
        self._waiting: asyncio.Future[HttpAnswer] | None = None
        self._transport: asyncio.Transport | None = None
        self._status = 0
        self._headers: dict[str, str] = {}
        self._parts: list[bytes] = []
        self._size = 0
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
        if self._waiting is not None and not self._waiting.done():
            self._end_of_stream()
        if self._waiting is not None and not self._waiting.done():
            why = f" ({exc})" if exc is not None else ""
            self._fail(f"the connection was closed before the answer was whole{why}")

    def _end_of_stream(self) -> None:
        """An answer without a length ends here."""
        try:
            self._parser.receive_data(b"")
            self._read()
        except h11.RemoteProtocolError as error:
            self._fail(f"the answer cannot be read: {error}")

    def eof_received(self) -> bool:
        return False

    async def post(self, target: Target, headers: Mapping[str, str], body: bytes) -> HttpAnswer:
        """One call; nothing else is under way.

        Raises:
            OutboundFailed: no answer that can be read. The connection is closed then.
        """
        assert self._transport is not None
        self._waiting = asyncio.get_running_loop().create_future()
        self._status, self._headers, self._parts, self._size = 0, {}, [], 0
        fields = [("host", target.authority), *headers.items(), ("content-length", str(len(body)))]
        self.used, self.heard = True, False
        try:
            head = self._parser.send(h11.Request(method="POST", target=target.path, headers=fields))
            rest = self._parser.send(h11.Data(body)) if body else b""
            self._parser.send(h11.EndOfMessage())
            self._transport.write((head or b"") + (rest or b""))
            return await self._waiting
        except h11.LocalProtocolError as error:
            raise OutboundFailed(f"the call cannot be written: {error}") from None
        finally:
            self._waiting = None
            if self._parser.our_state is h11.DONE and self._parser.their_state is h11.DONE:
                self._parser.start_next_cycle()
            else:
                self.close()

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            # Nothing was asked: what comes now could be taken for the answer to the next call.
            self.close()
            return
        self.heard = True
        try:
            self._parser.receive_data(data)
            self._read()
        except h11.RemoteProtocolError as error:
            error.__traceback__ = None
            self._fail(f"the answer cannot be read: {error}")

    def _read(self) -> None:
        assert self._waiting is not None
        while not self._waiting.done():
            event = self._parser.next_event()
            if event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return
            if isinstance(event, h11.Response):
                self._status = event.status_code
                self._headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
            elif isinstance(event, h11.Data):
                self._size += len(event.data)
                if self._size > ANSWER_BYTES_MAX:
                    self._fail(f"the answer is longer than {ANSWER_BYTES_MAX:,} bytes")
                    return
                self._parts.append(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                self._waiting.set_result(HttpAnswer(self._status, self._headers, b"".join(self._parts)))

    def _fail(self, why: str) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(OutboundFailed(why))
        self.close()

    def close(self) -> None:
        self.open = False
        if self._transport is not None:
            self._transport.abort()


async def connect(target: Target, address: Address, tls: ssl.SSLContext) -> OutboundConnection:
    """To this address and no other; the certificate is checked against the host of the URL.

    Raises:
        OSError: nobody is there, or the certificate does not count.
    """
    _, connection = await asyncio.get_running_loop().create_connection(
        OutboundConnection,
        str(address),
        target.port,
        ssl=tls if target.secure else None,
        server_hostname=target.host if target.secure else None,
    )
    return connection
