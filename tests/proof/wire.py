"""One end of a connection without a socket: a client's side, and the transport that the server writes to."""

import asyncio
from typing import Any

from vibemq.errors import RemoteProtocolError
from vibemq.protocols.native.codec.frames import NativeFrameReader
from vibemq.server.net.connections import ListenerEndpoint
from vibemq.server.net.transport import Connection, SocketServices

HEARD_MAX = 1 << 20


class Wire(asyncio.Transport):
    """Bytes to the broker with `say`; what it answers gathers in `heard`, and cut into bodies in `bodies`."""

    def __init__(self, services: SocketServices, endpoint: ListenerEndpoint, host: str) -> None:
        super().__init__({"peername": (host, 4_000)})
        self.heard = bytearray()
        self.bodies: list[bytes] = []
        self.stuck = False
        """The peer reads nothing: whatever is written stays in the buffer."""
        self.closed = False
        self._reader = NativeFrameReader()
        self._buffered = 0
        self._paused = False
        self._held = bytearray()
        self._lost = False
        self._half = False
        self.connection = Connection(services, endpoint)
        self.connection.connection_made(self)

    @property
    def session(self) -> Any:
        return self.connection.session

    # -- the peer ---------------------------------------------------------------------------------------------------

    def say(self, data: bytes) -> None:
        if self._lost or self.closed or self._half:
            return
        self._held += data
        if self._held and not self._paused:
            data, self._held = bytes(self._held), bytearray()
            self.connection.data_received(data)

    def end_of_stream(self) -> None:
        """The peer closes its side in good order."""
        if not (self._lost or self.closed or self._half):
            self._half = True
            if not self.connection.eof_received():
                self.close()

    def vanish(self) -> None:
        """The stream is reset."""
        if not self._lost:
            self.closed = True
            self._lose(ConnectionResetError("the peer is gone"))

    # -- the transport ------------------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        if self.stuck:
            self._buffered += len(data)
            return
        if len(self.heard) < HEARD_MAX:
            self.heard += data
        self._buffered = 0
        self._reader.receive_data(bytes(data))
        try:
            while found := self._reader.bodies():
                self.bodies += found
        except RemoteProtocolError as error:
            raise AssertionError(f"the broker wrote what nobody can read: {error}") from error

    def get_write_buffer_size(self) -> int:
        return self._buffered

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer to limit; `get_write_buffer_size` is what the connection looks at."""

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self.say(b"")

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """The peer, told that nothing follows, closes too."""
        asyncio.get_running_loop().call_soon(self.vanish)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self._lose, None)

    def abort(self) -> None:
        self.close()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = True
            self.connection.connection_lost(error)
