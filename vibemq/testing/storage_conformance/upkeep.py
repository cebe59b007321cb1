"""Backups, compaction, figures, and what is done about damage."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from unittest import mock

import pytest

from vibemq.errors import StorageDamaged, StorageError
from vibemq.model.records import (
    ALL_GROUPS,
    DeadLettered,
    HandedOut,
    Settled,
)
from vibemq.model.runs import run_count
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, letter, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject, durable
from vibemq.testing.storage_workload import rows


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


@durable
def check_of_backups_into_one_folder_one_is_written(subject: Subject) -> None:
    """All of them see an empty folder before the first begins; none removes what another has confirmed."""
    target = subject.data_dir.parent / "backup"
    target.mkdir()
    written: list[Path] = []
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 3)])

        def back_up() -> None:
            with suppress(StorageError):
                storage.backup(target)
                written.append(target)

        with _gathered_behind_the_look(target, 4), ThreadPoolExecutor(4) as threads:
            for each in [threads.submit(back_up) for _ in range(4)]:
                each.result()
    assert written == [target]
    with subject.opened(target) as (copy, state):
        assert state.queues[1].next_sequence == 4
        assert_rows(copy.read(1, 1, ALL, NO_LIMIT), [1, 2, 3])


@contextmanager
def _gathered_behind_the_look(folder: Path, number: int) -> Iterator[None]:
    """Whoever finds the folder empty goes on when `number` have found it empty, or when the others do not come to it: a
    provider may let them look one after the other."""
    together = threading.Barrier(number)
    real = Path.iterdir

    def iterdir(self: Path) -> Iterator[Path]:
        found = list(real(self))
        if self == folder and not found:
            with suppress(threading.BrokenBarrierError):
                together.wait(1)
        return iter(found)

    with mock.patch.object(Path, "iterdir", iterdir):
        yield


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
