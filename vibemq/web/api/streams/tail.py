"""New messages of one queue as they become readable: a few a second, and how many were left out. No group, no consumer
and no record: they are noted when they are appended, and shown when readers by range could read them."""

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import Any

import orjson

from vibemq.errors import QueueNotFound
from vibemq.model.effects import QueueHead
from vibemq.model.rows import header_pairs
from vibemq.operations.messages import part_json
from vibemq.operations.reading.instants import with_instants
from vibemq.web.api.streams.frames import frame
from vibemq.web.api.streams.newest import PART_BYTES, SeenMessage, TailedQueues
from vibemq.web.api.streams.stream import StreamOver

PER_SECOND_MAX = 50
BYTES_PER_SECOND = 262_144
FLUSHES_PER_SECOND = 5
PREVIEW_BYTES = 1_024
PREVIEW_BYTES_MAX = PART_BYTES


class TailReader:
    """Args:
    head: says which queue it is, and where what can be read ends.
    per_second: most messages.
    hidden: whether nothing of what is in messages is shown, asked for each one.
    """

    def __init__(
        self,
        queue: str,
        head: Callable[[str], QueueHead],
        tailed: TailedQueues,
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
        self._next_at = 0.0
        self._tailed = tailed
        self._newest = tailed.enter(self._queue_id)
        self._told = self._newest.readable(first.tail)
        """How many of the noted ones were shown or counted, or could be read before this tail was opened."""

    async def take(self, seconds: float) -> bytes:
        """See `vibemq.web.api.streams.stream.StreamSource`."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, min(seconds, self._next_at - loop.time())))
        if loop.time() < self._next_at:
            return b""
        self._next_at = loop.time() + self._pause_s
        if self._newest.broken:
            raise StreamOver("new messages could not be looked at; the broker's log has the reason")
        try:
            head = self._head(self._queue)
        except QueueNotFound:
            raise StreamOver("the queue was deleted") from None
        if head.queue_id != self._queue_id:
            raise StreamOver("the queue was deleted and made anew")
        return self._frame(head.tail) if self._newest.count > self._told else b""

    def _frame(self, tail: int) -> bytes:
        readable = self._newest.readable(tail)
        if readable <= self._told:
            return b""
        messages: list[orjson.Fragment] = []
        left = self._frame_bytes
        for message in islice(self._newest.between(self._told, tail), self._at_once):
            shown = orjson.dumps(with_instants(self._shown(message)))
            if len(shown) > left and messages:
                break
            if len(shown) > left:
                shown = orjson.dumps(with_instants(self._shown(message) | {"headers": None}))
            left -= len(shown)
            messages.append(orjson.Fragment(shown))
        skipped = readable - self._told - len(messages)
        self._told = readable
        return frame("messages", orjson.dumps({"messages": messages[::-1], "skipped": skipped}))

    def _shown(self, message: SeenMessage) -> dict[str, Any]:
        headers = None
        # Those that a frame has no room for are left out.
        if message.headers is not None and len(message.headers) <= self._frame_bytes:
            headers = dict(header_pairs(message.headers, 0))
        told: dict[str, Any] = {
            "sequence": message.sequence,
            "id": message.message_id.decode(errors="replace"),
            "published_at": message.published_at,
            "deliver_at": message.deliver_at or None,
            "payload_size": message.payload_size,
        }
        if self._hidden():
            return told | {"headers": None if headers is None else dict.fromkeys(headers)}
        part = message.part[: self._preview_bytes]
        return told | {"headers": headers} | part_json(part, 0, whole=len(part) == message.payload_size)

    def close(self) -> None:
        self._tailed.leave(self._queue_id)
