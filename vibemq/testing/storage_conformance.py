"""Every promise of `IStorageProvider`, as small checks that any provider must pass.

    for check in CHECKS:
        check(subject)

A `Subject` is one data directory and how to open it. Checks about surviving a restart pass over providers that keep
nothing (`durable=False`), and those about damage over subjects without a `damage` hook.
"""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from vibemq.errors import StorageDamaged, StorageError, StorageFenced, StorageLocked, StoreVersionError
from vibemq.model.options import QueueOptions
from vibemq.model.records import (
    ALL_GROUPS,
    Attempts,
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    Dropped,
    GroupCreated,
    GroupDeleted,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    HandedOut,
    MessageExtra,
    MessagesAdded,
    Plan,
    PlanMade,
    PlansForgotten,
    QueueAttended,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Returned,
    Settled,
)
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.runs import run_count
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.interface import FlushesAtOnce, IStorageProvider, PicksRows, PreparesRows, Problem, StoreLocation
from vibemq.storage.local.store_file import StoreInfo, read_store_info, write_store_info
from vibemq.testing.storage_workload import LOG, STRONG, TRANSIENT, DurableModel, rows

ALL = 2**63 - 1
NO_LIMIT = 1 << 40


@dataclass(frozen=True)
class Subject:
    """One provider over one data directory.

    Args:
        data_dir: empty before the check.
        make: a provider for a directory, not yet opened.
        damage: flip one byte in the stored body of every message; the store is closed.
        repair: the plug-in's repair over a directory.
        connect: the plug-in's own; None for a store that is in no place.
        take_over: become the owner of a store that is open, as another machine could; None where a lock rules it out.
    """

    name: str
    data_dir: Path
    make: Callable[[Path], IStorageProvider]
    durable: bool = True
    damage: Callable[[Path], None] | None = None
    repair: Callable[[Path], list[Problem]] | None = None
    take_over: Callable[[Path], None] | None = None
    connect: Callable[[StoreLocation], IStorageProvider] | None = None

    @contextmanager
    def opened(self, data_dir: Path | None = None) -> Iterator[tuple[IStorageProvider, StoredState]]:
        """An open store and its state; closed at the end."""
        storage = self.make(data_dir or self.data_dir)
        try:
            yield storage, storage.open()
        finally:
            storage.close()


Check = Callable[[Subject], None]


# -- records to write -----------------------------------------------------------------------------------------------


def queue(queue_id: int = 1, options: QueueOptions = STRONG, name: str = "") -> list[Record]:
    """A queue and its default group."""
    created = QueueCreated(queue_id, name or f"queue-{queue_id}", options, 1_000, f"{queue_id:032x}")
    return [created, GroupCreated(queue_id, 0, "", True, 1)]


def added(first: int, count: int, queue_id: int = 1, *, at: int = 2_000, size: int = 20) -> MessagesAdded:
    return MessagesAdded(queue_id, first, at, rows(first, count, size))


def letter(dead_id: int, sequence: int, reason: Reason = Reason.REJECTED, error: str = "boom") -> DeadFacts:
    return DeadFacts(dead_id, sequence, reason, error, 3, 2, 2_100, 2_500)


def sequences(parts: Sequence[Slice]) -> list[int]:
    return [part.first_sequence + index for part in parts for index in range(part.rows.count)]


def assert_rows(parts: Sequence[Slice], wanted: Sequence[int], *, size: int = 20) -> None:
    """The slices hold exactly these sequences, each with the row that `rows` makes for it."""
    assert sequences(parts) == list(wanted)
    for part in parts:
        assert part.rows == rows(part.first_sequence, part.rows.count, size)


# -- appending and reading ------------------------------------------------------------------------------------------


def check_a_fresh_store_is_empty(subject: Subject) -> None:
    with subject.opened() as (storage, state):
        assert state == StoredState()
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert storage.dead_letters() == []
        assert storage.dead_letter(1) is None
        assert list(storage.check()) == []


def check_appended_rows_are_readable_at_once(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 3)])
        storage.append([added(4, 2, at=2_500)])
        parts = storage.read(1, 1, ALL, NO_LIMIT)
        assert_rows(parts, [1, 2, 3, 4, 5])
        assert [p.published_at for p in parts for _ in range(p.rows.count)] == [2_000] * 3 + [2_500] * 2


def check_lsn_counts_batches(subject: Subject) -> None:
    with subject.opened() as (storage, state):
        first = storage.append(queue())
        assert first == state.lsn + 1
        assert storage.append([added(1, 1)]) == first + 1
        assert storage.sync() >= first + 1
        stats = storage.stats()
        assert stats.last_lsn == first + 1
        assert stats.durable_lsn >= first + 1


def check_the_returned_state_is_a_copy(subject: Subject) -> None:
    with subject.opened() as (storage, state):
        storage.append([*queue(), added(1, 1)])
        assert state.queues == {}
        state.queues.clear()
        assert_rows(storage.read(1, 1, 1, NO_LIMIT), [1])


def check_read_takes_ranges(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 10), *queue(2), added(1, 4, queue_id=2)])
        storage.append([added(11, 10)])
        assert_rows(storage.read(1, 9, 12, NO_LIMIT), [9, 10, 11, 12])
        assert_rows(storage.read(1, 20, 20, NO_LIMIT), [20])
        assert_rows(storage.read(1, 1, 1, NO_LIMIT), [1])
        assert_rows(storage.read(2, 1, ALL, NO_LIMIT), [1, 2, 3, 4])
        assert storage.read(1, 21, ALL, NO_LIMIT) == []
        assert storage.read(9, 1, ALL, NO_LIMIT) == []


def check_rows_far_apart_are_picked(subject: Subject) -> None:
    """Where the provider does that: as `read` of each."""
    wanted = [1, 2, 4, 39, 41, 80, 81, 300, 1_200, 2_400, 2_401]
    there = [1, 2, 39, 41, 80, 81, 300, 1_200, 2_400]
    with subject.opened() as (storage, _):
        storage.append([*queue(), *queue(2, TRANSIENT)])
        for first in range(1, 2_401, 80):
            for queue_id in (1, 2):
                storage.append([added(first, 80, queue_id, at=2_000 + first, size=first % 60 + 5)])
        storage.append([Settled(queue_id, 0, [(4, 38), (100, 299)]) for queue_id in (1, 2)])
        if not isinstance(storage, PicksRows):
            return
        for queue_id in (1, 2):
            assert storage.picks(queue_id)
            found, looked_at = storage.pick(queue_id, wanted, NO_LIMIT)
            assert looked_at == len(wanted)
            assert [part for part in found if part.first_sequence != 4] == _one_by_one(storage, queue_id, there)
        assert storage.pick(1, wanted, 1)[1] < len(wanted)
        assert storage.pick(9, [1, 2], NO_LIMIT) == ([], 2)
    with subject.opened() as (storage, _):
        assert isinstance(storage, PicksRows)
        found, _ = storage.pick(1, wanted, NO_LIMIT)
        assert [part for part in found if part.first_sequence != 4] == _one_by_one(storage, 1, there)


def _one_by_one(storage: IStorageProvider, queue_id: int, wanted: Sequence[int]) -> list[Slice]:
    return [part for sequence in wanted for part in storage.read(queue_id, sequence, sequence, NO_LIMIT)]


def check_read_keeps_its_byte_limit(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        for first in (1, 11, 21):
            storage.append([added(first, 10, size=100)])
        row = rows(1, 1, 100).size
        assert sequences(storage.read(1, 1, ALL, 1)) == [1], "one row at least, however big"
        got = storage.read(1, 1, ALL, 15 * row + 300)
        assert sequences(got) == list(range(1, len(sequences(got)) + 1))
        assert sum(part.rows.size for part in got) <= 15 * row + 300
        assert len(sequences(got)) >= 10
        assert sequences(storage.read(1, 25, ALL, 1)) == [25]


def check_big_and_small_rows_share_a_queue(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        storage.append([added(1, 2, size=700_000)])
        storage.append([added(3, 2, size=10)])
        assert_rows(storage.read(1, 1, 2, NO_LIMIT), [1, 2], size=700_000)
        assert_rows(storage.read(1, 3, 4, NO_LIMIT), [3, 4], size=10)


LARGE_ROW = pack_row("large", bytes(range(256)) * (1 << 16))
"""16 MiB."""


def check_large_rows_stand_among_small_ones(subject: Subject) -> None:
    """Written with their record, and ahead of it where the provider does that."""
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 2)])
        storage.append([MessagesAdded(1, 3, 1_000, Rows.of([LARGE_ROW]))])
        storage.append([added(4, 2)])
        ahead = LargeRow(LARGE_ROW)
        if isinstance(storage, PreparesRows):
            storage.prepare(ahead)
        storage.append([added(6, 1)])
        storage.append([MessagesAdded(1, 7, 1_000, ahead, {0: MessageExtra(dedup_id=b"d")}), Settled(1, 0, [(1, 1)])])
        storage.append([added(8, 1)])
        storage.sync()
        assert_rows(storage.read(1, 4, 5, NO_LIMIT), [4, 5])
        assert [part.rows.count for part in storage.read(1, 3, 3, 1)] == [1]
        assert storage.read(1, 7, 8, 1)[0].rows[0] == LARGE_ROW
        assert sequences(storage.read(1, 2, 8, 1_000)) == [2]
        storage.append([Settled(1, 0, [(2, 6)])])
        storage.maintain()
        assert storage.read(1, 7, 7, 1)[0].rows[0] == LARGE_ROW
    if subject.durable:
        with subject.opened() as (storage, _):
            assert storage.read(1, 7, 7, 1)[0].rows[0] == LARGE_ROW
            assert_rows(storage.read(1, 8, 8, NO_LIMIT), [8])
            assert list(storage.check()) == []


def check_holes_break_slices(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        # Numbers that were taken and never written are settled with whatever comes behind them.
        storage.append([*queue(), added(1, 3), Settled(1, 0, [(4, 9)]), added(10, 3)])
        parts = storage.read(1, 1, ALL, NO_LIMIT)
        assert_rows(parts, [1, 2, 3, 10, 11, 12])
        assert_rows(storage.read(1, 4, 9, NO_LIMIT), [])


def check_nothing_alive_is_ever_lost_to_settling(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 100)])
        storage.append([HandedOut(1, 0, [(1, 100)])])
        storage.append([Settled(1, 0, [(1, 49), (51, 100)])])
        storage.maintain()
        assert 50 in sequences(storage.read(1, 1, ALL, NO_LIMIT))
        assert_rows(storage.read(1, 50, 50, NO_LIMIT), [50])


# -- restart ----------------------------------------------------------------------------------------------------------


def restart(subject: Subject, batches: Sequence[Sequence[Record]]) -> tuple[DurableModel, StoredState]:
    """Write the batches, close, open again; the model is what must have come back."""
    model = DurableModel()
    with subject.opened() as (storage, _):
        for batch in batches:
            storage.append(batch)
            model.apply(list(batch))
    with subject.opened() as (storage, state):
        model.restart(state)
        for queue_id in model.live.state.queues:
            wanted = model.live.alive(queue_id)
            got = {
                part.first_sequence + index: (row, part.published_at)
                for part in storage.read(queue_id, 1, ALL, NO_LIMIT)
                for index, row in enumerate(part.rows)
            }
            assert {s: got.get(s) for s in wanted} == wanted
        assert list(storage.check()) == []
    return model, state


def durable(check: Check) -> Check:
    """The check is about what survives a restart."""

    def run(subject: Subject) -> None:
        if not subject.durable:
            pytest.skip("keeps nothing over a restart")
        check(subject)

    run.__name__ = check.__name__
    return run


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
    assert stored.dedup == {b"\x00once": (5, 2_000)}


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


# -- dead letters -----------------------------------------------------------------------------------------------------


def check_dead_letters_carry_their_message(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), MessagesAdded(1, 1, 2_000, rows(1, 6), {2: MessageExtra(priority=3)})])
        storage.append([HandedOut(1, 0, [(1, 6)])])
        storage.append([DeadLettered(1, 0, [letter(1, 3), letter(2, 5, Reason.EXPIRED, "ö")])])
        storage.append([Settled(1, 0, [(1, 2), (4, 4), (6, 6)])])
        storage.maintain()
        found = storage.dead_letters()
        assert [dead.facts for dead in found] == [letter(1, 3), letter(2, 5, Reason.EXPIRED, "ö")]
        assert [dead.row for dead in found] == [rows(3, 1)[0], rows(5, 1)[0]]
        assert [dead.priority for dead in found] == [3, 1]
        assert {(dead.queue_id, dead.queue, dead.group, dead.published_at) for dead in found} == {
            (1, "queue-1", "", 2_000)
        }
        assert storage.dead_letter(2) == found[1]
        assert storage.dead_letter(3) is None


def check_dead_letters_page_and_filter(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(1, name="a"), *queue(2, name="b"), added(1, 20), added(1, 20, queue_id=2)])
        for dead_id in range(1, 21):
            storage.append([DeadLettered(1 + dead_id % 2, ALL_GROUPS, [letter(dead_id, dead_id)])])
        assert [d.facts.dead_id for d in storage.dead_letters(limit=3)] == [1, 2, 3]
        assert [d.facts.dead_id for d in storage.dead_letters(after=18)] == [19, 20]
        assert [d.facts.dead_id for d in storage.dead_letters(after=3, limit=2, queue="a")] == [4, 6]
        assert {d.queue for d in storage.dead_letters(queue="b")} == {"b"}
        assert storage.dead_letters(queue="c") == []


def check_a_replay_is_one_batch(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 2), DeadLettered(1, ALL_GROUPS, [letter(1, 1), letter(2, 2)])])
        storage.append([MessagesAdded(1, 3, 3_000, rows(1, 1)), DeadRemoved([1], replayed=True)])
        assert [dead.facts.dead_id for dead in storage.dead_letters()] == [2]
        assert storage.read(1, 3, 3, NO_LIMIT)[0].rows == rows(1, 1)
        storage.append([DeadRemoved([1, 2, 99])])
        assert storage.dead_letters() == []
        assert list(storage.check()) == []


def check_two_groups_may_bury_one_message(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), GroupCreated(1, 1, "other", True, 1), added(1, 1)])
        storage.append([DeadLettered(1, 0, [letter(1, 1)]), DeadLettered(1, 1, [letter(2, 1)])])
        storage.append([DeadRemoved([1])])
        storage.maintain()
        (left,) = storage.dead_letters()
        assert (left.group, left.row) == ("other", rows(1, 1)[0])
        storage.append([DeadRemoved([2])])
        assert list(storage.check()) == []


@durable
def check_dead_letters_come_back(subject: Subject) -> None:
    batches: list[list[Record]] = [
        [*queue(), added(1, 50)],
        [HandedOut(1, 0, [(1, 50)]), DeadLettered(1, 0, [letter(i, 3 * i) for i in range(1, 9)])],
        [Settled(1, 0, [(s, s) for s in range(1, 51) if s % 3 or s > 24]), DeadRemoved([2, 4])],
    ]
    restart(subject, batches)
    with subject.opened() as (storage, state):
        assert state.dead_count == 6
        assert state.next_dead_id == 9
        assert [d.facts.sequence for d in storage.dead_letters()] == [3, 9, 15, 18, 21, 24]
        assert [d.row for d in storage.dead_letters(after=6)] == [rows(21, 1)[0], rows(24, 1)[0]]


@durable
def check_a_letter_that_is_removed_again_changes_nothing(subject: Subject) -> None:
    """In one batch, in the next, after upkeep, after a restart: the count says what is there."""
    again = DeadRemoved([1])
    with subject.opened() as (storage, _):
        storage.append([*queue(), GroupCreated(1, 1, "other", True, 1), added(1, 3), HandedOut(1, 0, [(1, 3)])])
        storage.append([DeadLettered(1, 0, [letter(1, 1), letter(2, 2)]), again, again])
        storage.append([again, DeadRemoved([1, 1, 2])])
        storage.append([DeadLettered(1, 0, [letter(3, 3)])])
        storage.maintain()
        storage.append([again, DeadRemoved([2])])
        assert [dead.facts.dead_id for dead in storage.dead_letters()] == [3]
    for count in (1, 1, 0, 0):
        with subject.opened() as (storage, state):
            assert state.dead_count == count
            assert state.queues[1].dead.count == count
            assert len(storage.dead_letters()) == count
            assert list(storage.check()) == []
            storage.append([again, DeadRemoved([1, 2])])
            if count and state.queues[1].next_sequence == 5:
                storage.append([DeadRemoved([3]), DeadRemoved([3])])
            elif count:
                storage.append([added(4, 1)])
            storage.maintain()


@durable
def check_a_deleted_queue_keeps_its_dead_letters(subject: Subject) -> None:
    batches: list[list[Record]] = [
        [*queue(1, name="orders"), added(1, 10), DeadLettered(1, ALL_GROUPS, [letter(1, 4)])],
        [QueueDeleted(1), *queue(2, name="orders"), added(1, 2, queue_id=2)],
    ]
    _, state = restart(subject, batches)
    assert state.queues[1].deleted
    assert state.queues[1].groups == {}
    with subject.opened() as (storage, _):
        (dead,) = storage.dead_letters(queue="orders")
        assert dead.row == rows(4, 1)[0]
        storage.append([DeadRemoved([1])])
        assert storage.dead_letters() == []
    with subject.opened() as (storage, state):
        assert set(state.queues) == {2}
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert list(storage.check()) == []


# -- two threads ------------------------------------------------------------------------------------------------------


def check_sync_runs_beside_append(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        done = threading.Event()
        errors: list[BaseException] = []

        def keep_syncing() -> None:
            try:
                while not done.is_set():
                    storage.sync()
                    storage.maintain()
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=keep_syncing)
        thread.start()
        try:
            for index in range(150):
                lsn = storage.append([added(1 + 2 * index, 2)])
                assert_rows(storage.read(1, 1 + 2 * index, ALL, NO_LIMIT), [1 + 2 * index, 2 + 2 * index])
        finally:
            done.set()
            thread.join()
        assert not errors
        assert storage.sync() >= lsn
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == list(range(1, 301))


def check_a_flush_at_once_covers_what_was_appended(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        if not isinstance(storage, FlushesAtOnce):
            pytest.skip("flushes in a thread")
        lsn = storage.append([*queue(), added(1, 3)])
        covered = storage.try_sync()
        assert covered is not None
        assert covered >= lsn
        assert storage.stats().durable_lsn == storage.stats().last_lsn


# -- places ------------------------------------------------------------------------------------------------------------


@durable
def check_a_store_is_where_its_location_says(subject: Subject) -> None:
    if subject.connect is None:
        pytest.skip("the store is in no place")
    first = subject.connect(StoreLocation(subject.data_dir))
    first.open()
    first.append([*queue(), added(1, 3)])
    first.close()
    with subject.opened() as (storage, _):
        assert_rows(storage.read(1, 1, ALL, NO_LIMIT), [1, 2, 3])


# -- owners -----------------------------------------------------------------------------------------------------------


@durable
def check_epochs_rise(subject: Subject) -> None:
    epochs = []
    for _ in range(3):
        with subject.opened() as (storage, _state):
            epochs.append(storage.epoch)
    assert epochs == [0, 0, 0] or epochs[0] < epochs[1] < epochs[2]


@durable
def check_a_former_owner_is_fenced(subject: Subject) -> None:
    if subject.take_over is None:
        pytest.skip("no other owner can open this store")
    with subject.opened() as (storage, _):
        assert storage.epoch > 0
        storage.append([*queue(), added(1, 3)])
        subject.take_over(subject.data_dir)
        for _ in range(2):
            with pytest.raises(StorageFenced, match="taken"):
                storage.append([added(4, 2)])
        with pytest.raises(StorageFenced):
            storage.sync()
        with pytest.raises(StorageFenced):
            storage.maintain()
    with subject.opened() as (storage, _):
        assert_rows(storage.read(1, 1, ALL, NO_LIMIT), [1, 2, 3])
        assert list(storage.check()) == []


# -- several commits under way ----------------------------------------------------------------------------------------


def check_flushes_cover_what_was_appended_before_them(subject: Subject) -> None:
    """As many at a time as the provider says; none covers less than was there when it began."""
    with subject.opened() as (storage, _):
        assert storage.in_flight_max >= 1
        storage.append(queue())
        wrong: list[tuple[int, int]] = []
        errors: list[BaseException] = []
        with ThreadPoolExecutor(storage.in_flight_max) as threads:

            def flush(appended: int) -> None:
                try:
                    covered = storage.sync()
                    if covered < appended:
                        wrong.append((appended, covered))
                except BaseException as exc:
                    errors.append(exc)

            for index in range(100):
                threads.submit(flush, storage.append([added(1 + index, 1)]))
        assert (wrong, errors) == ([], [])
        assert storage.sync() == storage.stats().durable_lsn == storage.stats().last_lsn


def check_reads_run_beside_commits(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        if not storage.concurrent_reads:
            pytest.skip("reads where it appends")
        storage.append([*queue(), added(1, 50)])
        errors: list[BaseException] = []
        done = threading.Event()

        def keep_reading() -> None:
            try:
                while not done.is_set():
                    assert_rows(storage.read(1, 1, 50, NO_LIMIT), range(1, 51))
                    storage.dead_letters()
            except BaseException as exc:
                errors.append(exc)

        thread = threading.Thread(target=keep_reading)
        thread.start()
        try:
            for index in range(100):
                storage.append([added(51 + index, 1)])
                if index % 10 == 0:
                    storage.maintain()
        finally:
            done.set()
            thread.join()
        assert errors == []


# -- the directory ----------------------------------------------------------------------------------------------------


@durable
def check_a_second_owner_is_refused(subject: Subject) -> None:
    with subject.opened():
        second = subject.make(subject.data_dir)
        with pytest.raises(StorageLocked) as refused:
            second.open()
        second.close()
        assert str(os.getpid()) in str(refused.value)
        assert socket.gethostname() in str(refused.value)
    with subject.opened() as (_, state):
        assert state == StoredState()


@durable
def check_everything_is_for_its_owner_alone(subject: Subject) -> None:
    before = os.umask(0o022)
    try:
        with subject.opened() as (storage, _):
            storage.append([*queue(), added(1, 3)])
            storage.sync()
            storage.maintain()
            open_to_others = [
                str(path.relative_to(subject.data_dir))
                for path in subject.data_dir.rglob("*")
                if path.stat().st_mode & 0o077
            ]
    finally:
        os.umask(before)
    assert open_to_others == []


@durable
def check_the_directory_says_whose_it_is(subject: Subject) -> None:
    with subject.opened():
        pass
    info = read_store_info(subject.data_dir)
    assert info is not None
    assert info.provider == subject.name
    write_store_info(subject.data_dir, StoreInfo(info.provider, info.version + 1, info.created_at))
    with pytest.raises(StoreVersionError, match="newer"):
        subject.make(subject.data_dir).open()
    write_store_info(subject.data_dir, StoreInfo("other", info.version, info.created_at))
    with pytest.raises(StoreVersionError, match="other"):
        subject.make(subject.data_dir).open()
    write_store_info(subject.data_dir, info)
    with subject.opened() as (_, state):
        assert state == StoredState()


def check_close_is_idempotent_and_final(subject: Subject) -> None:
    storage = subject.make(subject.data_dir)
    storage.open()
    storage.close()
    storage.close()
    with pytest.raises(StorageError):
        storage.append(queue())


# -- upkeep -----------------------------------------------------------------------------------------------------------


@durable
def check_a_backup_opens(subject: Subject) -> None:
    target = subject.data_dir.parent / "backup"
    seen: list[tuple[int, int]] = []
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 500, size=500), DeadLettered(1, ALL_GROUPS, [letter(1, 7)])])
        storage.append([HandedOut(1, 0, [(1, 6), (8, 10)])])
        storage.backup(target, lambda done, total: seen.append((done, total)))
        storage.append([added(501, 1)])
        with pytest.raises(StorageError):
            storage.backup(target)
        with subject.opened(target) as (copy, state):
            assert state.queues[1].next_sequence == 501
            assert state.queues[1].groups[0].pending.runs() == [(1, 6), (8, 10)]
            assert_rows(copy.read(1, 1, ALL, NO_LIMIT), range(1, 501), size=500)
            assert [dead.facts.dead_id for dead in copy.dead_letters()] == [1]
            assert list(copy.check()) == []
            copy.append([added(501, 1)])
    assert seen


def check_compact_loses_nothing(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        for index in range(20):
            storage.append([added(1 + 50 * index, 50, size=1_000)])
        storage.append([HandedOut(1, 0, [(1, 1_000)]), Settled(1, 0, [(1, 499), (501, 900)])])
        storage.maintain()
        assert storage.compact() >= 0
        wanted = [500, *range(901, 1_001)]
        assert set(wanted) <= set(sequences(storage.read(1, 1, ALL, NO_LIMIT)))
        for part in storage.read(1, 500, ALL, NO_LIMIT):
            assert part.rows == rows(part.first_sequence, part.rows.count, 1_000)
        assert list(storage.check()) == []
        storage.append([added(1_001, 1)])
        assert_rows(storage.read(1, 1_001, ALL, NO_LIMIT), [1_001])


@durable
def check_settled_messages_give_their_space_back(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue())
        for index in range(40):
            storage.append([added(1 + 100 * index, 100, size=1_000)])
        storage.sync()
    with subject.opened() as (storage, _):
        storage.append([HandedOut(1, 0, [(1, 4_000)]), Settled(1, 0, [(1, 4_000)])])
    with subject.opened() as (storage, _):
        storage.compact()
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert storage.stats().store_bytes < 2_000_000


def check_stats_are_plausible(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 100, size=1_000)])
        storage.sync()
        stats = storage.stats()
        assert stats.provider == subject.name
        assert stats.durable_lsn <= stats.last_lsn == 1
        assert stats.applied_lsn <= stats.last_lsn
        held = stats.journal_bytes + stats.store_bytes + stats.buffered_bytes
        assert held >= 100_000
        if subject.durable:
            assert 0 < stats.disk_free_bytes <= stats.disk_total_bytes


# -- damage -----------------------------------------------------------------------------------------------------------


@durable
def check_damaged_messages_are_refused_not_served(subject: Subject) -> None:
    if subject.damage is None:
        pytest.skip("no way to damage this store")
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 300, size=500)])
    subject.damage(subject.data_dir)
    with subject.opened() as (storage, _):
        with pytest.raises(StorageDamaged, match="queue-1"):
            storage.read(1, 1, ALL, NO_LIMIT)
        problems = list(storage.check())
        assert problems
        lost = [(p.first_sequence, p.last_sequence) for p in problems if p.queue == "queue-1" and p.last_sequence]
        assert run_count(lost) == 300
        # What comes after the damage is not held up by it.
        storage.append([added(301, 5)])
        assert_rows(storage.read(1, 301, ALL, NO_LIMIT), range(301, 306))


@durable
def check_repair_saves_the_rest(subject: Subject) -> None:
    if subject.damage is None or subject.repair is None:
        pytest.skip("no way to damage or repair this store")
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 300, size=500), *queue(2)])
    subject.damage(subject.data_dir)
    assert subject.repair(subject.data_dir)
    with subject.opened() as (storage, state):
        assert {q.name for q in state.queues.values()} == {"queue-1", "queue-2"}
        assert state.queues[1].next_sequence == 301
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert list(storage.check()) == []
        storage.append([added(301, 5)])
        assert_rows(storage.read(1, 1, ALL, NO_LIMIT), range(301, 306))


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
