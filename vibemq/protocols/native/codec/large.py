"""A frame above the ordinary limit while it comes: one row, in memory that is taken as it arrives.

Such a frame is plain (never compressed) and carries a PublishMany or a DeliverMany of one row. Its fields are read as
soon as they are there; the row gathers where it will stay, so that it is copied once, in pieces of one read each.

The peers agree on its limit in Connect, with the header `max-body-bytes`.
"""

from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, Generic, TypeVar

from vibemq.errors import RemoteProtocolError
from vibemq.model.memory.fresh import fresh_memory
from vibemq.model.rows import LargeRow
from vibemq.protocols.native.codec.extensions import CutShort
from vibemq.protocols.native.codec.frames import (
    BODY_BYTES_MAX,
    BODY_BYTES_MIN,
    HEADER_SIZE,
    FrameTooLong,
    NativeFrameReader,
)

MAX_BODY_HEADER = "max-body-bytes"
FRAME_OVERHEAD_BYTES = 65_536
"""What a frame may have beside the largest payload: names, headers, extras."""
ROW_OVERHEAD_BYTES = 4_096
"""Of it, what a sender leaves to names and extras around a row."""
_HEAD_BYTES_MAX = 1 << 19
_GATHERED_BYTES = 1 << 20
"""Of a row, before memory is taken for the rest of it."""
_HEAD_PIECE = 4_096

FrameT = TypeVar("FrameT")
Begin = Callable[[bytes, int], tuple[FrameT, int]]
"""(beginning of a body, size of the body) -> the frame without its row, and where the row begins."""


def body_bytes_for(message_bytes: int) -> int:
    """The limit of a frame that carries a payload of so many bytes."""
    return message_bytes + FRAME_OVERHEAD_BYTES


def asked_body_bytes(headers: Mapping[str, str]) -> int:
    """What a peer says about the largest body that it takes; 0 when it says nothing that can be read."""
    text = headers.get(MAX_BODY_HEADER, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else 0


class LargeFrameReader(NativeFrameReader, Generic[FrameT]):
    """Of a client, which has agreed on larger frames.

    Args:
        beginners: of the frames that may be large.
    """

    def __init__(self, beginners: Mapping[int, Begin[FrameT]], join: Callable[[FrameT, LargeRow], object]) -> None:
        super().__init__()
        self._beginners = beginners
        self._join = join
        self._large: LargeFrame[FrameT] | None = None
        self.large_bytes_max = 0
        """Largest body that was agreed on."""

    @property
    def receives_large(self) -> bool:
        """Whether a large frame has come in part."""
        return self._large is not None

    def lone_body(self, data: bytes) -> bytes | None:
        """The body of the frame that the data is, which is what a quiet peer sends: one plain ordinary frame, behind
        nothing that is incomplete. None: it is something else, and nothing was taken."""
        size = len(data) - HEADER_SIZE
        if (
            BODY_BYTES_MIN <= size <= BODY_BYTES_MAX
            and not data[4]
            and int.from_bytes(data[:4], "big") == size
            and self._large is None
            and not self._buffer
        ):
            return data[HEADER_SIZE:]
        return None

    def frames(self) -> list[bytes | FrameT]:
        """As `bodies`; large ones are read already, and have their row."""
        found: list[bytes | FrameT] = []
        while True:
            if self._large is not None:
                data = self._buffer.take_all()
                at = self._large.feed(data, 0)
                if at < len(data):
                    self._buffer.put_back(data[at:])
                if self._large.left:
                    return found
                frame, row = self._large.finish()
                self._large = None
                self._join(frame, row)
                found.append(frame)
            try:
                bodies = self.bodies()
            except FrameTooLong as error:
                if error.size > self.large_bytes_max:
                    if found:
                        return found
                    raise
                if len(self._buffer) < HEADER_SIZE:
                    return found
                data = self._buffer.take_all()
                self._large = LargeFrame(error.size, data[4], self._beginners)
                self._buffer.put_back(data[HEADER_SIZE:])
                continue
            if not bodies:
                return found
            found += bodies


class LargeFrame(Generic[FrameT]):
    """Args:
    size: of the body.
    flag: of the frame.
    beginners: by type, how the beginning of a body is read.
    memory: what holds its part of a budget, for the row.
    """

    def __init__(self, size: int, flag: int, beginners: Mapping[int, Begin[FrameT]], memory: Any = None) -> None:
        if flag:
            raise RemoteProtocolError(
                f"a frame with a body of {size:,} B is compressed; bodies above the ordinary limit are sent plain"
            )
        self.size = size
        self._beginners = beginners
        self._memory = memory
        self._head = bytearray()
        self._wanted = 2
        """Bytes of the head without which it is not looked at again."""
        self._row = BytesIO()
        self._has_room = False
        """For all of the row: a length alone takes no memory."""
        self._begun: FrameT | None = None
        self.left = size
        """Bytes of the body that have not come."""

    def feed(self, data: bytes, at: int) -> int:
        """Take what belongs to the frame from `at` on; return where the rest begins.

        Raises:
            RemoteProtocolError: the frame is none that may be so large.
        """
        end = min(len(data), at + self.left)
        self.left -= end - at
        if self._begun is None:
            at = self._feed_head(data, at, end)
        if at < end:
            self._row.write(data if at == 0 and end == len(data) else memoryview(data)[at:end])
            if not self._has_room and self._row.tell() >= _GATHERED_BYTES:
                self._make_room()
        return end

    def _make_room(self) -> None:
        self._has_room = True
        gathered, self._row = self._row, fresh_memory(self.size)
        self._row.write(gathered.getbuffer())

    def _feed_head(self, data: bytes, at: int, end: int) -> int:
        """Read the fields before the row, once they are there; where the row goes on."""
        while at < end and self._begun is None:
            taken = min(end - at, _HEAD_PIECE)
            before = len(self._head)
            self._head += data[at : at + taken]
            at += taken
            row_at = self._begin()
            if row_at:
                # What was taken too much is of the row. A row begins at or before the end of the head's last piece.
                self._row.write(self._head[row_at:])
                self._head = bytearray()
            elif before > _HEAD_BYTES_MAX or (not self.left and at == end):
                raise RemoteProtocolError(
                    f"a body of {self.size:,} B has no row within its first {len(self._head):,} B"
                )
        return at

    def _begin(self) -> int:
        """Where the row begins; 0 when more of the head is needed."""
        if len(self._head) < self._wanted:
            return 0
        begin = self._beginners.get(self._head[1])
        if begin is None:
            raise RemoteProtocolError(
                f"a frame of type {self._head[1]} has a body of {self.size:,} B, above the ordinary limit; only one"
                " message in a PublishMany (60) or DeliverMany (62) may be so large"
            )
        try:
            self._begun, row_at = begin(bytes(self._head), self.size)
        except CutShort:
            # A long head is not read again for each of its pieces.
            self._wanted = 2 * len(self._head)
            return 0
        return row_at

    def finish(self) -> tuple[FrameT, LargeRow]:
        """The frame and its row, once `left` is 0."""
        assert self._begun is not None
        assert not self.left
        self._row.truncate()
        row = LargeRow(self._row.getvalue(), self._memory)
        self._memory = None
        return self._begun, row
