"""A connection over a stream of anyio: TLS, and everything under trio. A task reads, and a task writes."""

import anyio
from anyio.abc import ByteStream, SocketAttribute
from anyio.lowlevel import checkpoint

from vibemq.client.connecting.connection import PIECE_BYTES, ClientConnection
from vibemq.client.connecting.dialing import BROKEN, READ_BYTES, sentence_of
from vibemq.client.connecting.line import TcpLine
from vibemq.client.connecting.waking import Waking
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import VibeMQError


class StreamConnection(ClientConnection):
    """See the module."""

    def __init__(self, stream: ByteStream, protocol: ClientProtocol, link: ClientLink) -> None:
        super().__init__(protocol, link)
        self._stream = stream
        self._line = TcpLine(stream.extra(SocketAttribute.raw_socket, None))  # noqa: S610  # of anyio
        self._waking = Waking()

    async def _carry(self) -> None:
        self._link.carried_by(self._waking)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write)
            await self._read()

    async def _read(self) -> None:
        try:
            while True:
                data = await self._stream.receive(READ_BYTES)
                self._heard(data, anyio.current_time())
        except anyio.EndOfStream:
            self.end("the broker closed the connection")
        except BROKEN as exc:
            self.end(sentence_of(exc))
        except VibeMQError as exc:
            self.end(str(exc))

    async def _write(self) -> None:
        link = self._link
        try:
            while True:
                await self._waking.woken()
                # Whoever is ready in this turn of the loop adds its part; then one write takes it all.
                await checkpoint()
                while (data := link.data_to_send(anyio.current_time())) or link.has_data_to_send:
                    if data:
                        self._spoke_at = anyio.current_time()
                        await self._stream.send(data)
                    if (row := link.row_to_send()) is not None:
                        await self._send_row(row)
        except BROKEN as exc:
            self.end(sentence_of(exc))

    async def _send_row(self, row: bytes) -> None:
        """In pieces, each of which is a sign that the broker is there."""
        self._row_begun = self._spoke_at
        self._sending_row = True
        for start in range(0, len(row), PIECE_BYTES):
            await self._stream.send(row[start : start + PIECE_BYTES])
            self._spoke_at = anyio.current_time()
        self._row_sent(self._spoke_at)
