"""What is appended can be read at once, in ranges and within limits of bytes."""

from collections.abc import Sequence

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import HandedOut, MessagesAdded, Settled
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.interface import IStorageProvider, PicksRows, PreparesRows
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, assert_rows, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject
from vibemq.testing.storage_workload import TRANSIENT, rows


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


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
