"""What a record costs the reducer does not depend on how many chunks and values the queue has that stay."""

from collections.abc import Callable

import pytest

from bench.guard.counting import instructions
from vibemq.model.options import QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    DeadFacts,
    DeadLettered,
    Dropped,
    GroupDeleted,
    GroupMoved,
    HandedOut,
    QueueDeleted,
    Reason,
    Record,
    Settled,
)
from vibemq.model.stored import Chunk, StoredGroup, StoredQueue, StoredState
from vibemq.storage.state import messages
from vibemq.storage.state.reducer import DeadTable, apply

Q = 1
EACH = 250
"""Messages of a chunk."""
FEW, MANY = 300, 3_000

Case = Callable[[int], list[Record]]
"""The last sequence -> records, of which the last one counts."""


def state_of(chunks: int, *, groups: int, retention: Retention = Retention.SETTLED) -> StoredState:
    """A queue of so many chunks, all of which wait for every group."""
    state, queue = StoredState(), StoredQueue(Q, "q", QueueOptions(retention=retention), 10, "i")
    state.queues[Q] = queue
    queue.next_sequence = chunks * EACH + 1
    queue.chunks = [Chunk(1 + at * EACH, (at + 1) * EACH, 4_000, 100 + at) for at in range(chunks)]
    queue.groups = {group: StoredGroup(group, f"g{group}", durable=True) for group in range(groups)}
    return state


def cost(state: StoredState, case: Case) -> int:
    *before, last = case(state.queues[Q].next_sequence - 1)
    dead = DeadTable()
    for record in before:
        apply(state, record, dead)
    return sum(instructions(lambda: apply(state, last, dead)).values())


def far_apart(last: int) -> list[Record]:
    return [HandedOut(Q, 0, [(1, 2), (last, last)]), Settled(Q, 0, [(1, 2), (last, last)])]


def commit(last: int) -> list[Record]:
    return [Settled(Q, 0, [(1, last)])]


def seek(last: int) -> list[Record]:
    return [GroupMoved(Q, 0, last + 1, 1)]


def delete(_last: int) -> list[Record]:
    return [GroupDeleted(Q, 0)]


def purge(last: int) -> list[Record]:
    return [Dropped(Q, [(1, last)], Reason.PURGED)]


def purge_of_all_but_one(last: int) -> list[Record]:
    return [HandedOut(Q, 0, [(1, 1)]), Dropped(Q, [(2, last)], Reason.PURGED)]


def queue_gone(_last: int) -> list[Record]:
    return [QueueDeleted(Q)]


def expiry(last: int) -> list[Record]:
    return [Dropped(Q, [(1, 1), (last // 2, last // 2), (last, last)], Reason.EXPIRED)]


def half_settled(last: int) -> list[Record]:
    return [Settled(Q, 1, [(1, last // 2)]), *commit(last)]


def halves_settled(last: int) -> list[Record]:
    return [Settled(Q, 1, [(1, last // 2)]), Settled(Q, 2, [(last // 2 + 1, last)]), *commit(last)]


def letters(last: int) -> list[Record]:
    both = [DeadFacts(dead_id, at, Reason.REJECTED, "", 1, 1, 1, 200) for dead_id, at in enumerate([1, last], 1)]
    return [DeadLettered(Q, ALL_GROUPS, both)]


@pytest.mark.parametrize(
    ("groups", "case"),
    [
        pytest.param(1, far_apart, id="an ack of two that are far apart"),
        pytest.param(2, far_apart, id="the same beside another group"),
        pytest.param(1, letters, id="two letters that are far apart"),
        pytest.param(2, expiry, id="messages that have expired here and there"),
        pytest.param(2, commit, id="one group settles all, another waits for it"),
        pytest.param(2, half_settled, id="one group settles all, another waits for half"),
        pytest.param(3, halves_settled, id="one group settles all, two others wait for half each"),
        pytest.param(2, seek, id="one group is moved to the end, another waits"),
        pytest.param(2, delete, id="one group is deleted, another waits"),
        pytest.param(1, commit, id="the only group settles all"),
        pytest.param(1, seek, id="the only group is moved to the end"),
        pytest.param(1, purge, id="a purge"),
        pytest.param(1, purge_of_all_but_one, id="a purge of all but what a consumer holds"),
        pytest.param(1, queue_gone, id="the queue is deleted"),
    ],
)
def test_a_record_costs_the_same_however_many_chunks_there_are(groups: int, case: Case) -> None:
    few, many = (cost(state_of(chunks, groups=groups), case) for chunks in (FEW, MANY))
    assert many < 1.5 * few


@pytest.mark.parametrize("case", [far_apart, commit, seek, delete, letters, expiry, purge])
def test_so_it_is_in_a_log(case: Case) -> None:
    few, many = (cost(state_of(chunks, groups=2, retention=Retention.LOG), case) for chunks in (FEW, MANY))
    assert many < 1.5 * few


@pytest.mark.parametrize("case", [commit, seek, delete, far_apart, letters])
def test_no_chunk_of_a_log_is_looked_at_when_groups_let_go(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def unexpected(*_: object) -> bool:
        raise AssertionError("a log keeps its messages whatever groups do")

    monkeypatch.setattr(messages, "is_kept", unexpected)
    monkeypatch.setattr(messages, "any_waiting", unexpected)
    state = state_of(9, groups=2, retention=Retention.LOG)
    cost(state, case)
    assert len(state.queues[Q].chunks) == 9


def test_of_an_ack_only_the_chunks_are_looked_at_that_hold_its_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    state, looks, is_kept = state_of(MANY, groups=1), list[int](), messages.is_kept

    def look(queue: StoredQueue, chunk: Chunk) -> bool:
        looks.append(chunk.first)
        return is_kept(queue, chunk)

    monkeypatch.setattr(messages, "is_kept", look)
    cost(state, far_apart)
    assert looks == [1, state.queues[Q].next_sequence - EACH]


def test_very_many_acks_in_one_chunk_look_at_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    state, looks, is_kept = state_of(2, groups=2), list[int](), messages.is_kept

    def look(queue: StoredQueue, chunk: Chunk) -> bool:
        looks.append(chunk.first)
        return is_kept(queue, chunk)

    monkeypatch.setattr(messages, "is_kept", look)
    cost(state, lambda last: [Settled(Q, 0, [(at, at) for at in range(1, EACH, 2)])])
    assert looks == [1]


# -- values -------------------------------------------------------------------------------------------------------


def with_values(chunks: int, *, groups: int) -> StoredState:
    """Each message has an end of its own."""
    state = state_of(chunks, groups=groups)
    queue = state.queues[Q]
    queue.expires.put_columns(range(1, queue.next_sequence), range(1_000, queue.next_sequence + 999))
    return state


@pytest.mark.parametrize("case", [commit, seek, delete])
def test_values_of_messages_that_another_group_waits_for_are_not_looked_at(case: Case) -> None:
    few, many = (cost(with_values(chunks, groups=2), case) for chunks in (FEW // 10, FEW))
    assert many < 1.5 * few


@pytest.mark.parametrize(("groups", "case"), [(2, half_settled), (1, commit), (1, seek), (1, purge), (1, queue_gone)])
def test_values_leave_in_pages(groups: int, case: Case) -> None:
    few, many = (cost(with_values(chunks, groups=groups), case) for chunks in (FEW // 10, FEW))
    assert (many - few) / (EACH * (FEW - FEW // 10)) < 0.5, "instructions for each message"


def test_a_chunk_of_a_log_goes_though_a_group_was_moved_back_before_it() -> None:
    state = state_of(3, groups=1, retention=Retention.LOG)
    before, last = 2 * EACH, 3 * EACH
    runs = [(5, 5), (before, last - 9)]
    for record in (
        Dropped(Q, [(last - 8, last)], Reason.PURGED),
        GroupMoved(Q, 0, 1, 1),
        Dropped(Q, runs, Reason.PURGED),
    ):
        apply(state, record, DeadTable())
    assert [chunk.first for chunk in state.queues[Q].chunks] == [1, EACH + 1]
