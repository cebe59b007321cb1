"""Acks of very many groups cost the reducer, and the rows in memory, the same each, whichever group comes when."""

import sys
from collections.abc import Sequence
from random import Random

import pytest

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import GroupCreated, HandedOut, MessagesAdded, QueueCreated, Record, Settled
from vibemq.model.rows import Rows, pack_row
from vibemq.model.runs import RunSet, runs_of
from vibemq.model.stored import StoredGroup, StoredState
from vibemq.storage.kvstore.transient_rows import VolatileRows
from vibemq.storage.state.liveness import is_alive
from vibemq.storage.state.reducer import DeadTable, Dirty, apply

BATCHES = 4
MESSAGES = 10
FEW, MANY = 40, 320


def lines_of(groups: Sequence[int], *, batch_first: bool) -> int:
    """Lines of the reducer's code that run while the groups, in that order, settle everything."""
    state, dead, dirty = StoredState(), DeadTable(), Dirty()
    before: list[Record] = [QueueCreated(1, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), 1, "i")]
    before += [GroupCreated(1, group, f"g{group}", durable=True, head=1) for group in sorted(groups)]
    rows = Rows.of([pack_row("m", b"x" * 9_000)] * MESSAGES)
    extras = {0: MessageExtra(priority=2), 1: MessageExtra(expires_at=1 << 50)}
    before += [MessagesAdded(1, 1 + MESSAGES * batch, 100_000 * batch, rows, extras) for batch in range(BATCHES)]
    runs = [(1 + MESSAGES * batch, MESSAGES * (batch + 1)) for batch in range(BATCHES)]
    before += [HandedOut(1, group, [(1, MESSAGES * BATCHES)]) for group in groups]
    order = [(group, run) for run in runs for group in groups]
    if not batch_first:
        order = [(group, run) for group in groups for run in runs]
    for record in before:
        apply(state, record, dead, dirty)
    assert len(state.queues[1].chunks) == BATCHES
    lines = 0

    def count(frame: object, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    sys.settrace(count)  # type: ignore[arg-type]
    try:
        for group, run in order:
            apply(state, Settled(1, group, [run]), dead, dirty)
    finally:
        sys.settrace(None)
    queue = state.queues[1]
    assert (list(queue.chunks), len(queue.expires), len(queue.priorities)) == ([], 0, 0)
    return lines


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_the_work_of_an_ack_does_not_grow_with_the_number_of_groups(order: str, batch_first: bool) -> None:
    few, many = list(range(1, FEW + 1)), list(range(1, MANY + 1))
    for groups in (few, many):
        if order == "descending":
            groups.reverse()
        elif order == "mixed":
            Random(1).shuffle(groups)
    grown = lines_of(many, batch_first=batch_first) / lines_of(few, batch_first=batch_first)
    assert grown < 2 * MANY / FEW


class InMemory:
    """A queue whose rows are in memory, and many groups that hold all of them."""

    def __init__(self, groups: Sequence[int]) -> None:
        self.state, self.dead, self.dirty, self.rows = StoredState(), DeadTable(), Dirty(), VolatileRows()
        self._apply(QueueCreated(1, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), 1, "i"))
        for group in sorted(groups):
            self._apply(GroupCreated(1, group, f"g{group}", durable=True, head=1))
        added = MessagesAdded(1, 1, 1, Rows.of([pack_row("m", b"x" * 100)] * MESSAGES), None)
        self.rows.add(added)
        self._apply(added)
        for group in groups:
            self._apply(HandedOut(1, group, [(1, MESSAGES)]))

    def _apply(self, record: Record) -> None:
        apply(self.state, record, self.dead, self.dirty)

    def acknowledge(self, group: int, sequence: int) -> int:
        """Lines of code that let go of rows."""
        return self.acknowledge_run(group, sequence, sequence)

    def acknowledge_run(self, group: int, first: int, last: int) -> int:
        self._apply(Settled(1, group, [(first, last)]))
        lines = 0

        def count(frame: object, event: str, argument: object) -> object:
            nonlocal lines
            lines += event == "line"
            return count

        sys.settrace(count)  # type: ignore[arg-type]
        try:
            self.rows.forget(self.state, self.dirty.left)
        finally:
            sys.settrace(None)
        self.dirty.left.clear()
        return lines

    def acknowledge_all(self, groups: Sequence[int], *, together: bool) -> int:
        """`together`: one message after the other, by all groups; else one group after the other."""
        order = [(group, sequence) for sequence in range(1, MESSAGES + 1) for group in groups]
        if not together:
            order = [(group, sequence) for group in groups for sequence in range(1, MESSAGES + 1)]
        lines = 0
        for group, sequence in order:
            assert self.rows.read(1, sequence, sequence, 1_000)
            lines += self.acknowledge(group, sequence)
        assert self.rows.size == 0
        return lines


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("order", ["ascending", "descending", "mixed"])
def test_nor_does_that_of_letting_go_of_rows_in_memory(order: str, together: bool) -> None:
    few, many = list(range(1, FEW + 1)), list(range(1, MANY + 1))
    for groups in (few, many):
        if order == "descending":
            groups.reverse()
        elif order == "mixed":
            Random(1).shuffle(groups)
    grown = InMemory(many).acknowledge_all(many, together=together) / InMemory(few).acknowledge_all(
        few, together=together
    )
    assert grown < 3 * MANY / FEW


def test_few_live_rows_do_not_hold_on_to_many_dead_ones_for_long() -> None:
    """Of many groups, one keeps one message: what is dead beside it is found out in time."""
    groups = list(range(1, FEW + 1))
    queue = InMemory(groups)
    before = queue.rows.size
    for group in groups:
        for sequence in range(1, MESSAGES + (group != FEW // 2)):
            queue.acknowledge(group, sequence)
    assert 0 < queue.rows.size < before / 4
    queue.acknowledge(FEW // 2, MESSAGES)
    assert queue.rows.size == 0


SLICES = 60


def in_slices(groups: Sequence[int], slices: int) -> InMemory:
    """Each message in a slice of its own; the groups are `InMemory`'s."""
    queue = InMemory(groups)
    for sequence in range(MESSAGES + 1, MESSAGES + slices):
        added = MessagesAdded(1, sequence, 1, Rows.of([pack_row("m", b"x" * 100)]), None)
        queue.rows.add(added)
        queue._apply(added)
    for group in groups:
        queue._apply(HandedOut(1, group, [(MESSAGES + 1, MESSAGES + slices - 1)]))
    return queue


def lines_of_the_last(slices: int, *, kept_by_another: int) -> int:
    """Lines of code that let go of rows when the first group settles all of them at once, as the others have done
    before; but the last one waits for one in so many of them, if any."""
    groups = list(range(1, MANY + 1))
    queue, last = in_slices(groups, slices), MESSAGES + slices - 1
    for group in groups[1:-1]:
        queue.acknowledge_run(group, 1, last)
    for sequence in range(1, last + 1):
        if not kept_by_another or sequence % kept_by_another:
            queue.acknowledge(groups[-1], sequence)
    lines = queue.acknowledge_run(1, 1, last)
    assert bool(queue.rows.size) is bool(kept_by_another)
    return lines


@pytest.mark.parametrize("kept_by_another", [0, 1, 2])
def test_one_ack_looks_at_all_groups_once_however_many_slices_it_settles(kept_by_another: int) -> None:
    one, many = (lines_of_the_last(slices, kept_by_another=kept_by_another) for slices in (2, SLICES))
    assert many < 3 * one


@pytest.mark.parametrize("seed", range(3))
def test_no_row_that_a_group_waits_for_is_let_go_of_and_no_slice_of_others_stays(seed: int) -> None:
    random = Random(seed)
    groups = list(range(1, 21))
    queue = in_slices(groups, SLICES)
    stored, last = queue.state.queues[1], MESSAGES + SLICES - 1
    left = {group: set(range(1, last + 1)) for group in groups}
    while any(left.values()):
        for group in random.sample(groups, random.choice([1, 3, len(groups)])):
            first = random.randrange(1, last + 1)
            run = range(first, min(last, first + random.choice([0, 3, 20, last])) + 1, random.choice([1, 1, 2]))
            settled = sorted(left[group].intersection(run))
            if settled:
                queue._apply(Settled(1, group, runs_of(settled)))
                left[group].difference_update(settled)
        queue.rows.forget(queue.state, queue.dirty.left)
        queue.dirty.left.clear()
        for sequence in range(1, last + 1):
            assert queue.rows.read(1, sequence, sequence, 1_000) or not is_alive(stored, sequence)
        for part in queue.rows.read(1, 1, last, 1 << 20):
            assert any(is_alive(stored, part.first_sequence + index) for index in range(part.rows.count))
    assert queue.rows.size == 0


def test_groups_without_containers_get_none_from_letting_go_of_rows() -> None:
    """A group that reads by ranges has none, and there may be very many of them."""
    groups = list(range(1, MANY + 1))
    queue = InMemory([])
    for group in groups:
        queue.state.queues[1].groups[group] = StoredGroup(group, f"g{group}", durable=True)
    for settled in queue.state.queues[1].groups.values():
        settled.head = MESSAGES + 1
        queue.rows.forget(queue.state, {1: RunSet([(1, MESSAGES)])})
    assert queue.rows.size == 0
    assert all(group.is_bare for group in queue.state.queues[1].groups.values())
