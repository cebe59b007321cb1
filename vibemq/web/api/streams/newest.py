"""The newest messages of the queues that have live tails: noted once for a queue, however many tails it has."""

from collections.abc import Callable, Iterator
from struct import Struct
from typing import NamedTuple

from vibemq.model.records import MessagesAdded, StageMoved

OF_RECORD = 10
"""Messages that are kept of each record: as many as a frame can show."""
PART_BYTES = 4_096
"""Of each payload."""
HEADERS_BYTES = 262_144
RECORD_BYTES = 49_152
"""Of what is kept of a record, beside its newest message."""
SMALL_BYTES = 4_096
"""A record whose rows are larger is cut at once, and let go of."""
KEPT_BYTES = 262_144
"""Of each queue, beside its newest message."""
INSTANT_MS = 16
_MESSAGE_BYTES = 256
"""Beside what it consists of."""
_U16, _U32 = Struct("!H"), Struct("!I")

Seen = Callable[[MessagesAdded | StageMoved], None]
Tap = Callable[[int, Seen], Callable[[], None]]


class SeenMessage(NamedTuple):
    """What may be shown of a message."""

    sequence: int
    message_id: bytes
    published_at: int
    deliver_at: int
    payload_size: int
    part: bytes
    """The payload's begin."""
    headers: bytes | None
    """Their block; None: it is too large."""

    @property
    def size(self) -> int:
        return _MESSAGE_BYTES + len(self.message_id) + len(self.part) + len(self.headers or b"")


class _Added:
    """What was published at once: messages [first, first + count), the last of which is number `end` of all that were
    noted: there were `before` of them."""

    __slots__ = ("_messages", "_record", "count", "end", "first", "instant", "size")

    def __init__(self, record: MessagesAdded | StageMoved, before: int) -> None:
        self.first = record.first_sequence
        self.count = record.count if isinstance(record, StageMoved) else record.rows.count
        self.end = before + self.count
        self.instant = record.published_at // INSTANT_MS
        self.size = _MESSAGE_BYTES
        self._record: MessagesAdded | None = None
        self._messages: list[SeenMessage] = []
        if isinstance(record, StageMoved):
            # Its rows are not at hand.
            return
        size = len(record.rows.data)
        if size <= SMALL_BYTES:
            self._record = record
            self.size += min(self.count, OF_RECORD) * _MESSAGE_BYTES + size
        else:
            self._keep(_cut(record))

    def newest_first(self) -> list[SeenMessage]:
        if self._record is not None:
            self._messages, self._record = _cut(self._record), None
        return self._messages

    def shorten(self) -> None:
        """To the newest message."""
        self._keep(self.newest_first()[:1])

    def _keep(self, messages: list[SeenMessage]) -> None:
        self._messages = messages
        self.size = _MESSAGE_BYTES + sum(message.size for message in messages)


class NewestMessages:
    """Of one queue, since its first tail was opened. They are appended; it may be that they cannot be read yet."""

    def __init__(self) -> None:
        self.broken = False
        """Not all were noted."""
        self.count = 0
        """Messages that were noted."""
        self._kept: list[_Added] = []
        """Ascending. Some of those before the newest were left out."""
        self._bytes = 0

    def note(self, record: MessagesAdded | StageMoved) -> None:
        """Called for every record of the queue: costs the same however many messages and tails there are."""
        added = _Added(record, self.count)
        self.count = added.end
        self._kept.append(added)
        self._bytes += added.size
        if self._bytes > KEPT_BYTES:
            self._thin_out()

    def _thin_out(self) -> None:
        """To half of the bytes. Half of that is for the newest; of those before, one message of each instant is kept:
        so there are some that can be read, however much is appended before the next of them can be."""
        first, size = len(self._kept) - 1, self._kept[-1].size
        while first and size + self._kept[first - 1].size <= KEPT_BYTES // 4:
            first -= 1
            size += self._kept[first].size
        older: list[_Added] = []
        for added in reversed(self._kept[:first]):
            if older and older[-1].instant == added.instant:
                continue
            added.shorten()
            if size + added.size > KEPT_BYTES // 2:
                break
            older.append(added)
            size += added.size
        self._kept, self._bytes = older[::-1] + self._kept[first:], size

    def readable(self, tail: int) -> int:
        """How many of those that were noted lie before the sequence `tail`."""
        count = self.count
        for added in reversed(self._kept):
            unreadable = added.first + added.count - tail
            if unreadable <= 0:
                # Of those that were left out behind it, as many can be read as there are numbers before the tail.
                return max(added.end, count)
            count = added.end - unreadable
        return max(0, count)

    def between(self, told: int, tail: int) -> Iterator[SeenMessage]:
        """Newest first: those that were noted after the first `told`, and lie before the sequence `tail`. Some are
        left out."""
        for added in reversed(self._kept):
            if added.end <= told:
                return
            if added.first >= tail:
                continue
            after = added.first + added.count - (added.end - told)
            yield from (message for message in added.newest_first() if after <= message.sequence < tail)


class _TailedQueue:
    __slots__ = ("newest", "tails")

    def __init__(self) -> None:
        self.newest = NewestMessages()
        self.tails = 0

    def seen(self, record: MessagesAdded | StageMoved) -> None:
        try:
            self.newest.note(record)
        except Exception:
            self.newest.broken = True
            raise


class TailedQueues:
    """Which queues have tails."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._by_queue: dict[int, tuple[_TailedQueue, Callable[[], None]]] = {}
        """With what ends its tap."""

    def enter(self, queue_id: int) -> NewestMessages:
        if queue_id not in self._by_queue:
            queue = _TailedQueue()
            self._by_queue[queue_id] = queue, self._tap(queue_id, queue.seen)
        queue, _ = self._by_queue[queue_id]
        queue.tails += 1
        return queue.newest

    def leave(self, queue_id: int) -> None:
        """Once for each time that it was entered."""
        queue, end_tap = self._by_queue[queue_id]
        queue.tails -= 1
        if not queue.tails:
            del self._by_queue[queue_id]
            end_tap()


def _cut(record: MessagesAdded) -> list[SeenMessage]:
    """The newest first, as many as are kept."""
    rows = record.rows
    found: list[SeenMessage] = []
    end, left = len(rows.data), RECORD_BYTES
    for index in range(rows.count - 1, max(0, rows.count - OF_RECORD) - 1, -1):
        begin = end - _U32.unpack_from(rows.lengths, 4 * index)[0]
        found.append(_message(record, index, begin, end))
        end, left = begin, left - found[-1].size
        if left < 0:
            break
    return found


def _message(record: MessagesAdded, index: int, begin: int, end: int) -> SeenMessage:
    """Of the row that stands there in the record's."""
    data = record.rows.data
    payload = begin + 6 + _U16.unpack_from(data, begin)[0]
    size = _U32.unpack_from(data, payload - 4)[0]
    headers = payload + size
    extra = (record.extras or {}).get(index)
    return SeenMessage(
        record.first_sequence + index,
        data[begin + 2 : payload - 4],
        record.published_at,
        extra.deliver_at if extra is not None else 0,
        size,
        data[payload : min(payload + PART_BYTES, headers)],
        data[headers:end] if end - headers <= HEADERS_BYTES else None,
    )
