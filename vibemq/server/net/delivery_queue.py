"""Deliveries of one connection that its socket has no room for yet: sequences, not bodies.

Rows are read from storage only when the socket can take them, so a slow reader costs a few numbers. Messages far apart
from each other, as those that fall due, are read many at a time in a thread; what is handed out meanwhile is gathered
for the next time. Replies do not
wait here, except the two that promise "no delivery after this": the answer to an Unsubscribe and a ConsumerEnded.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from vibemq.model.effects import Deliver, Effect
from vibemq.model.rows import LargeRow
from vibemq.model.runs import Run, run_count
from vibemq.protocols.session import Session
from vibemq.server.commit.message_memory import MemoryShare
from vibemq.server.commit.release_order import told_to_nobody
from vibemq.server.commit.storage_threads import Store
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.reading import Piece, leading, read_piece

READ_BYTES = 262_144
SLICES_AT_ONCE = 256
"""Each costs something of its own to read and to encode: in one turn of the loop no more of them than about this."""
STRETCH_SLICES = 8
"""A read costs as much as so many slices, however little it brings."""
RUNS_AT_ONCE = 256
SCATTERED_RUNS = 16
"""So many runs of hardly more messages are read together, by the blocks in which they stand, and not one by one."""
SCATTERED_ROWS_PER_RUN = 4
SCATTERED_RUNS_MAX = 2048
"""The more are read together, the more of them stand in one block."""
SCATTERED_BYTES_LEAST = 1 << 16
"""Of fewer, the blocks would be read for hardly anything."""
_ROW_BYTES_GUESSED = 256


class DeliveryQueue:
    """Reads and encodes deliveries in order.

    Args:
        delivered: called with each piece that was encoded, its delivery, and the runs of it that are done with.
        damaged: called with sequences whose stored bytes are broken; they were not encoded.
        wake: called when a piece has come from the storage thread and `pump` should go on.
        failed: called with whatever a read raises apart from damage.
    """

    def __init__(
        self,
        session: Session,
        store: Store,
        *,
        delivered: Callable[[Deliver, Piece, list[Run]], None],
        damaged: Callable[[Deliver, Piece], None],
        wake: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._memory = store.memory
        self._waits_for_memory = False
        self._session = session
        self._store = store
        self._delivered = delivered
        self._damaged = damaged
        self._wake = wake
        self._failed = failed
        self._items: deque[Deliver | Effect] = deque()
        self._rest: list[Run] | None = None
        """Of the first item, when it has been read in part."""
        self._in_steps = session.deliver_in_steps
        self._encoding: tuple[Iterator[None], Callable[[], None]] | None = None
        """The steps in which a piece of the first item is encoded, and what comes behind them."""
        self._reading = False
        self._row_bytes = _ROW_BYTES_GUESSED
        """Of the scattered rows that were read last."""
        self._era = 0
        """Counts the times that everything was taken back: a read that was begun before has come too late."""

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def reading(self) -> bool:
        """A piece is on its way from the storage thread, or waits for memory; `wake` is called when it has come."""
        return self._reading or self._waits_for_memory

    def add(self, effect: Effect) -> None:
        if isinstance(effect, Deliver) and self._items:
            joined = self._joined(self._items[-1], effect)
            if joined is not None:
                self._items[-1] = joined
                return
        self._items.append(effect)

    def _joined(self, before: Deliver | Effect, deliver: Deliver) -> Deliver | None:
        """Scattered messages that follow each other become one delivery: they are read together."""
        if len(deliver.runs) < SCATTERED_RUNS or not isinstance(before, Deliver):
            return None
        under_way = self._reading or self._encoding is not None or self._rest is not None
        begun = len(self._items) == 1 and under_way
        same = before.consumer == deliver.consumer and before.queue_id == deliver.queue_id
        if begun or not same or before.settled != deliver.settled:
            return None
        both = before.runs, deliver.runs
        if sum(map(len, both)) > SCATTERED_RUNS_MAX or not all(
            self._scattered(deliver.queue_id, runs) for runs in both
        ):
            return None
        return replace(
            before,
            runs=before.runs + deliver.runs,
            acquired={**(before.acquired or {}), **(deliver.acquired or {})} or None,
            failed={**(before.failed or {}), **(deliver.failed or {})} or None,
        )

    def _scattered(self, queue_id: int, runs: Sequence[Run]) -> bool:
        """Whether they are read by blocks, in a thread: that is as many reads as there are blocks."""
        if len(runs) < SCATTERED_RUNS or not self._store.picks(queue_id):
            return False
        return run_count(runs) <= SCATTERED_ROWS_PER_RUN * len(runs)

    def unwritten(self) -> list[Deliver]:
        """The deliveries, with the runs that were not encoded."""
        return [item for item in self._waiting() if isinstance(item, Deliver)]

    def _waiting(self) -> list[Deliver | Effect]:
        items, rest = list(self._items), self._rest
        if items and rest is not None and isinstance(items[0], Deliver):
            items[0] = replace(items[0], runs=rest)
        return items

    def take_back(self) -> tuple[list[Deliver], list[Effect]]:
        """Empty it: the deliveries, as `unwritten`, and the other effects."""
        items = self._waiting()
        self._items.clear()
        self._rest = None
        self._begin_era()
        deliveries = [item for item in items if isinstance(item, Deliver)]
        return deliveries, [item for item in items if not isinstance(item, Deliver)]

    def close(self) -> None:
        """Nothing is delivered any more: a read under way comes too late, and who was to hear of it is let go."""
        self._begin_era()
        self._delivered = self._damaged = self._wake = self._failed = told_to_nobody

    def _begin_era(self) -> None:
        """Nobody waits for what was begun before."""
        self._era += 1
        self._encoding = None
        self._waits_for_memory = False
        if self._memory is not None:
            self._memory.forget(self)

    def pump(self, room: int) -> None:
        """Encode deliveries until about `room` bytes are used up, the work of one turn of the loop is done, none waits,
        or a read is under way."""
        if self._encoding is not None and not self._encode_step(*self._encoding):
            return
        rows = left = self._session.rows_at_once
        room = min(room, self._session.bytes_at_once)
        while self._items and room > 0 and left > 0 and not (self._reading or self._encoding):
            item = self._items[0]
            if not isinstance(item, Deliver):
                self._session.apply([item])
                self._items.popleft()
                continue
            runs = item.runs if self._rest is None else self._rest
            size = min(room, READ_BYTES)
            large = self._store.first_large(item.queue_id, runs)
            if large is not None:
                if large[0] == runs[0][0]:
                    self._begin_large(item, runs, *large)
                    return
                self._before_large(item, runs, large[0], size, left)
                return
            if self._scattered(item.queue_id, runs):
                self._begin_scattered(item, runs, room)
                return
            if self._store.blocking:
                self._begin(item, runs, size)
                return
            piece = _read(self._store.provider, item.queue_id, runs, left, size)
            self._encode(item, runs, piece)
            room -= piece.size
            slices = max(STRETCH_SLICES * piece.stretches, len(piece.slices))
            left -= piece.count + slices * rows // SLICES_AT_ONCE

    def _begin(self, item: Deliver, runs: list[Run], size: int, later: Sequence[Run] = ()) -> None:
        self._reading = True
        provider, era, rows = self._store.provider, self._era, self._session.rows_at_once
        wanted, runs = runs, [*runs, *later]

        def read() -> Piece:
            piece = _read(provider, item.queue_id, wanted, rows, size)
            piece.rest += later
            return piece

        future = self._store.begin(read)
        future.add_done_callback(lambda done: self._came(item, runs, era, done))

    def _begin_scattered(self, item: Deliver, runs: list[Run], room: int) -> None:
        self._reading = True
        most = self._session.slices_at_once
        size = max(room, SCATTERED_BYTES_LEAST)
        rows = min(most, max(SCATTERED_RUNS, size // (2 * self._row_bytes)))
        future = self._store.begin_scattered(item.queue_id, runs, rows, size)
        future.add_done_callback(partial(self._scattered_came, item, runs, self._era))

    def _scattered_came(self, item: Deliver, runs: list[Run], era: int, done: "asyncio.Future[Piece]") -> None:
        if not done.cancelled() and done.exception() is None and (count := done.result().count):
            self._row_bytes = max(1, done.result().size // count)
        self._came(item, runs, era, done)

    def _before_large(self, item: Deliver, runs: list[Run], sequence: int, size: int, rows: int) -> None:
        """Read what comes before a large row; it goes on with the next `pump`."""
        near, far = _cut(runs, sequence)
        if self._store.blocking:
            self._begin(item, near, size, far)
        else:
            piece = _read(self._store.provider, item.queue_id, near, rows, size)
            piece.rest += far
            self._encode(item, runs, piece)
            self._wake()

    def _begin_large(self, item: Deliver, runs: list[Run], sequence: int, size: int) -> None:
        """Read one large row, once there is memory for it."""
        read = partial(self._read_large, item, runs, sequence, self._era)
        if self._memory is None:
            read(None)
            return
        memory = self._memory.take(self, size, read)
        self._waits_for_memory = memory is None
        if memory is not None:
            read(memory)

    def _read_large(self, item: Deliver, runs: list[Run], sequence: int, era: int, memory: MemoryShare | None) -> None:
        """The memory goes with the row, wherever that goes, and is given back when nobody has it any more."""
        if era != self._era:
            return
        self._waits_for_memory = False
        self._reading = True
        queue_id = item.queue_id
        _, last = runs[0]
        later = [(sequence + 1, last), *runs[1:]] if last > sequence else runs[1:]

        def read() -> Piece:
            piece = read_piece(self._store.large_rows, queue_id, [(sequence, sequence)], 1)
            for part in piece.slices:
                part.rows = LargeRow(part.rows.data, memory, (queue_id, sequence))
            piece.rest += later
            return piece

        future = self._store.begin_large(read)
        future.add_done_callback(lambda done: self._came(item, runs, era, done))

    def _came(self, item: Deliver, runs: list[Run], era: int, done: "asyncio.Future[Piece]") -> None:
        self._reading = False
        if era != self._era or done.cancelled():
            return
        error = done.exception()
        if error is not None:
            self._failed(error)
            return
        self._encode(item, runs, done.result())
        self._wake()

    def _encode(self, item: Deliver, runs: list[Run], piece: Piece) -> None:
        steps = self._in_steps(item, piece.slices) if piece.slices else None
        if steps is not None:
            self._encode_step(steps, partial(self._encoded, item, runs, piece))
            return
        self._pass_on(item, piece)
        if piece.slices:
            self._session.deliver(item, piece.slices)
        self._delivered(item, piece, _before(runs, piece.rest))

    def _encode_step(self, steps: Iterator[None], encoded: Callable[[], None]) -> bool:
        """Whether it was the last; after another one the next turn goes on."""
        self._encoding = None
        for _ in steps:
            self._encoding = steps, encoded
            self._wake()
            return False
        encoded()
        return True

    def _encoded(self, item: Deliver, runs: list[Run], piece: Piece) -> None:
        self._pass_on(item, piece)
        self._delivered(item, piece, _before(runs, piece.rest))

    def _pass_on(self, item: Deliver, piece: Piece) -> None:
        """To what is left of the first item, or to the next."""
        if piece.rest:
            self._rest = piece.rest
        else:
            self._rest = None
            self._items.popleft()
        if piece.damaged:
            self._damaged(item, piece)


def _read(provider: IStorageProvider, queue_id: int, runs: list[Run], rows: int, size: int) -> Piece:
    """As `read_piece`, and so many rows at most."""
    wanted, later = leading(runs, rows, RUNS_AT_ONCE)
    piece = read_piece(provider, queue_id, wanted, size)
    piece.rest += later
    return piece


def _cut(runs: list[Run], sequence: int) -> tuple[list[Run], list[Run]]:
    """The runs before the place of a sequence among them, and those from there on. They need not ascend."""
    for index, (first, last) in enumerate(runs):
        if first <= sequence <= last:
            near = [*runs[:index], (first, sequence - 1)] if first < sequence else runs[:index]
            return near, [(sequence, last), *runs[index + 1 :]]
    return runs, []


def _before(runs: list[Run], rest: list[Run]) -> list[Run]:
    """The runs up to where the rest of them begins."""
    return _cut(runs, rest[0][0])[0] if rest else runs
