"""What leaves a stored queue, and what that makes dirty, against a walk over everything that is in it."""

from collections.abc import Sequence
from contextlib import ExitStack
from random import Random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.instants import Instants
from vibemq.model.options import QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Settled,
)
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, runs_of
from vibemq.model.stored import StoredQueue, StoredState
from vibemq.storage.state import messages
from vibemq.storage.state.changes import Dirty, RunKind, ValueKind
from vibemq.storage.state.liveness import alive_runs, waiting_runs
from vibemq.storage.state.reducer import DeadTable, apply
from vibemq.testing.storage_workload import Model, Workload

Q = 1
CHUNK_BYTES = 400
ROW = b"x" * 10


def walk_over_everything(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty | None) -> None:
    """What `may_have_left` does, chunk by chunk and value by value."""
    assert dirty is not None
    if not runs:
        return
    dirty.mark_left(queue.queue_id, runs)
    waiting = members(waiting_runs(queue, 1, queue.next_sequence - 1))
    lowest, highest = min(first for first, _ in runs), max(last for _, last in runs)
    for chunk in list(queue.chunks):
        overlaps = chunk.first <= highest and chunk.last >= lowest
        if overlaps and waiting.isdisjoint(range(chunk.first, chunk.last + 1)):
            queue.chunks.remove(chunk)
            dirty.chunks.add((queue.queue_id, chunk.first))
    _forget_priorities(queue, runs, dirty)
    for kind, values in ((ValueKind.EXPIRES, queue.expires), (ValueKind.DELAYED, queue.delayed)):
        _forget_values(queue, kind, values, members(runs) - waiting, dirty)


def _forget_priorities(queue: StoredQueue, runs: Sequence[Run], dirty: Dirty) -> None:
    for priority, its_members in list(queue.priorities.items()):
        kind = RunKind.PRIORITY + priority
        for first, last in [part for run in runs for part in its_members.overlap(*run)]:
            kept = alive_runs(queue, first, last)
            if kept != [(first, last)]:
                dirty.mark_runs(queue.queue_id, ALL_GROUPS, kind, its_members, first, last)
                its_members.remove(first, last)
                its_members.add_all(kept)
                dirty.mark_runs(queue.queue_id, ALL_GROUPS, kind, its_members, first, last)
        if not its_members:
            del queue.priorities[priority]


def _forget_values(queue: StoredQueue, kind: ValueKind, values: Instants, gone: set[int], dirty: Dirty) -> None:
    for sequence in [sequence for sequence in values if sequence in gone]:
        del values[sequence]
        dirty.mark_value(queue.queue_id, ALL_GROUPS, kind, sequence)


def members(runs: Sequence[Run]) -> set[int]:
    return {sequence for first, last in runs for sequence in range(first, last + 1)}


class Twins:
    """Two states with the same records: the reducer's own, and one that walks over everything."""

    def __init__(self) -> None:
        self.own = (StoredState(), DeadTable(), Dirty())
        self.plain = (StoredState(), DeadTable(), Dirty())

    def apply(self, record: Record) -> None:
        state, dead, dirty = self.own
        apply(state, record, dead, dirty)
        state, dead, dirty = self.plain
        with ExitStack() as patches:
            for name in ("may_have_left", "groups_let_go"):
                patches.enter_context(patch.object(messages, name, walk_over_everything))
            apply(state, record, dead, dirty)
        self.compare(record)

    def compare(self, record: Record) -> None:
        assert self.own[0] == self.plain[0], record
        for name in Dirty.__slots__:
            assert getattr(self.own[2], name) == getattr(self.plain[2], name), (name, record)
        self.own[2].clear()
        self.plain[2].clear()


class Chances:
    """Random records about one queue of many small chunks."""

    def __init__(self, random: Random, *, longest: int) -> None:
        self._random = random
        self._longest = longest
        self._now = 1_000
        self._weights = [random.choice([6, 2]), *(random.choice([0, 1, 6]) for _ in range(8))]

    def first(self) -> list[Record]:
        options = QueueOptions(retention=self._random.choice([Retention.SETTLED, Retention.SETTLED, Retention.LOG]))
        groups = range(self._random.randint(1, 4))
        return [
            QueueCreated(Q, "q", options, 10, "i"),
            *(GroupCreated(Q, group, f"g{group}", durable=True, head=1) for group in groups),
        ]

    def next(self, queue: StoredQueue, dead: DeadTable) -> Record:
        if queue.next_sequence == 1:
            return self.added(queue)
        group = self._random.choice([*queue.groups, 0])
        match self._random.choices(range(9), self._weights)[0]:
            case 0:
                return self.added(queue)
            case 1:
                return HandedOut(Q, group, self._runs(queue))
            case 2:
                return Settled(Q, self._random.choice([group, group, group, ALL_GROUPS]), self._runs(queue))
            case 3:
                return Dropped(Q, self._runs(queue), Reason.EXPIRED)
            case 4:
                return self._letters(queue, dead, group)
            case 5:
                some = self._random.sample(sorted(dead.entries), len(dead.entries) // 2)
                return DeadRemoved(some)
            case 6:
                head = self._random.randint(1, queue.next_sequence)
                return GroupMoved(Q, group, head, queue.groups[group].epoch + 1 if group in queue.groups else 1)
            case 7:
                return self._of_a_group(queue, group)
            case _:
                retention = self._random.choice([Retention.SETTLED, Retention.LOG])
                return QueueChanged(Q, queue.options.with_changes(retention=retention))

    def _of_a_group(self, queue: StoredQueue, group: int) -> Record:
        if self._random.random() < 0.5:
            return GroupDeleted(Q, group)
        head = self._random.choice([1, queue.next_sequence, self._random.randint(1, queue.next_sequence)])
        return GroupCreated(Q, queue.next_group_id, f"g{queue.next_group_id}", durable=True, head=head)

    def added(self, queue: StoredQueue) -> MessagesAdded:
        self._now += self._random.choice([0, 100, 100_000])
        count = self._random.choice([1, 3, 30, self._longest])
        # Sequences of messages that could not be stored are left out.
        first = queue.next_sequence + self._random.choice([0, 0, 0, 5])
        return MessagesAdded(Q, first, self._now, Rows.of([ROW] * count), self._extras(count))

    def _extras(self, count: int) -> dict[int, MessageExtra] | None:
        share, kinds = self._random.choice([0, 0.05, 0.5, 1]), self._random.randrange(8)
        return {
            index: MessageExtra(
                priority=self._random.choice([0, 1, 3]) if kinds & 1 else 1,
                expires_at=self._random.choice([self._now + 5_000, self._now + index + 1]) if kinds & 2 else 0,
                deliver_at=self._random.choice([self._now + 9, 1 << 45]) if kinds & 4 else 0,
            )
            for index in range(count)
            if self._random.random() < share
        } or None

    def _letters(self, queue: StoredQueue, dead: DeadTable, group: int) -> Record:
        first = max(dead.entries, default=self._now) + 1
        sequences = [sequence for run in self._runs(queue) for sequence in run][:3]
        letters = [
            DeadFacts(dead_id, sequence, Reason.REJECTED, "", 1, 1, 1, 200)
            for dead_id, sequence in enumerate(sequences, first)
        ]
        return DeadLettered(Q, self._random.choice([group, ALL_GROUPS]), letters)

    def _runs(self, queue: StoredQueue) -> list[Run]:
        """Long or short ones, near or far apart, sometimes not in order."""
        last = queue.next_sequence - 1
        match self._random.randrange(7):
            case 0:
                return [(1, last)]
            case 1:
                start = self._random.randint(1, last)
                step = self._random.choice([2, 7, 50, 1_000])
                return [(sequence, sequence) for sequence in range(start, last + 1, step)]
            case 2:
                middle = self._random.randint(1, last)
                return [self._random.choice([(1, middle), (middle, last)])]
            case 3 if queue.chunks:
                # Some of neighbouring chunks, or all.
                at = self._random.randrange(len(queue.chunks))
                near = queue.chunks[at : at + self._random.randint(1, 6)]
                edges = sorted(self._random.choice([chunk.first, chunk.last]) for chunk in near)
                shift = self._random.choice([0, 0, 1])
                return [
                    (first, max(first, second - shift)) for first, second in zip(edges[::2], edges[1::2], strict=False)
                ] or [(edges[0], edges[0])]
            case 4 if len(queue.chunks) > 2:
                # What is left of a chunk, with the end of the one before it.
                at = self._random.randrange(2, len(queue.chunks))
                start = max(queue.chunks[at - 1].last - 1, queue.chunks[at - 1].first)
                left = waiting_runs(queue, start, queue.chunks[at].last)
                return [(queue.chunks[at - 2].first,) * 2, *left]
            case _:
                some = [self._random.randint(1, last) for _ in range(self._random.randint(1, 6))]
                reach = self._random.choice([0, 3, 100, last])
                runs = runs_of({s for start in some for s in range(start, min(start + reach, last) + 1)})
                return self._random.choice([runs, runs[::-1]])


@pytest.fixture(autouse=True, scope="module")
def small_chunks() -> object:
    with patch.object(messages, "CHUNK_BYTES_MAX", CHUNK_BYTES):
        yield


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from([100, 2_500]))
def test_what_leaves_is_what_a_walk_over_everything_finds(random: Random, count: int, longest: int) -> None:
    twins, chances = Twins(), Chances(random, longest=longest)
    for record in chances.first():
        twins.apply(record)
    for _ in range(random.choice([0, 10, 60])):
        twins.apply(chances.added(twins.own[0].queues[Q]))
    for _ in range(count):
        twins.apply(chances.next(twins.own[0].queues[Q], twins.own[1]))
    if random.random() < 0.3:
        twins.apply(QueueDeleted(Q))


@settings(max_examples=20, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60))
def test_so_it_is_of_records_that_an_engine_makes(random: Random, batches: int) -> None:
    twins, workload = Twins(), Workload(random)
    for _ in range(batches):
        for record in workload.batch(Model.of(twins.own[0], twins.own[1])):
            twins.apply(record)
