"""Clients that speak the native protocol's frames over a plain socket, of which every byte is under control."""

import asyncio
import socket
import struct

from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.protocols.native.codec.wire import CommandType, WireMessage, decode_body, encode_body

CEILING_S = 60


def frame(kind: CommandType, message_id: str, queue: str = "", payload: bytes = b"", **headers: str) -> bytes:
    body = encode_body(kind, message_id, queue, payload, {key.replace("_", "-"): text for key, text in headers.items()})
    return struct.pack("!IB", len(body), 0) + body


class PlainPeer:
    """Speaks as .NET clients do: a frame for each message."""

    def __init__(self, port: int, *, receive_buffer: int = 0) -> None:
        self._socket = socket.socket()
        if receive_buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        self._reader = NativeFrameReader(body_bytes_max=1 << 21)
        self._bodies: list[bytes] = []
        self._delivered: list[WireMessage] = []

    def send(self, data: bytes) -> None:
        """Into the socket at once, before the broker's loop has another turn."""
        assert self._socket.send(data) == len(data)

    async def heard(self) -> CommandType:
        """Type of the next frame."""
        async with asyncio.timeout(CEILING_S):
            while not self._bodies:
                # Few bytes: whatever stands behind them shows the broker how slow its peer is.
                data = await asyncio.get_running_loop().sock_recv(self._socket, 4096)
                assert data, "the broker has ended the stream"
                self._reader.receive_data(data)
                self._bodies += self._reader.bodies()
        return self._next()

    def _next(self) -> CommandType:
        body = self._bodies.pop(0)
        kind = CommandType(body[1])
        if kind == CommandType.DELIVER:
            self._delivered.append(decode_body(body))
        return kind

    async def connect(self) -> None:
        self.send(frame(CommandType.CONNECT, "c"))
        assert await self.heard() == CommandType.CONNECT_ACK

    async def consume(self, queue: str, *, settles: bool = True) -> None:
        """`settles`: with the extension `settle/1`, so that nobody knows which of its messages it has begun."""
        extension = {"supported_extensions": "settle/1"} if settles else {}
        self.send(frame(CommandType.CONNECT, "c", **extension) + frame(CommandType.SUBSCRIBE, "s", queue))
        assert [await self.heard(), await self.heard()] == [CommandType.CONNECT_ACK, CommandType.SUBSCRIBE_ACK]

    def end_stream(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    async def read_to_the_end(self) -> list[WireMessage]:
        """All that was delivered until the broker ended its side; the socket stays open."""
        async with asyncio.timeout(CEILING_S):
            while data := await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20):
                self._reader.receive_data(data)
                self._bodies += self._reader.bodies()
        while self._bodies:
            self._next()
        return self._delivered

    def reset(self) -> None:
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        self._socket.close()
