"""A TCP proxy with weather: late, thin, sliced, stalled, cut and changed bytes between clients and a broker.

Weather may change at any time and then holds for what is on its way, too. As with real networks, a stalled stream
loses nothing: its bytes come later, or the stream is reset and they never come. Only `corrupt` changes bytes, which
TCP's own checksum makes rare in earnest.
"""

import asyncio
import random
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

PIECE_BYTES = 65_536
_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time; closing then resets the stream."""

Side = Literal["up", "down"]
"""up: from the client to the broker."""


@dataclass(frozen=True, slots=True)
class Weather:
    delay_s: float = 0.0
    jitter_s: float = 0.0
    bytes_per_s: float = 0.0
    """0 = any number."""
    slice_max: int = 0
    """Bytes per write, chosen anew from 1 to this; 0 = as they come."""
    stalled: bool = False
    """Nothing gets through, and nobody is told."""
    corrupt: float = 0.0
    """How likely a piece has one byte changed."""
    refusing: bool = False
    """New connections are hung up on."""


CALM = Weather()


class ChaosProxy:
    """Use as an asynchronous context manager; clients connect to `port`.

    Args:
        upstream: port of the broker at this moment (it may be restarted).
        rng: all chance comes from here.
    """

    def __init__(self, upstream: Callable[[], int], rng: random.Random) -> None:
        self._upstream = upstream
        self._rng = rng
        self._weather = CALM
        self._changed = asyncio.Event()
        self._links: set[_Link] = set()
        self._server: asyncio.Server | None = None
        self.port = 0
        self.held = 0
        """Streams and new connections that wait for the end of a stall."""
        self.corrupted = 0
        """Bytes changed so far."""
        self.carried = 0

    async def __aenter__(self) -> "ChaosProxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=PIECE_BYTES)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        self.weather = CALM
        self.reset_all()
        await asyncio.sleep(0)

    @property
    def weather(self) -> Weather:
        return self._weather

    @weather.setter
    def weather(self, weather: Weather) -> None:
        self._weather = weather
        self._changed.set()
        self._changed = asyncio.Event()

    def reset_all(self) -> None:
        """Both ends of every stream get a reset; what was on its way is gone."""
        for link in list(self._links):
            link.reset()

    def half_close_all(self, side: Side) -> None:
        """One direction of every stream ends, in good order; the other goes on."""
        for link in self._links:
            link.half_close(side)

    async def until_lifted(self) -> None:
        """Return once nothing is stalled."""
        self.held += 1
        try:
            while self._weather.stalled:
                await self._changed.wait()
        finally:
            self.held -= 1

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            await link.run()
        finally:
            self._links.discard(link)

    def corrupt(self, data: bytes) -> bytes:
        if not data or self._rng.random() >= self._weather.corrupt:
            return data
        at = self._rng.randrange(len(data))
        self.corrupted += 1
        return data[:at] + bytes((data[at] ^ (1 << self._rng.randrange(8)),)) + data[at + 1 :]

    def pieces(self, data: bytes) -> list[bytes]:
        most = self._weather.slice_max
        pieces = []
        while most and data:
            size = self._rng.randint(1, most)
            pieces.append(data[:size])
            data = data[size:]
        return [*pieces, data] if data else pieces

    def delay_s(self, size: int) -> float:
        weather = self._weather
        thin = size / weather.bytes_per_s if weather.bytes_per_s else 0.0
        return weather.delay_s + self._rng.uniform(0, weather.jitter_s) + thin

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        await self.until_lifted()
        if self._weather.refusing:
            raise ConnectionRefusedError
        return await asyncio.open_connection("127.0.0.1", self._upstream(), limit=PIECE_BYTES)


class _Link:
    """One client's connection and ours to the broker."""

    def __init__(self, proxy: ChaosProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = (reader, writer)
        self._broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._pumps: dict[Side, asyncio.Task[None]] = {}

    async def run(self) -> None:
        try:
            self._broker = await self._proxy.dial()
        except OSError:
            self.reset()
            return
        reader, writer = self._client
        self._pumps = {
            "up": asyncio.ensure_future(self._pump(reader, self._broker[1])),
            "down": asyncio.ensure_future(self._pump(self._broker[0], writer)),
        }
        await asyncio.wait(self._pumps.values())
        self.reset()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        proxy = self._proxy
        try:
            while data := await reader.read(PIECE_BYTES):
                for piece in proxy.pieces(proxy.corrupt(data)):
                    await asyncio.sleep(proxy.delay_s(len(piece)))
                    await proxy.until_lifted()
                    writer.write(piece)
                    await writer.drain()
                    proxy.carried += len(piece)
            await proxy.until_lifted()
            writer.write_eof()
        except (OSError, RuntimeError):
            self.reset()

    def half_close(self, side: Side) -> None:
        pump = self._pumps.get(side)
        if self._broker is None or pump is None or pump.done():
            return
        pump.cancel()
        writer = self._broker[1] if side == "up" else self._client[1]
        try:
            writer.write_eof()
        except (OSError, RuntimeError):
            self.reset()

    def reset(self) -> None:
        for pump in self._pumps.values():
            pump.cancel()
        for _, writer in (self._client, *([self._broker] if self._broker else [])):
            peer = writer.get_extra_info("socket")
            try:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            except OSError:
                pass  # it is closed already
            writer.transport.abort()
