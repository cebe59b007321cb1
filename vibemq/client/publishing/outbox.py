"""Published, not yet confirmed: batches on their way, in order, within bounds. No sockets; the clock is an argument.

    add / put → open (per queue, still filling) → ready → sent → confirmed | refused | expired
                                                   ↑        │
                                                   └─ lost ─┘     a lost connection sends them again, in order

Everything that is published in one turn of the loop for one queue shares a batch, and so a frame, an answer and one
event that wakes every publisher of it. Frames of requests keep their place between the batches.
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from vibemq.client.failures import Failure, settled_failure
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX, Extra, encoded_size
from vibemq.client.waiting.latch import Latch
from vibemq.errors import VibeMQError
from vibemq.protocols.native.codec.extra_columns import encode_extras

FRAME_ROWS_MAX = 2_048
FRAME_BYTES_MAX = 256 * 1024
"""A frame is sealed at either bound: big enough to cost nothing per message, small enough to be pipelined."""
EXTRA_BYTES = 120
"""More than the longest entry of `extras` without its dedup id. A frame of rows that have no ids has room for all of
them, however they are told."""


class PublishBatch:
    """Rows of one queue that travel in one frame."""

    __slots__ = (
        "_common",
        "_common_count",
        "_exceptional",
        "_extras",
        "_refused",
        "_then",
        "count",
        "done",
        "duplicates",
        "failure",
        "first_sequence",
        "id",
        "own_dedup",
        "put_at",
        "queue",
        "rows",
        "sent_at",
        "size",
    )

    def __init__(self, queue: str) -> None:
        self.id = ""
        self.queue = queue
        self.rows: list[bytes] = []
        """Emptied once the batch is settled: a receipt must not keep its message alive."""
        self.count = 0
        self.size = 0
        self._common: Extra | None = None
        """The very object that the first rows came with, if none has come with another one."""
        self._common_count = 0
        self._extras: dict[int, Extra] = {}
        """By index, once they came with several ones."""
        self.own_dedup: set[int] = set()
        """Indexes whose dedup id we made up; they are no duplicates in the eyes of the publisher."""
        self.done = Latch()
        self.put_at: float | None = None
        """When it was first seen to wait, no sooner than it did, and none was confirmed since; None until then."""
        self.sent_at = 0.0
        self.first_sequence = 0
        self.duplicates: Mapping[int, int] = {}
        self.failure: Failure | None = None
        self._refused: Mapping[int, Failure] = {}
        self._exceptional: list[int] = []
        self._then: list[Callable[[], object]] = []

    def when_done(self, then: Callable[[], object]) -> None:
        """Have it called when `done` is set, or now."""
        if self.done.is_set():
            then()
        else:
            self._then.append(then)

    def offer(self, row: bytes, extra: Extra | None = None) -> bool:
        """Take one more row, whose index is the `count` before; False when the frame has no room for it."""
        size = self.size + len(row)
        if (size > FRAME_BYTES_MAX or self.count >= FRAME_ROWS_MAX) and self.count:
            return False
        self.rows.append(row)
        if extra is not None:
            size += self._tell(extra)
        self.size = size
        self.count += 1
        return True

    def count_rows(self, size: int) -> None:
        """Rows without extras were appended to `rows`, within the bounds of a frame; `size`: bytes of all by now, with
        what their extras need."""
        self.count = len(self.rows)
        self.size = size

    def _tell(self, extra: Extra) -> int:
        """The next row comes with it; the bytes that it needs beyond those of its row."""
        if extra is self._common and self.count == self._common_count:
            self._common_count += 1
            return 0
        has_id = "dedup_id" in extra
        if not self.count and not has_id:
            self._common, self._common_count = extra, 1
            return 0
        if self._common is not None:
            self._extras, self._common = self.extras, None
        self._extras[self.count] = extra
        return EXTRA_BYTES + 2 * encoded_size(str(extra["dedup_id"])) if has_id else 0

    @property
    def extras(self) -> dict[int, Extra]:
        """By index."""
        return self._extras if self._common is None else dict.fromkeys(range(self._common_count), self._common)

    def extra_columns(self) -> bytes | None:
        """The same by columns; None when these would not serve, or there are none."""
        common = self._common if self._common_count == self.count else None
        extras = self.extras if common is None else {}
        return encode_extras(self.count, extras, common) if extras or common else None

    @property
    def full(self) -> bool:
        return self.size >= FRAME_BYTES_MAX or self.count >= FRAME_ROWS_MAX

    def confirm(self, first_sequence: int, refused: Mapping[int, Failure], duplicates: Mapping[int, int]) -> None:
        self.first_sequence = first_sequence
        self.duplicates = duplicates
        self._refused = refused
        if refused or duplicates:
            self._exceptional = sorted({*refused, *duplicates})
        self._settle()

    def fail(self, failure: Failure) -> None:
        """None of it was accepted, or nobody knows."""
        self.failure = settled_failure(failure)
        self._settle()

    def sequence(self, index: int) -> int:
        """Of an accepted message, or of the one that it duplicates."""
        known = self.duplicates.get(index)
        return self.first_sequence + index - bisect_left(self._exceptional, index) if known is None else known

    def is_duplicate(self, index: int) -> bool:
        return index in self.duplicates and index not in self.own_dedup

    @property
    def refused(self) -> bool:
        """Whether any of it was not accepted."""
        return self.failure is not None or bool(self._refused)

    def refusal(self, index: int) -> VibeMQError | None:
        failure = self.failure or self._refused.get(index)
        return failure() if failure is not None else None

    def refusals(self, first: int = 0, count: int | None = None) -> Iterator[tuple[int, VibeMQError]]:
        """By index; only those of `count` rows from the `first` on."""
        end = self.count if count is None else first + count
        if self.failure is not None:
            error = self.failure()
            for index in range(first, end):
                yield index, error
            return
        exceptional = self._exceptional
        for index in exceptional[bisect_left(exceptional, first) : bisect_left(exceptional, end)]:
            failure = self._refused.get(index)
            if failure is not None:
                yield index, failure()

    def _settle(self) -> None:
        self.rows = []
        self._extras, self._common = {}, None
        self.done.set()
        for then in self._then:
            then()
        self._then.clear()


class _Waiter:
    """Somebody who waits for room."""

    __slots__ = ("came_at", "failure")

    def __init__(self) -> None:
        self.came_at: float | None = None
        """When it was first seen to wait."""
        self.failure: Failure | None = None
        """There will be no room in time."""


class Outbox:
    """All batches of one client.

    Args:
        messages_max, bytes_max: unconfirmed at a time; may be overshot by one frame.
    """

    def __init__(self, *, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._open: dict[str, PublishBatch] = {}
        self._ready: deque[PublishBatch | bytes] = deque()
        self._sent: dict[str, PublishBatch] = {}
        self._waiting: OrderedDict[_Waiter, Latch] = OrderedDict()
        """Who waits for room, in the order in which they came; each latch is set when it is worth another look."""
        self._size_left = 1
        """Bytes of one message, as they were in the batch that has left last."""
        self.messages = 0
        self.bytes = 0
        self.idle = Latch()
        """Set while nothing is unconfirmed."""
        self.idle.set()

    @property
    def full(self) -> bool:
        return self.messages >= self._messages_max or self.bytes >= self._bytes_max

    async def room(self) -> None:
        """Wait until more may be published. Of those who wait, whoever came first goes first.

        Raises:
            VibeMQError: see `expire_waiting`.
        """
        if not self.full:
            return
        waiter = _Waiter()
        try:
            while self.full and waiter.failure is None:
                turn = self._waiting[waiter] = Latch()
                await turn.wait()
        finally:
            del self._waiting[waiter]
            self._wake()
        if waiter.failure is not None:
            raise waiter.failure()

    def add(self, queue: str, row: bytes, extra: Extra | None, *, own_dedup: bool) -> tuple[PublishBatch, int]:
        """Put one row into the open batch of the queue; the batch and the row's place in it."""
        batch = self._open.get(queue)
        before = batch.size if batch is not None else 0
        if batch is None or not batch.offer(row, extra):
            if batch is not None:
                self._ready.append(batch)
                before = 0
            batch = self._open[queue] = PublishBatch(queue)
            batch.offer(row, extra)
        index = batch.count - 1
        if own_dedup:
            batch.own_dedup.add(index)
        self._added(1, batch.size - before)
        return batch, index

    def put(self, batch: PublishBatch) -> None:
        """Send a whole batch, behind what was added before."""
        earlier = self._open.pop(batch.queue, None)
        if earlier is not None:
            self._ready.append(earlier)
        self._ready.append(batch)
        self._added(batch.count, batch.size)

    def put_frame(self, frame: bytes) -> None:
        """Send a frame that belongs to this connection, behind what was added before."""
        self._seal()
        self._ready.append(frame)

    def take(self, now: float, bytes_max: int, new_id: Callable[[], str]) -> list[PublishBatch | bytes]:
        """Batches and frames to be sent now, at most about `bytes_max`; they count as sent. A large row is the last of
        them: nothing may come between its frame's head and itself."""
        if self._open:
            if len(self._open) == 1 and not self._ready:
                # One message at a time.
                _, batch = self._open.popitem()
                self._send(batch, now, new_id)
                return [batch]
            self._seal()
        taken: list[PublishBatch | bytes] = []
        size = 0
        while self._ready and size < bytes_max:
            item = self._ready.popleft()
            taken.append(item)
            if isinstance(item, bytes):
                size += len(item)
                continue
            self._send(item, now, new_id)
            size += item.size
            if item.size > ROW_BYTES_MAX:
                break
        return taken

    def _seal(self) -> None:
        self._ready.extend(self._open.values())
        self._open.clear()

    def _send(self, batch: PublishBatch, now: float, new_id: Callable[[], str]) -> None:
        batch.id = batch.id or new_id()
        batch.sent_at = now
        self._sent[batch.id] = batch

    @property
    def waiting(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._open or self._ready)

    def settled(self, batch_id: str) -> PublishBatch | None:
        """Take the batch that an answer is for out of the books; None when it has expired or is none of ours."""
        batch = self._sent.pop(batch_id, None)
        if batch is not None:
            self._gone(batch)
        return batch

    def postpone(self, seconds: float, now: float) -> None:
        """What is sent could not be answered for so long."""
        for batch in self._sent.values():
            batch.sent_at = min(batch.sent_at + seconds, now)

    def lost(self, now: float, *, confirmed: bool = False) -> None:
        """The connection is gone: what it had not confirmed goes to the front again, in order. `confirmed`: it has
        got something through, so that the waiting of the others begins anew."""
        self._seal()
        batches = [*self._sent.values(), *self._ready_batches()]
        for batch in batches:
            if confirmed or batch.put_at is None:
                batch.put_at = now
        self._ready = deque(batches)
        self._sent.clear()

    def _ready_batches(self) -> list[PublishBatch]:
        return [batch for batch in self._ready if not isinstance(batch, bytes)]

    def expire(self, sent_before: float, failure: Failure) -> int:
        """Fail what was sent before that instant and not answered; how many messages."""
        expired = [batch for batch in self._sent.values() if batch.sent_at < sent_before]
        for batch in expired:
            self.settled(batch.id)
            batch.fail(failure)
        return sum(batch.count for batch in expired)

    def expire_unsent(self, now: float, seconds: float, since: float, failure: Failure) -> None:
        """Without a connection: fail what has waited for more than so many seconds, what was before `since` not
        counted. To be called now and then: what has been put between two calls waits together."""
        self._seal()
        expired: list[PublishBatch] = []
        for batch in self._ready_batches():
            if batch.put_at is None:
                batch.put_at = now
            if now - max(batch.put_at, since) > seconds:
                expired.append(batch)
        if not expired:
            return
        gone = set(expired)
        self._ready = deque(item for item in self._ready if item not in gone)
        for batch in expired:
            self._gone(batch)
            batch.fail(failure)

    def expire_waiting(self, now: float, seconds: float, since: float, failure: Failure) -> None:
        """As `expire_unsent`, of those who wait for room. Called before it: what expires there makes room."""
        for waiter, turn in self._waiting.items():
            if waiter.came_at is None:
                waiter.came_at = now
            if now - max(waiter.came_at, since) > seconds:
                waiter.failure = failure
                turn.set()

    def fail_all(self, failure: Failure) -> None:
        """Nothing of it will be sent any more."""
        batches = [*self._sent.values(), *self._ready_batches(), *self._open.values()]
        self._sent.clear()
        self._ready.clear()
        self._open.clear()
        for batch in batches:
            self._gone(batch)
            batch.fail(failure)

    def _added(self, messages: int, size: int) -> None:
        if not self.messages:
            self.idle = Latch()
        self.messages += messages
        self.bytes += size

    def _gone(self, batch: PublishBatch) -> None:
        self.messages -= batch.count
        self.bytes -= batch.size
        if not self.messages:
            self.idle.set()
        self._size_left = batch.size // batch.count or 1
        self._wake()

    def _wake(self) -> None:
        """As many of those who wait as there is room for, if their messages are like those that have left: with all of
        them, the cost of very many publishes at a time would be that of every pair. Where it was too few, the last one
        of these has more woken."""
        if self.full or not self._waiting or next(iter(self._waiting.values())).is_set():
            return
        room = min(self._messages_max - self.messages, (self._bytes_max - self.bytes) // self._size_left)
        for turn in islice(self._waiting.values(), max(1, room)):
            turn.set()
