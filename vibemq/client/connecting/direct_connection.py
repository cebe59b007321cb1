"""A connection whose socket calls the link, and is written to, in the same turn of an asyncio loop.

A stream with a task that reads and one that writes costs a lone message more than its frames: each turn of a task is a
turn of the loop, and the stream asks the system anew for every read.
"""

import asyncio
from typing import cast

import anyio

from vibemq.client.connecting.connection import PIECE_BYTES, ClientConnection
from vibemq.client.connecting.dialing import sentence_of
from vibemq.client.connecting.line import TcpLine
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.connecting.waking import LINGER_S
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import VibeMQError

PIECES_AT_ONCE = 4
"""Of a large message, in one turn of the loop."""


class DirectConnection(ClientConnection, asyncio.Protocol):
    """See the module. It is the link's `LinkCarrier`."""

    def __init__(self, connected: PlainSocket, protocol: ClientProtocol, link: ClientLink) -> None:
        super().__init__(protocol, link)
        self._socket = connected
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._carried = False
        """The loop has the socket, and tells when it is lost. It does not of a transport whose making was cancelled."""
        self._lost = asyncio.Event()
        self._over = False
        """Nothing is sent or taken any more; the link may have another connection already."""
        self._scheduled = False
        self._lingering: asyncio.TimerHandle | None = None
        self._full = False
        """The socket has not taken what was written; a row goes on, and the rest is sent, when it has."""
        self._row: bytes | None = None
        self._row_at = 0

    async def _carry(self) -> None:
        connected = self._socket.hand_over()
        try:
            await self._loop.create_connection(lambda: self, sock=connected)
            self._carried = True
            await anyio.sleep_forever()
        except OSError as error:
            connected.close()
            self.end(f"the connection broke ({sentence_of(error)})")
        finally:
            await self._stop()

    async def _stop(self) -> None:
        self._over = True
        if self._lingering is not None:
            self._lingering.cancel()
        if self._transport is not None:
            # Of one whose making was cancelled, too: the loop only closes it, and waits for a peer that reads nothing.
            self._transport.abort()
        if self._carried:
            with anyio.CancelScope(shield=True):
                await self._lost.wait()

    # -- the link's carrier ------------------------------------------------------------------------------------------

    def wake(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            # Behind whoever is ready in this turn of the loop and adds its part; then one write takes it all.
            self._loop.call_soon(self._send)

    def send_now(self) -> None:
        if not self._scheduled:
            self._send()

    def linger(self) -> None:
        if not self._scheduled and self._lingering is None:
            self._lingering = self._loop.call_later(LINGER_S, self._send)

    # -- asyncio's protocol ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._line = TcpLine(transport.get_extra_info("socket"))
        self._link.carried_by(self)

    def data_received(self, data: bytes) -> None:
        if self._over or self._why:
            return
        try:
            self._heard(bytes(data), self._loop.time())
        except Exception as error:
            self._failed(error)

    def eof_received(self) -> None:
        self.end("the broker closed the connection")

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost.set()
        if not self._over:
            self.end("the broker closed the connection" if exc is None else f"the connection broke ({exc})")

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        self.wake()

    # -- inside ------------------------------------------------------------------------------------------------------

    def _failed(self, error: Exception) -> None:
        """What is raised here would reach the loop, and nobody else."""
        if isinstance(error, VibeMQError):
            self.end(str(error))
        else:
            self._fault = error
            self.end("the client has failed in an unforeseen way")

    def _send(self) -> None:
        self._scheduled = False
        if self._lingering is not None:
            self._lingering.cancel()
            self._lingering = None
        if self._over or self._full or self._why:
            return
        try:
            if self._row is None:
                self._send_data()
            else:
                self._send_row()
        except Exception as error:
            self._failed(error)

    def _send_data(self) -> None:
        """A bounded part; the others have their turn before the next one."""
        assert self._transport is not None
        link, now = self._link, self._loop.time()
        data = link.data_to_send(now)
        if data:
            self._spoke_at = now
            self._transport.write(data)
        self._row = link.row_to_send()
        if self._row is not None:
            self._sending_row = True
            self._row_at, self._row_begun = 0, now
            self.wake()
        elif link.has_data_to_send:
            self.wake()

    def _send_row(self) -> None:
        """In pieces, each of which is a sign that the broker is there."""
        assert self._row is not None
        assert self._transport is not None
        for _ in range(PIECES_AT_ONCE):
            self._spoke_at = self._loop.time()
            piece = self._row[self._row_at : self._row_at + PIECE_BYTES]
            if not piece:
                self._row = None
                self._row_sent(self._spoke_at)
                break
            self._transport.write(piece)
            self._row_at += len(piece)
            if self._full:
                return
        self.wake()
