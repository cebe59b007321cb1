"""Frames of EventMesh over TCP: bytes in, frames out. No sockets, no clock.

    magic    `WEMQ` or `EventMesh`
    version  `0000`
    total    u32 BE   what it counts is the dialect's
    header   u32 BE   H
    header   H bytes, JSON
    body     the rest

    dialect  magic      total       body
    wemq     WEMQ       8 + H + B   total - 8 - H
    em8      EventMesh  8 + H + B   total - 8 - H
    em13     EventMesh  13 + H + B  total - 13 - H

Source: docs/spec/eventmesh.md, "Frames".
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import orjson

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.protocols.eventmesh.messages.large_json import has_many_lists
from vibemq.protocols.pieces import keep_piece

_VERSION = b"0000"
_SIZES = struct.Struct("!II")
LARGE_FRAME_BYTES = 1 << 20
"""Who sends a larger one piece by piece has the broker keep it, which is counted."""


def _any_memory(size: int) -> Any:
    return size


class EventMeshDialect(Enum):
    """(magic and version, what the total length counts beside header and body, the largest body that clients read)"""

    WEMQ = (b"WEMQ0000", 8, 3 << 20)
    EM8 = (b"EventMesh0000", 8, (4 << 20) - 4_096)
    EM13 = (b"EventMesh0000", 13, (4 << 20) - 4_096)

    def __init__(self, start: bytes, counted: int, body_bytes_max: int) -> None:
        # Attributes of their own: `value` of a member costs a call, and every frame asks for them.
        self.start = start
        self.counted = counted
        self.body_bytes_max = body_bytes_max

    def readable(self, body: bytes) -> bytes:
        """The body, if a client reads it: at a larger frame it ends its connection. Raises InvalidMessage."""
        if len(body) > self.body_bytes_max:
            raise InvalidMessage(f"its JSON has {len(body):,} bytes; clients read at most {self.body_bytes_max:,}")
        return body


class EventMeshFrame(NamedTuple):
    header: bytes
    body: bytes
    """Empty where it is absent."""


def encode_frame(dialect: EventMeshDialect, header: bytes, body: bytes = b"") -> bytes:
    size = len(header)
    return b"%b%b%b%b" % (dialect.start, _SIZES.pack(dialect.counted + size + len(body), size), header, body)


@dataclass(frozen=True, slots=True)
class FrameLimits:
    total_max: int
    """Of the field of the total length."""
    header_bytes_max: int


class EventMeshFrameReader:
    """Cuts a stream into frames. The first one decides the dialect, for ever."""

    def __init__(self, limits: FrameLimits, reserve_memory: Callable[[int], Any] = _any_memory) -> None:
        """`reserve_memory`: (bytes of a large frame) -> what holds the memory for it; None: not now."""
        self.limits = limits
        """May be exchanged between frames."""
        self._reserve_memory = reserve_memory
        self._memory: Any = None
        """For the large frame that comes."""
        self.waits_for_memory = False
        """A large frame has begun, and there is no memory for it: nothing is read until there is."""
        self.dialect: EventMeshDialect | None = None
        self._data = b""
        self._at = 0
        self._more: list[bytes | bytearray] = []
        self._size = 0
        """Bytes that are not cut yet."""
        self._needed = 4
        """As many of them are known to be needed before anything can be told."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return self._size

    @property
    def ready(self) -> bool:
        """Whether there may be a frame, or a fault."""
        return self._size >= self._needed and not self.waits_for_memory

    @property
    def large_left(self) -> int:
        """Bytes of a large frame that have not come; 0: none has begun, or it waits for memory."""
        return 0 if self._memory is None else max(0, self._needed - self._size)

    def receive_data(self, data: bytes) -> None:
        keep_piece(self._more, data)
        self._size += len(data)

    def end(self) -> None:
        """Nothing is read any more: let go of what has come, and of the memory for the rest."""
        self._memory, self._data, self._at, self._size = None, b"", 0, 0
        self._more.clear()
        self.waits_for_memory = False

    def next_frame(self) -> EventMeshFrame | None:
        """The next frame, or None: more bytes are needed.

        Raises:
            RemoteProtocolError: this is no frame, or one beyond a limit.
        """
        if self._size < self._needed:
            return None
        if self._more:
            self._data = b"".join((self._data[self._at :], *self._more))
            self._at = 0
            self._more.clear()
        if self.dialect is None:
            self.dialect = self._recognized()
            if self.dialect is None:
                return None
        return self._cut(self.dialect)

    def _cut(self, dialect: EventMeshDialect) -> EventMeshFrame | None:
        start, counted = dialect.start, dialect.counted
        data, at = self._data, self._at
        sizes_at = at + len(start)
        if self._size < len(start) + 8:
            self._check_start(start)
            # A wrong byte is told as soon as it has come.
            self._needed = self._size + 1
            return None
        if not data.startswith(start, at):
            self._check_start(start)
        total, header_size = _SIZES.unpack_from(data, sizes_at)
        if total > self.limits.total_max or header_size > self.limits.header_bytes_max or not header_size:
            self._refuse(total, header_size)
        if counted + header_size > total:
            raise RemoteProtocolError(f"a frame says {total} bytes in all, and a header of {header_size}")
        end = sizes_at + 8 + total - counted
        if end > len(data):
            if end - at > LARGE_FRAME_BYTES and self._memory is None:
                self._memory = self._reserve_memory(end - at)
                self.waits_for_memory = self._memory is None
                if self.waits_for_memory:
                    return None
            self._needed = end - at
            return None
        self._memory, self.waits_for_memory = None, False
        header_at = sizes_at + 8
        body_at = header_at + header_size
        self._at = end
        self._size -= end - at
        self._needed = 1
        return EventMeshFrame(data[header_at:body_at], data[body_at:end])

    def _check_start(self, start: bytes) -> None:
        found = self._data[self._at : self._at + len(start)]
        if not start.startswith(found):
            raise RemoteProtocolError(f"a frame begins with {start.decode()}, not with {_shown(found)}")

    def _refuse(self, total: int, header_size: int) -> None:
        limits = self.limits
        if not header_size:
            raise RemoteProtocolError("a frame needs a header, and has none")
        if total > limits.total_max:
            raise RemoteProtocolError(f"a frame of {total:,} bytes; at most {limits.total_max:,} are allowed")
        raise RemoteProtocolError(f"a header of {header_size:,} bytes; at most {limits.header_bytes_max:,} are allowed")

    def _recognized(self) -> EventMeshDialect | None:
        """The dialect of the first frame; None: more bytes are needed."""
        data = self._data
        if data[:4] == EventMeshDialect.WEMQ.start[:4]:
            return EventMeshDialect.WEMQ
        start = EventMeshDialect.EM8.start
        self._check_start(start)
        if len(data) < len(start) + 8:
            self._needed = self._size + 1
            return None
        total, header_size = _SIZES.unpack_from(data, len(start))
        if total > self.limits.total_max or header_size > self.limits.header_bytes_max or not header_size:
            self._refuse(total, header_size)
        body_size = total - EventMeshDialect.EM13.counted - header_size
        if body_size < 0:
            return EventMeshDialect.EM8
        body_at = len(start) + 8 + header_size
        if len(data) < body_at + body_size:
            self._needed = body_at + body_size
            return None
        # What is cut off of a JSON object is none: five bytes are missing where the total leaves version and magic out.
        return EventMeshDialect.EM13 if _is_json(data[body_at : body_at + body_size]) else EventMeshDialect.EM8


def _is_json(body: bytes) -> bool:
    if not body:
        return True
    if has_many_lists(body):
        return False
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return True


def _shown(data: bytes) -> str:
    return repr(data[:16].decode("latin-1"))
