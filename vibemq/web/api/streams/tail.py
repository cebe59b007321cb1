"""New messages of one queue as they become readable: a few a second, and how many were left out. No group, no consumer
and no record: they are seen while they are written, and shown when readers by range could read them."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import orjson

from vibemq.errors import QueueNotFound
from vibemq.model.effects import QueueHead
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import RowView
from vibemq.operations.messages import part_json
from vibemq.web.api.instants import with_instants
from vibemq.web.api.streams.frames import frame
from vibemq.web.api.streams.stream import StreamOver

PER_SECOND_MAX = 50
BYTES_PER_SECOND = 262_144
FLUSHES_PER_SECOND = 5
PREVIEW_BYTES = 1_024
PREVIEW_BYTES_MAX = 4_096


class _Seen(NamedTuple):
    sequence: int
    record: MessagesAdded
    place: int
    """In the record."""


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
        tap: Callable[[int, Callable[[MessagesAdded], None]], Callable[[], None]],
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
        self._seen: deque[_Seen] = deque()
        """The newest that were not shown; the older ones were left out."""
        self._count = 0
        """Messages since the last frame."""
        self._next_at = 0.0
        self._end_tap = tap(first.queue_id, self._see)

    def _see(self, record: MessagesAdded) -> None:
        """Called for every batch that is published: costs the same however many messages it has."""
        count = record.rows.count
        self._count += count
        for index in range(max(0, count - self._at_once), count):
            self._seen.append(_Seen(record.first_sequence + index, record, index))
        while len(self._seen) > 2 * self._at_once:
            # Half of them may not be readable yet.
            self._seen.popleft()

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
        if not readable:
            return b""
        later = [seen for seen in self._seen if seen.sequence >= tail]
        messages: list[orjson.Fragment] = []
        left = int(BYTES_PER_SECOND * self._pause_s)
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
        return frame("messages", orjson.dumps({"messages": messages, "skipped": skipped}))

    def _shown(self, seen: _Seen) -> dict[str, Any]:
        rows = seen.record.rows
        view = RowView(rows.slice(seen.place, seen.place + 1).data)
        size = view.payload_size
        extra = (seen.record.extras or {}).get(seen.place)
        told: dict[str, Any] = {
            "sequence": seen.sequence,
            "id": view.message_id,
            "published_at": seen.record.published_at,
            "deliver_at": (extra.deliver_at or None) if extra is not None else None,
            "payload_size": size,
        }
        if self._hidden():
            return told | {"headers": dict.fromkeys(view.headers)}
        part = view.payload_part(0, self._preview_bytes)
        return told | {"headers": view.headers} | part_json(part, 0, whole=len(part) == size)

    def close(self) -> None:
        self._end_tap()
        self._seen.clear()
