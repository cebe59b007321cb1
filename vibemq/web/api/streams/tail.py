"""New messages of one queue as they become readable: a few a second, and how many were left out. No group, no consumer
and no record: they are seen while they are written, and shown when readers by range could read them."""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple

import orjson

from vibemq.errors import QueueNotFound
from vibemq.model.effects import QueueHead
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.rows import header_pairs
from vibemq.operations.messages import part_json
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.streams.frames import frame
from vibemq.web.api.streams.stream import StreamOver

PER_SECOND_MAX = 50
BYTES_PER_SECOND = 262_144
FLUSHES_PER_SECOND = 5
PREVIEW_BYTES = 1_024
PREVIEW_BYTES_MAX = 4_096
SEEN_BYTES = 256
"""Of a message that waits to be shown, beside what it consists of."""
_U16, _U32 = Struct("!H"), Struct("!I")


class _Seen(NamedTuple):
    """What may be shown of a message. The message itself may be very large, and is let go of."""

    sequence: int
    message_id: bytes
    published_at: int
    deliver_at: int
    payload_size: int
    part: bytes | None
    """The payload's begin; None: it is hidden."""
    headers: bytes | None
    """Their block; None: it is larger than a frame."""

    @property
    def size(self) -> int:
        return SEEN_BYTES + len(self.message_id) + len(self.part or b"") + len(self.headers or b"")


class TailReader:
    """Args:
    head: says which queue it is, and where what can be read ends.
    tap: has new records shown, until what it returns is called.
    per_second: most messages.
    hidden: whether nothing of what is in messages is shown, asked for each one.
    """

    def __init__(
        self,
        queue: str,
        head: Callable[[str], QueueHead],
        tap: Callable[[int, Callable[[MessagesAdded | StageMoved], None]], Callable[[], None]],
        *,
        per_second: int,
        preview_bytes: int,
        hidden: Callable[[], bool],
    ) -> None:
        self._queue = queue
        self._head = head
        first = head(queue)
        self._queue_id = first.queue_id
        self._preview_bytes = preview_bytes
        self._hidden = hidden
        self._at_once = max(1, per_second // FLUSHES_PER_SECOND)
        self._pause_s = self._at_once / per_second
        self._frame_bytes = int(BYTES_PER_SECOND * self._pause_s)
        self._seen: deque[_Seen] = deque()
        """The newest that were not shown, at most two frames of them; the older ones were left out."""
        self._seen_bytes = 0
        self._count = 0
        """Messages since the last frame."""
        self._moved_to = 0
        """The last message that came with a committed stage. Of those only the number is told: their rows are not at
        hand."""
        self._next_at = 0.0
        self._end_tap = tap(first.queue_id, self._see)

    def _see(self, record: MessagesAdded | StageMoved) -> None:
        """Called for every batch that is published: costs the same however many messages it has."""
        if isinstance(record, StageMoved):
            self._count += record.count
            self._moved_to = record.last_sequence
            return
        rows = record.rows
        self._count += rows.count
        newest: list[_Seen] = []
        end, left = len(rows.data), 2 * self._frame_bytes
        for index in range(rows.count - 1, max(0, rows.count - self._at_once) - 1, -1):
            begin = end - _U32.unpack_from(rows.lengths, 4 * index)[0]
            newest.append(self._part_of(record, index, begin, end))
            end, left = begin, left - newest[-1].size
            if left < 0:
                break
        self._seen.extend(reversed(newest))
        self._seen_bytes += sum(seen.size for seen in newest)
        # Half of them may not be readable yet.
        while len(self._seen) > 2 * self._at_once or (self._seen_bytes > 2 * self._frame_bytes and len(self._seen) > 1):
            self._seen_bytes -= self._seen.popleft().size

    def _part_of(self, record: MessagesAdded, index: int, begin: int, end: int) -> _Seen:
        """Of the row that stands there in the record's."""
        data = record.rows.data
        payload = begin + 6 + _U16.unpack_from(data, begin)[0]
        size = _U32.unpack_from(data, payload - 4)[0]
        headers = payload + size
        extra = (record.extras or {}).get(index)
        return _Seen(
            record.first_sequence + index,
            data[begin + 2 : payload - 4],
            record.published_at,
            extra.deliver_at if extra is not None else 0,
            size,
            None if self._hidden() else data[payload : min(payload + self._preview_bytes, headers)],
            data[headers:end] if end - headers <= self._frame_bytes else None,
        )

    async def take(self, seconds: float) -> bytes:
        """See `vibemq.web.api.streams.stream.StreamSource`."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, min(seconds, self._next_at - loop.time())))
        if loop.time() < self._next_at:
            return b""
        self._next_at = loop.time() + self._pause_s
        try:
            head = self._head(self._queue)
        except QueueNotFound:
            raise StreamOver("the queue was deleted") from None
        if head.queue_id != self._queue_id:
            raise StreamOver("the queue was deleted and made anew")
        return self._frame(head.tail) if self._count else b""

    def _frame(self, tail: int) -> bytes:
        readable = [seen for seen in self._seen if seen.sequence < tail]
        if not readable and not 0 < self._moved_to < tail:
            return b""
        if self._moved_to < tail:
            self._moved_to = 0
        later = [seen for seen in self._seen if seen.sequence >= tail]
        messages: list[orjson.Fragment] = []
        left = self._frame_bytes
        for seen in reversed(readable[-self._at_once :]):
            shown = orjson.dumps(with_instants(self._shown(seen)))
            if len(shown) > left and messages:
                break
            if len(shown) > left:
                shown = orjson.dumps(with_instants(self._shown(seen) | {"headers": None}))
            left -= len(shown)
            messages.insert(0, orjson.Fragment(shown))
        # What was written and is not readable yet is told of with the next frame.
        waiting = min(self._count, len(later))
        skipped = self._count - waiting - len(messages)
        self._count = waiting
        self._seen = deque(later)
        self._seen_bytes = sum(seen.size for seen in later)
        return frame("messages", orjson.dumps({"messages": messages, "skipped": skipped}))

    def _shown(self, seen: _Seen) -> dict[str, Any]:
        headers = None if seen.headers is None else dict(header_pairs(seen.headers, 0))
        told: dict[str, Any] = {
            "sequence": seen.sequence,
            "id": seen.message_id.decode(errors="replace"),
            "published_at": seen.published_at,
            "deliver_at": seen.deliver_at or None,
            "payload_size": seen.payload_size,
        }
        if seen.part is None or self._hidden():
            return told | {"headers": None if headers is None else dict.fromkeys(headers)}
        return told | {"headers": headers} | part_json(seen.part, 0, whole=len(seen.part) == seen.payload_size)

    def close(self) -> None:
        self._end_tap()
        self._seen.clear()
