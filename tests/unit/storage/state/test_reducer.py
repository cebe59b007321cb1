"""The reducer, one rule at a time; tests/properties holds it against a naive model."""

from dataclasses import replace
from itertools import pairwise
from unittest.mock import patch

import pytest

from vibemq.model.extras.columns import ExtraColumns
from vibemq.model.extras.dedup_table import DedupTable, remembered
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import JobStarted
from vibemq.model.options import Durability, QueueOptions, Retention
from vibemq.model.records import (
    ALL_GROUPS,
    Attempts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupMoved,
    HandedOut,
    MessagesAdded,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Returned,
    Settled,
    StageMoved,
)
from vibemq.model.rows import Rows
from vibemq.model.stored import StoredQueue, StoredState
from vibemq.storage.state.messages import CHUNK_BYTES_MAX
from vibemq.storage.state.reducer import (
    DeadTable,
    Dirty,
    alive_runs,
    any_waiting,
    apply,
    is_alive,
    is_waiting,
    persistent,
    restart_transient,
    waiting_floor,
)

Q = 1


def state_of(*records: Record, options: QueueOptions | None = None, dirty: Dirty | None = None) -> StoredState:
    """A state with queue 1, its default group, and these records applied."""
    state, dead = StoredState(), DeadTable()
    for record in (
        QueueCreated(Q, "q", options or QueueOptions(), 10, "aa"),
        GroupCreated(Q, 0, "", True, 1),
        *records,
    ):
        apply(state, record, dead, dirty)
    return state


def queue_of(*records: Record, options: QueueOptions | None = None) -> StoredQueue:
    return state_of(*records, options=options).queues[Q]


def add(first: int, count: int, at: int = 100, **extras: MessageExtra) -> MessagesAdded:
    """Rows of 10 bytes; extras by "i<index>"."""
    by_index = {int(name[1:]): extra for name, extra in extras.items()}
    return MessagesAdded(Q, first, at, Rows.of([b"0123456789"] * count), by_index or None)


def dead(dead_id: int, sequence: int) -> DeadFacts:
    return DeadFacts(dead_id, sequence, Reason.REJECTED, "", 1, 1, 1, 200)


def test_the_head_moves_over_what_was_taken_out_of_order() -> None:
    group = queue_of(add(1, 10), HandedOut(Q, 0, [(3, 4), (6, 6)])).groups[0]
    assert (group.head, group.taken.runs(), group.pending.runs()) == (1, [(3, 4), (6, 6)], [(3, 4), (6, 6)])
    group = queue_of(add(1, 10), HandedOut(Q, 0, [(3, 4), (6, 6)]), HandedOut(Q, 0, [(1, 2)])).groups[0]
    assert (group.head, group.taken.runs()) == (5, [(6, 6)])
    group = queue_of(add(1, 10), HandedOut(Q, 0, [(3, 4), (6, 6)]), HandedOut(Q, 0, [(1, 2), (5, 5)])).groups[0]
    assert (group.head, group.taken.runs(), len(group.pending)) == (7, [], 6)


def test_settling_without_a_hand_out_counts_as_taken() -> None:
    queue = queue_of(add(1, 3), Settled(Q, 0, [(2, 2)]))
    assert queue.groups[0].taken.runs() == [(2, 2)]
    assert alive_runs(queue, 1, 9) == [(1, 1), (3, 3)]


def test_a_repeated_hand_out_adds_to_acquired() -> None:
    group = queue_of(add(1, 2), HandedOut(Q, 0, [(1, 2)]), HandedOut(Q, 0, [(2, 2)])).groups[0]
    assert group.attempts == {2: Attempts(acquired=2)}
    history = Attempts(1, 1, 150, 150, 180, "oops")
    group = queue_of(
        add(1, 2), HandedOut(Q, 0, [(1, 1)]), Returned(Q, 0, {1: history}), HandedOut(Q, 0, [(1, 1)])
    ).groups[0]
    assert group.attempts == {1: history._replace(acquired=2, due_at=0)}
    assert group.pending.runs() == [(1, 1)]


def test_attempts_go_when_the_message_is_settled() -> None:
    queue = queue_of(add(1, 2), Returned(Q, 0, {1: Attempts(1, 1)}), Settled(Q, 0, [(1, 1)]))
    assert queue.groups[0].attempts == {}


def test_a_message_goes_when_every_group_has_settled_it() -> None:
    other = GroupCreated(Q, 1, "other", True, 1)
    settled = [add(1, 4), HandedOut(Q, 0, [(1, 4)]), Settled(Q, 0, [(1, 4)])]
    queue = queue_of(other, *settled)
    assert alive_runs(queue, 1, 4) == [(1, 4)]
    assert waiting_floor(queue) == 1
    queue = queue_of(other, *settled, HandedOut(Q, 1, [(1, 3)]), Settled(Q, 1, [(1, 2)]))
    assert alive_runs(queue, 1, 4) == [(3, 4)]
    assert waiting_floor(queue) == 3
    assert not any_waiting(queue, 1, 2)


def test_extras_are_kept_and_cleaned_up() -> None:
    extra = MessageExtra(priority=3, expires_at=900, deliver_at=500)
    batch = add(1, 3, i0=extra, i2=extra)
    queue = queue_of(batch)
    assert {p: list(runs) for p, runs in queue.priorities.items()} == {3: [1, 3]}
    assert (queue.expires, queue.delayed) == ({1: 900, 3: 900}, {1: 500, 3: 500})
    queue = queue_of(batch, HandedOut(Q, 0, [(1, 3)]))
    assert (set(queue.expires), set(queue.delayed)) == ({1, 3}, {1, 3})
    queue = queue_of(batch, HandedOut(Q, 0, [(1, 3)]), Settled(Q, 0, [(1, 2)]))
    assert {p: list(runs) for p, runs in queue.priorities.items()} == {3: [3]}
    assert (queue.expires, queue.delayed) == ({3: 900}, {3: 500})
    queue = queue_of(batch, Dropped(Q, [(1, 3)], Reason.EXPIRED))
    assert (queue.priorities, queue.expires, queue.delayed) == ({}, {}, {})


def test_a_run_of_one_priority_leaves_in_parts() -> None:
    extra = MessageExtra(priority=3)
    batch = add(1, 4, i0=extra, i1=extra, i2=extra, i3=extra)
    other = GroupCreated(Q, 1, "other", True, 1)
    queue = queue_of(other, batch, Settled(Q, 1, [(1, 1), (3, 3)]), Settled(Q, 0, [(1, 4)]))
    assert {p: runs.runs() for p, runs in queue.priorities.items()} == {3: [(2, 2), (4, 4)]}


def test_a_delay_stays_until_every_group_has_settled() -> None:
    batch = add(1, 1, i0=MessageExtra(deliver_at=500))
    other = GroupCreated(Q, 1, "other", True, 1)
    out = [HandedOut(Q, 0, [(1, 1)]), HandedOut(Q, 1, [(1, 1)])]
    assert queue_of(other, batch, *out, Settled(Q, 0, [(1, 1)])).delayed == {1: 500}
    assert queue_of(other, batch, *out, Settled(Q, 0, [(1, 1)]), Settled(Q, 1, [(1, 1)])).delayed == {}


def test_a_delay_that_was_over_when_it_came_is_none() -> None:
    assert queue_of(add(1, 2, 500, i0=MessageExtra(deliver_at=500), i1=MessageExtra(deliver_at=501))).delayed == {
        2: 501
    }


def test_messages_that_are_apart_begin_a_chunk() -> None:
    records = [add(1, 1), add(2, 1), replace(add(3, 1), apart=True), add(4, 1)]
    assert [(chunk.first, chunk.last) for chunk in queue_of(*records).chunks] == [(1, 2), (3, 4)]


def moved(stage: int, first: int, at: int = 100, *, apart: bool = False) -> list[Record]:
    """One message of a stage of its own."""
    made: list[Record] = [
        QueueCreated(stage, f"s{stage}", QueueOptions(), 10, "bb"),
        GroupCreated(stage, 0, "", True, 1),
    ]
    made.append(replace(add(1, 1), queue_id=stage))
    return [*made, StageMoved(Q, first, at, stage, 1, 1, apart), QueueDeleted(stage)]


def test_small_stages_share_chunks_as_publishes_do() -> None:
    records = [add(1, 1), *moved(2, 2), *moved(3, 3), *moved(4, 4, apart=True), add(5, 1), *moved(5, 6, 70_000)]
    found = [(chunk.first, chunk.last, chunk.size, chunk.published_at) for chunk in queue_of(*records).chunks]
    assert found == [(1, 3, 30, 100), (4, 5, 20, 100), (6, 6, 10, 70_000)]


def test_dedup_ids_leave_the_window_when_new_ones_come() -> None:
    options = QueueOptions(dedup_window_ms=1_000)
    one, two, three = (MessageExtra(dedup_id=name) for name in (b"1", b"2", b"3"))
    queue = queue_of(add(1, 1, 100, i0=one), add(2, 1, 900, i0=two), options=options)
    assert queue.dedup == {b"1": remembered(1, 100), b"2": remembered(2, 900)}
    queue = queue_of(add(1, 1, 100, i0=one), add(2, 1, 900, i0=two), add(3, 1, 1_101, i0=three), options=options)
    assert queue.dedup == {b"2": remembered(2, 900), b"3": remembered(3, 1_101)}
    again = [add(1, 1, 100, i0=one), add(2, 1, 900, i0=two), add(3, 1, 1_050, i0=one), add(4, 1, 1_950, i0=three)]
    assert queue_of(*again, options=options).dedup == {b"1": remembered(3, 1_050), b"3": remembered(4, 1_950)}
    assert queue_of(add(1, 1, i0=one), options=QueueOptions(dedup_window_ms=0)).dedup == {}


@pytest.mark.parametrize(("head", "kept"), [(1, [1, 2, 3]), (3, [3]), (4, []), (90, [])])
def test_nothing_is_noted_of_messages_before_every_group(head: int, kept: list[int]) -> None:
    extra = MessageExtra(priority=2, expires_at=900, deliver_at=800, dedup_id=b"one")
    queue = queue_of(GroupMoved(Q, 0, head, 1), add(1, 3, i0=extra, i1=extra, i2=extra))
    assert [list(queue.expires), list(queue.delayed)] == [kept, kept]
    assert sum(map(len, queue.priorities.values())) == len(kept)
    assert bool(queue.chunks) == bool(kept)
    assert list(queue.dedup) == [b"one"]


def test_dedup_ids_leave_the_window_when_messages_without_ids_come() -> None:
    options = QueueOptions(dedup_window_ms=1_000)
    before = add(1, 1, 100, i0=MessageExtra(dedup_id=b"1"))
    assert queue_of(before, add(2, 1, 1_100), options=options).dedup == {b"1": remembered(1, 100)}
    assert queue_of(before, add(2, 1, 1_101), options=options).dedup == {}


@pytest.mark.parametrize(
    "ids", [(b"a", b"b", b"c"), (b"a", b"b", b"a"), (b"a", b"", b"c"), (b"x", b"b", b"c"), (b"a", b"x", b"x")]
)
def test_dedup_ids_that_come_together_are_remembered_like_each(ids: tuple[bytes, ...]) -> None:
    before = add(1, 1, 100, i0=MessageExtra(dedup_id=b"x"))
    rows = Rows.of([b"row"] * 3)
    together = MessagesAdded(Q, 2, 200, rows, ExtraColumns(range(3), dedup_ids=ids))
    apart = MessagesAdded(Q, 2, 200, rows, ExtraColumns([0, 1, 2], dedup_ids=ids))
    tables, marks = [], []
    for record in (together, apart):
        state, dirty = state_of(before), Dirty()
        apply(state, record, DeadTable(), dirty)
        tables.append(list(state.queues[Q].dedup.items()))
        marks.append(dirty.dedup[Q])
    assert tables[0] == tables[1]
    assert marks[0] == marks[1]


def test_a_dead_letter_keeps_its_message_and_priority() -> None:
    records = [add(1, 2, i0=MessageExtra(priority=2, expires_at=5)), DeadLettered(Q, 0, [dead(7, 1)])]
    state = state_of(*records, Settled(Q, 0, [(2, 2)]))
    queue = state.queues[Q]
    assert is_alive(queue, 1)
    assert not is_waiting(queue, 1)
    assert (state.dead_count, state.next_dead_id, state.instant) == (1, 8, 200)
    assert {p: list(runs) for p, runs in queue.priorities.items()} == {2: [1]}
    assert queue.expires == {}
    assert queue.chunks == [], "chunks are about what waits"
    state = state_of(*records, DeadRemoved([7, 99]))
    assert (state.dead_count, state.queues[Q].priorities) == (0, {})
    assert not is_alive(state.queues[Q], 1)


def test_an_id_that_something_has_named_is_not_given_to_another_letter() -> None:
    named = DeadRemoved([99])
    assert state_of(named).next_dead_id == 100
    assert state_of(add(1, 1), DeadLettered(Q, 0, [dead(120, 1)]), named).next_dead_id == 121
    plan = JobPlan(kind=JobKind.PURGE_DEAD, filter={}, last_id=30)
    job = StoredJob(job_id=1, plan=plan, created_at=1, state=JobState.QUEUED)
    assert state_of(JobStarted(job)).next_dead_id == 31


def test_one_message_may_die_in_two_groups() -> None:
    records = [
        GroupCreated(Q, 1, "other", True, 1), add(1, 1),
        DeadLettered(Q, 0, [dead(1, 1)]), DeadLettered(Q, 1, [dead(2, 1)]),
    ]  # fmt: skip
    assert is_alive(queue_of(*records, DeadRemoved([2])), 1)
    assert not is_alive(queue_of(*records, DeadRemoved([2, 1])), 1)


def test_a_deleted_queue_stays_until_its_last_dead_letter_goes() -> None:
    records = [add(1, 5), DeadLettered(Q, ALL_GROUPS, [dead(1, 2), dead(2, 4)]), QueueDeleted(Q)]
    queue = queue_of(*records)
    assert (queue.deleted, queue.groups, queue.chunks) == (True, {}, [])
    assert alive_runs(queue, 1, 5) == [(2, 2), (4, 4)]
    assert Q in state_of(*records, DeadRemoved([1])).queues
    assert Q not in state_of(*records, DeadRemoved([1]), DeadRemoved([2])).queues
    assert Q not in state_of(add(1, 5), QueueDeleted(Q)).queues


def test_facts_about_what_is_gone_are_ignored() -> None:
    state = state_of(QueueDeleted(Q), add(1, 5), HandedOut(Q, 0, [(1, 5)]), GroupMoved(Q, 0, 3, 1), QueueDeleted(Q))
    assert state.queues == {}
    queue = queue_of(add(1, 5), HandedOut(Q, 9, [(1, 5)]), Settled(Q, 9, [(1, 5)]))
    assert alive_runs(queue, 1, 5) == [(1, 5)]


def test_the_log_keeps_messages_until_they_are_dropped() -> None:
    log = QueueOptions(retention=Retention.LOG)
    records = [add(1, 6), HandedOut(Q, 0, [(1, 6)]), Settled(Q, 0, [(1, 6)]), Dropped(Q, [(1, 2)], Reason.RETENTION)]
    queue = queue_of(*records, options=log)
    assert alive_runs(queue, 1, 6) == [(3, 6)]
    assert (waiting_floor(queue), queue.dropped.runs()) == (3, [(1, 2)])
    queue = queue_of(*records, QueueChanged(Q, QueueOptions()), options=log)
    assert (alive_runs(queue, 1, 6), queue.dropped.runs(), queue.chunks) == ([], [], [])


def test_a_moved_group_starts_over_at_its_head() -> None:
    group = queue_of(add(1, 9), HandedOut(Q, 0, [(1, 3), (7, 8)]), GroupMoved(Q, 0, 5, 2)).groups[0]
    assert (group.head, group.epoch, group.pending.runs(), group.taken.runs()) == (5, 2, [], [])


def test_chunks_grow_to_a_bound_and_go_when_nothing_in_them_waits() -> None:
    big = Rows.of([b"x" * (CHUNK_BYTES_MAX // 2)])
    records = [MessagesAdded(Q, n, 100 + n, big) for n in range(1, 6)]
    chunks = queue_of(*records).chunks
    assert [(chunk.first, chunk.last, chunk.published_at) for chunk in chunks] == [
        (1, 2, 101),
        (3, 4, 103),
        (5, 5, 105),
    ]
    assert sum(chunk.size for chunk in chunks) == 5 * big.size
    queue = queue_of(*records, HandedOut(Q, 0, [(1, 5)]), Settled(Q, 0, [(3, 4)]))
    assert [chunk.first for chunk in queue.chunks] == [1, 5]


def test_chunks_are_finer_where_age_decides() -> None:
    records = [add(1, 1, 100), add(2, 1, 1_100), add(3, 1, 1_200)]
    assert [c.last for c in queue_of(*records).chunks] == [3]
    assert [c.last for c in queue_of(*records, options=QueueOptions(message_ttl_ms=5)).chunks] == [2, 3]
    log = QueueOptions(retention=Retention.LOG, retain_ms=5)
    assert [c.last for c in queue_of(*records, options=log).chunks] == [2, 3]


def test_dirty_names_what_was_touched_and_nothing_else() -> None:
    dirty = Dirty()
    state = state_of(add(1, 50), dirty=dirty)
    dirty.clear()
    apply(state, HandedOut(Q, 0, [(1, 20)]), DeadTable(), dirty)
    assert (dirty.queues, dirty.groups, dirty.chunks, dirty.left) == (set(), {(Q, 0)}, set(), {})
    dirty.clear()
    apply(state, Settled(Q, 0, [(1, 5)]), DeadTable(), dirty)
    assert {queue_id: runs.runs() for queue_id, runs in dirty.left.items()} == {Q: [(1, 5)]}
    assert (dirty.queues, dirty.groups, len(dirty.run_pages), dirty.value_pages) == (set(), set(), 1, set())


def test_transient_messages_are_not_persistent_but_definitions_are() -> None:
    transient = QueueOptions(durability=Durability.TRANSIENT)
    state = state_of(options=transient)
    assert not any(
        persistent(state, record)
        for record in (
            add(1, 1),
            HandedOut(Q, 0, [(1, 1)]),
            Returned(Q, 0, {}),
            Settled(Q, 0, []),
            Dropped(Q, [], Reason.PURGED),
            DeadLettered(Q, 0, []),
        )
    )
    definitions = (QueueChanged(Q, transient), QueueDeleted(Q), GroupCreated(Q, 1, "g", True, 1), DeadRemoved([1]))
    assert all(persistent(state, record) for record in definitions)
    assert all(persistent(state_of(), record) for record in (add(1, 1), Settled(Q, 0, [])))


def test_a_restart_forgets_transient_messages_and_never_reuses_a_sequence() -> None:
    transient = QueueOptions(durability=Durability.TRANSIENT)
    records = [add(1, 9, i0=MessageExtra(2, 5, 5, b"d")), HandedOut(Q, 0, [(1, 5)]), DeadLettered(Q, 0, [dead(1, 2)])]
    state = state_of(*records, options=transient)
    restart_transient(state, 5_000)
    queue = state.queues[Q]
    assert queue.next_sequence == 5_000_000
    assert alive_runs(queue, 1, queue.next_sequence) == []
    assert (queue.groups[0].head, len(queue.groups[0].pending)) == (5_000_000, 0)
    assert not any((queue.chunks, queue.priorities, queue.expires, queue.delayed, queue.dedup, queue.dead))
    restart_transient(state, 4_000)
    assert queue.next_sequence == 5_000_000, "not even when the clock goes back"
    kept = state_of(*records)
    restart_transient(kept, 5_000)
    assert kept == state_of(*records)


def test_a_fast_publisher_cannot_fill_the_dedup_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibemq.storage.state.messages.DEDUP_IDS_MAX", 3)
    batches = [MessagesAdded(Q, n, 100, Rows.of([b"row"]), {0: MessageExtra(dedup_id=b"%d" % n)}) for n in range(1, 9)]
    known = state_of(*batches).queues[Q].dedup
    assert list(known) == [b"5", b"6", b"7", b"8"], "pruned before each addition, oldest first"


@pytest.mark.parametrize("with_ids", [False, True])
def test_publishes_do_not_look_for_the_oldest_dedup_id_behind_all_that_have_gone(*, with_ids: bool) -> None:
    """Each walk of the table goes through the places of what has left it."""
    batch = MessagesAdded(
        Q, 1, 100, Rows.of([b"row"] * 3_000), {n: MessageExtra(dedup_id=b"%d" % n) for n in range(3_000)}
    )
    later = [add(n, 1, n, i0=MessageExtra(dedup_id=b"%d" % n)) for n in range(3_001, 4_001)]
    state = state_of(batch, *later, options=QueueOptions(dedup_window_ms=1_000))
    with patch.object(DedupTable, "oldest_first", autospec=True, side_effect=DedupTable.oldest_first) as walks:
        for n in range(4_001, 4_901):
            extra = {"i0": MessageExtra(dedup_id=b"%d" % n)} if with_ids else {}
            apply(state, add(n, 1, n, **extra), DeadTable())
    assert next(iter(state.queues[Q].dedup)) == b"3900"
    assert walks.call_count <= 2


def test_a_crowd_of_overdue_dedup_ids_is_forgotten_over_several_records() -> None:
    ids = {index: MessageExtra(dedup_id=b"%d" % index) for index in range(9_000)}
    state = state_of(MessagesAdded(Q, 1, 100, Rows.of([b"row"] * 9_000), ids))
    late, known = 100_000_000, [9_000]
    while len(state.queues[Q].dedup) > 1:
        more = {0: MessageExtra(dedup_id=b"late-%d" % len(known))}
        apply(state, MessagesAdded(Q, 9_000 + len(known), late * len(known), Rows.of([b"row"]), more), DeadTable())
        known.append(len(state.queues[Q].dedup))
    assert len(known) == 6
    assert all(before - after <= 2_000 for before, after in pairwise(known))
