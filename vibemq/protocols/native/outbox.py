"""What one connection will send: frames in order, compressed as agreed."""

from collections import deque

from vibemq.errors import LocalProtocolError
from vibemq.model.rows import Rows
from vibemq.protocols.native.codec.compression import Compression, InflationCredit
from vibemq.protocols.native.codec.frames import DOTNET_INFLATED_BYTES_MAX, HEADER, encode_frame
from vibemq.protocols.native.codec.wire import VERSION, CommandType, str16

_EMPTY_REST = b"\0\0\0\0\0\0"
"""No payload, no headers."""
_MESSAGE_ID = str16("messageId")
_QUEUE_NAME = str16("queueName")


class FrameQueue:
    def __init__(self, *, body_bytes_max: int, threshold: int) -> None:
        self.body_bytes_max = body_bytes_max
        self.inflated_bytes_max: int | None = DOTNET_INFLATED_BYTES_MAX
        """None: the same."""
        self.compression = Compression.NONE
        self._threshold = threshold
        self._credit = InflationCredit()
        self._parts: list[bytes] = []
        self._before_rows: deque[tuple[list[bytes], Rows]] = deque()
        """Frames up to the head of a large one, and its row."""
        self._row: Rows | None = None

    def send(self, body: bytes) -> None:
        """Queue one body. Raises LocalProtocolError when it is larger than a peer accepts."""
        frame = encode_frame(
            body,
            self.compression,
            self._threshold,
            body_bytes_max=self.body_bytes_max,
            inflated_bytes_max=self.inflated_bytes_max,
            inflates=self._credit.take,
        )
        self._parts.append(frame)

    def send_frames(self, frames: bytes) -> None:
        """Queue finished frames, as they are."""
        self._parts.append(frames)

    def compresses(self, body_size: int) -> bool:
        """Whether a body of this size must go through `send` one by one."""
        return self.compression is not Compression.NONE and body_size >= self._threshold

    def send_large(self, head: bytes, row: Rows) -> None:
        """Queue a frame whose body is the head and the row, which is not copied."""
        self._parts.append(HEADER.pack(len(head) + row.size, Compression.NONE) + head)
        self._before_rows.append((self._parts, row))
        self._parts = []

    def take_row(self) -> Rows | None:
        """What follows the bytes that `take` has returned; then `take` goes on."""
        row, self._row = self._row, None
        return row

    def take(self) -> bytes:
        if self._before_rows:
            parts, self._row = self._before_rows.popleft()
            return b"".join(parts)
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __bool__(self) -> bool:
        return bool(self._parts or self._before_rows)


def send_publish_acks(outbox: FrameQueue, ids: list[bytes], queue_block: bytes, *, with_headers: bool) -> None:
    """Queue one PublishAck for each id (as str16 blocks). `with_headers` repeats id and queue as the seed's clients
    read them. Ids of one length, the rule, cost one join for all."""
    if not ids:
        return
    if len(set(map(len, ids))) > 1:
        for id_block in ids:
            send_publish_acks(outbox, [id_block], queue_block, with_headers=with_headers)
        return
    id_size = len(ids[0])
    start = bytes((VERSION, CommandType.PUBLISH_ACK))
    if with_headers:
        middle = queue_block + b"\0\0\0\0\0\x02" + _MESSAGE_ID
        tail = _QUEUE_NAME + queue_block
        size = 2 + 2 * id_size + len(middle) + len(tail)
    else:
        middle, tail = queue_block + _EMPTY_REST, b""
        size = 2 + id_size + len(middle)
    if size > outbox.body_bytes_max:
        raise LocalProtocolError(f"a PublishAck of {size:,} B does not fit into a frame")
    if outbox.compresses(size):
        for id_block in ids:
            outbox.send(
                b"".join((start, id_block, middle, id_block, tail) if with_headers else (start, id_block, middle))
            )
        return
    head = HEADER.pack(size, Compression.NONE) + start
    if with_headers:
        frames = b"".join([part for id_block in ids for part in (head, id_block, middle, id_block, tail)])
    else:
        frames = head + (middle + head).join(ids) + middle
    outbox.send_frames(frames)
