"""What was appended comes back after a restart, and after a kill."""

import signal
import subprocess
import sys

from vibemq.model.extras.dedup_table import remembered
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import (
    Attempts,
    CursorChanged,
    CursorFacts,
    DeadLettered,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    HandedOut,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
    QueueDeleted,
    Reason,
    Record,
    Returned,
    Settled,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import StoredState
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, letter, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject, durable, restart
from vibemq.testing.storage_workload import LOG, STRONG, TRANSIENT, rows


@durable
def check_messages_and_progress_come_back(subject: Subject) -> None:
    _, state = restart(
        subject,
        [
            [*queue(), added(1, 50)],
            [HandedOut(1, 0, [(1, 20)]), Settled(1, 0, [(1, 5), (7, 9)])],
            [Returned(1, 0, {6: Attempts(2, 1, 2_100, 2_200, 4_000, "later")})],
        ],
    )
    group = state.queues[1].groups[0]
    assert group.head == 21
    assert group.pending.runs() == [(6, 6), (10, 20)]
    assert group.attempts == {6: Attempts(2, 1, 2_100, 2_200, 4_000, "later")}
    assert state.queues[1].next_sequence == 51
    assert state.lsn == 3


@durable
def check_extras_come_back(subject: Subject) -> None:
    extras = {
        0: MessageExtra(priority=3),
        2: MessageExtra(expires_at=9_000),
        4: MessageExtra(deliver_at=8_000, dedup_id=b"\x00once"),
    }
    batch = MessagesAdded(1, 1, 2_000, rows(1, 5), extras)
    _, state = restart(subject, [queue(), [batch]])
    stored = state.queues[1]
    assert {p: list(runs) for p, runs in stored.priorities.items()} == {3: [1]}
    assert stored.expires == {3: 9_000}
    assert stored.delayed == {5: 8_000}
    assert stored.dedup == {b"\x00once": remembered(5, 2_000)}


@durable
def check_groups_come_back(subject: Subject) -> None:
    restart(
        subject,
        [
            [*queue(), added(1, 30), GroupCreated(1, 1, "spark", True, 1), GroupCreated(1, 2, "gone", False, 31)],
            [GroupMoved(1, 1, 11, 4), GroupDeleted(1, 2), HandedOut(1, 0, [(1, 30)]), Settled(1, 0, [(1, 30)])],
        ],
    )


def plans(state: StoredState, group_id: int) -> dict[int, str]:
    return {number: plan.end for number, plan in state.queues[1].groups[group_id].plans.items()}


@durable
def check_cursors_and_their_plans_come_back(subject: Subject) -> None:
    facts = CursorFacts(3, 21, 60_000, 0, 0, False, 0, "spark", ((25, 26),), ((30, 30),), 11, False, True)
    made = [PlanMade(1, 1, number, Plan(f"tag-{number}", f"end {number}")) for number in range(1, 301)]
    _, state = restart(
        subject,
        [
            [*queue(), added(1, 30), GroupCreated(1, 1, "etl", True, 1), GroupCreated(1, 2, "audit", True, 1)],
            [CursorChanged(1, 1, facts), *made],
            [PlanMade(1, 2, 7, Plan("t", "end of audit")), PlanMade(1, 9, 1, Plan("t", "no such group"))],
            [PlansForgotten(1, 1, 299), PlansForgotten(1, 2, 5), PlansForgotten(9, 1, 5)],
        ],
    )
    assert state.queues[1].groups[1].cursor == facts
    assert plans(state, 1) == {299: "end 299", 300: "end 300"}
    assert plans(state, 2) == {7: "end of audit"}
    with subject.opened() as (storage, _):
        storage.append([GroupMoved(1, 1, 11, 4), GroupDeleted(1, 2)])
        storage.append([GroupCreated(1, 2, "audit", True, 1), PlanMade(1, 1, 301, Plan("t", "after the move"))])
        storage.backup(subject.data_dir.parent / "copy")
    for data_dir in (None, subject.data_dir.parent / "copy"):
        with subject.opened(data_dir) as (storage, state):
            assert plans(state, 1) == {301: "after the move"}
            assert plans(state, 2) == {}
            assert list(storage.check()) == []


@durable
def check_filters_of_groups_come_back(subject: Subject) -> None:
    _, state = restart(
        subject,
        [
            [*queue(), added(1, 30), GroupCreated(1, 1, "eu", True, 1), GroupCreated(1, 2, "all", True, 1)],
            [GroupFiltered(1, 1, 'region == "eu"'), GroupFiltered(1, 2, "n > 3"), GroupFiltered(1, 9, "n > 4")],
            [GroupOwned(1, 1, "ann"), GroupFiltered(1, 2, ""), Settled(1, 1, [(2, 7)])],
        ],
    )
    assert [(group.owner, group.where) for group in state.queues[1].groups.values()] == [
        ("", ""),
        ("ann", 'region == "eu"'),
        ("", ""),
    ]
    with subject.opened() as (storage, _):
        storage.append([GroupFiltered(1, 2, "total > 5"), GroupDeleted(1, 1), GroupCreated(1, 1, "eu", True, 1)])
        storage.backup(subject.data_dir.parent / "copy")
    for data_dir in (None, subject.data_dir.parent / "copy"):
        with subject.opened(data_dir) as (storage, state):
            assert [group.where for group in state.queues[1].groups.values()] == ["", "", "total > 5"]
            assert list(storage.check()) == []


@durable
def check_log_retention_keeps_what_is_settled(subject: Subject) -> None:
    model, _ = restart(
        subject,
        [
            [*queue(1, LOG), added(1, 30)],
            [HandedOut(1, 0, [(1, 30)]), Settled(1, 0, [(1, 30)])],
            [Dropped(1, [(1, 10), (15, 15)], Reason.RETENTION)],
        ],
    )
    assert len(model.live.alive(1)) == 19


@durable
def check_queue_changes_come_back(subject: Subject) -> None:
    changed = STRONG.with_changes(max_attempts=9, message_ttl_ms=60_000)
    _, state = restart(subject, [queue(), [QueueChanged(1, changed)], queue(2), [QueueDeleted(2)]])
    assert state.queues[1].options == changed
    assert 2 not in state.queues
    assert state.next_queue_id == 3


@durable
def check_a_queue_remembers_that_it_had_a_consumer(subject: Subject) -> None:
    passing = STRONG.with_changes(auto_delete=True, expires_ms=60_000)
    _, state = restart(subject, [queue(1, passing), queue(2, passing), [QueueAttended(1)]])
    assert [state.queues[number].attended for number in (1, 2)] == [True, False]
    assert state.queues[1].options == passing


@durable
def check_many_messages_come_back_in_any_block(subject: Subject) -> None:
    batches: list[list[Record]] = [queue()]
    batches += [[added(1 + 200 * i, 200, at=2_000 + i, size=300)] for i in range(30)]
    batches.append([HandedOut(1, 0, [(1, 3_000)]), Settled(1, 0, [(1, 1_000), (1_500, 2_900)])])
    restart(subject, batches)


@durable
def check_transient_messages_never_reach_the_disk(subject: Subject) -> None:
    mark = b"only-in-memory-" * 3
    secret = Rows.of([pack_row("m1", mark)])
    with subject.opened() as (storage, _):
        storage.append([*queue(1, TRANSIENT), *queue(2)])
        storage.append([MessagesAdded(1, 1, 2_000, secret), added(1, 2, queue_id=2)])
        assert storage.read(1, 1, ALL, NO_LIMIT)[0].rows == secret
        storage.append([HandedOut(1, 0, [(1, 1)]), DeadLettered(1, 0, [letter(1, 1)])])
        found = storage.dead_letter(1)
        assert found is not None
        assert found.row == secret[0]
        storage.sync()
        storage.maintain()
    stored = [path for path in subject.data_dir.rglob("*") if path.is_file()]
    assert stored
    assert not [path for path in stored if mark in path.read_bytes()]
    with subject.opened() as (storage, state):
        assert state.queues[1].name == "queue-1"
        assert state.queues[1].next_sequence > 1, "sequences are never used twice"
        assert state.queues[1].groups[0].head == state.queues[1].next_sequence
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert storage.dead_letters() == []
        assert state.dead_count == 0
        assert_rows(storage.read(2, 1, ALL, NO_LIMIT), [1, 2])
        following = state.queues[1].next_sequence
        storage.append([added(following, 2, queue_id=1)])
        assert_rows(storage.read(1, following, ALL, NO_LIMIT), [following, following + 1])


@durable
def check_a_killed_process_loses_no_append(subject: Subject) -> None:
    child = subprocess.Popen(  # noqa: S603 - our own module
        [sys.executable, "-m", "vibemq.testing.storage_child", subject.name, str(subject.data_dir)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    with child.stdout as lines:
        confirmed = [int(next(lines)) for _ in range(60)]
        child.send_signal(signal.SIGKILL)
        confirmed += [int(line) for line in lines if line.endswith("\n")]
    child.wait()
    with subject.opened() as (storage, state):
        assert state.lsn >= confirmed[-1]
        count = 5 * (confirmed[-1] - 1)
        assert sequences(storage.read(1, 1, count, NO_LIMIT)) == list(range(1, count + 1))
        assert list(storage.check()) == []


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
