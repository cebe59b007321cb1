"""Messages of a stage enter a queue where they are."""

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import Dropped, MessagesAdded, QueueDeleted, Reason, Record, Settled, StageMoved
from vibemq.model.stored import Slice
from vibemq.storage.interface import IStorageProvider, PicksRows
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject, durable
from vibemq.testing.storage_workload import LOG, STRONG, rows

STAGED, MOVED_AT = 12, 5_000
FIRST = 4
"""The sequence that the first message of the stage gets: the queue has three."""


def _staged(first: int, count: int) -> list[Record]:
    extras = {0: MessageExtra(dedup_id=str(first).encode())}
    return [MessagesAdded(2, first, 2_000 + first, rows(first, count), extras)]


def _filled() -> list[list[Record]]:
    return [[*queue(), added(1, 3)], queue(2), _staged(1, 5), _staged(6, STAGED - 5)]


def _move(count: int = STAGED) -> list[Record]:
    return [StageMoved(1, FIRST, MOVED_AT, 2, 1, count), Dropped(2, [(1, count)], Reason.MOVED)]


def _assert_moved(parts: list[Slice], wanted: list[int]) -> None:
    """The rows are those of the stage, and were published when they were moved."""
    assert sequences(parts) == wanted
    for part in parts:
        assert part.published_at == MOVED_AT
        assert part.rows == rows(part.first_sequence - FIRST + 1, part.rows.count)


def check_a_stage_is_read_in_its_queue_at_once(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        for batch in _filled():
            storage.append(batch)
        storage.append(_move())
        storage.append([added(FIRST + STAGED, 2)])
        everything = list(range(FIRST, FIRST + STAGED))
        _assert_moved(storage.read(1, FIRST, FIRST + STAGED - 1, NO_LIMIT), everything)
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == list(range(1, FIRST + STAGED + 2))
        _assert_moved(storage.read(1, FIRST + 3, FIRST + 6, NO_LIMIT), everything[3:7])
        storage.append([QueueDeleted(2)])
        _assert_moved(storage.read(1, FIRST, FIRST + STAGED - 1, NO_LIMIT), everything)
        _picks(storage)


def _picks(storage: IStorageProvider) -> None:
    if not isinstance(storage, PicksRows) or not storage.picks(1):
        return
    wanted, at = [FIRST, FIRST + 4, FIRST + 5, FIRST + STAGED - 1], 0
    found: list[Slice] = []
    while at < len(wanted):
        some, looked_at = storage.pick(1, wanted[at:], NO_LIMIT)
        found += some
        at += looked_at
    _assert_moved(found, wanted)


def check_a_stage_with_holes(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append([*queue(), added(1, 3), *queue(2)])
        storage.append(_staged(1, 4))
        storage.append([*_staged(7, 6), Dropped(2, [(5, 6)], Reason.OVERFLOW)])
        hole = Dropped(1, [(FIRST + 4, FIRST + 5)], Reason.OVERFLOW)
        storage.append([*_move()[:1], Dropped(2, [(1, 4), (7, 12)], Reason.MOVED), hole])
        wanted = [*range(FIRST, FIRST + 4), *range(FIRST + 6, FIRST + 12)]
        _assert_moved(storage.read(1, FIRST, ALL, NO_LIMIT), wanted)
        assert list(storage.check()) == []


@durable
def check_a_stage_survives_a_restart_behind_every_batch(subject: Subject) -> None:
    """With restarts between the batches the rows are stored before the stage is moved, or before it is gone."""
    batches: list[list[Record]] = [*_filled(), _move(), [added(FIRST + STAGED, 2)]]
    batches += [[QueueDeleted(2)], [Settled(1, 0, [(1, 8)])]]
    for stop in range(len(_filled()), len(batches) + 1):
        folder = subject.data_dir / f"stop-{stop}"
        folder.mkdir(parents=True)
        for number, batch in enumerate(batches, 1):
            with subject.opened(folder) as (storage, _):
                storage.append(batch)
                if number < stop:
                    continue
                for more in batches[number:]:
                    storage.append(more)
            break
        with subject.opened(folder) as (storage, state):
            assert sorted(state.queues) == [1]
            assert state.queues[1].next_sequence == FIRST + STAGED + 2
            _assert_moved(storage.read(1, 9, FIRST + STAGED - 1, NO_LIMIT), list(range(9, FIRST + STAGED)))
            _picks_after(storage)
            assert list(storage.check()) == []


def _picks_after(storage: IStorageProvider) -> None:
    if isinstance(storage, PicksRows) and storage.picks(1):
        _assert_moved(storage.pick(1, [10, 13], NO_LIMIT)[0], [10, 13])


@durable
def check_a_stage_of_which_some_is_gone(subject: Subject) -> None:
    """At its front, in the middle and at its end; with restarts it is stored before, in blocks with what is there."""
    gone = [(1, 4), (7, 7), (11, STAGED)]
    there = [(5, 6), (8, 10)]
    holes = [(first + FIRST - 1, last + FIRST - 1) for first, last in gone]
    batches: list[list[Record]] = [*_filled(), [Dropped(2, gone, Reason.MOVED)]]
    batches.append([*_move()[:1], Dropped(2, there, Reason.MOVED), Dropped(1, holes, Reason.OVERFLOW)])
    batches += [[QueueDeleted(2)], [added(FIRST + STAGED, 2)]]
    wanted = [number + FIRST - 1 for first, last in there for number in range(first, last + 1)]
    # Nothing is stored before; the stage is, then what is gone of it, then the move.
    for restarts in range(len(_filled()) - 1, len(batches) - 1):
        folder = subject.data_dir / f"restarts-{restarts}"
        folder.mkdir(parents=True)
        for batch in batches[:restarts]:
            with subject.opened(folder) as (storage, _):
                storage.append(batch)
        with subject.opened(folder) as (storage, _):
            for batch in batches[restarts:]:
                storage.append(batch)
            _assert_living(storage, wanted)
        with subject.opened(folder) as (storage, state):
            assert sorted(state.queues) == [1]
            _assert_living(storage, wanted)
            assert list(storage.check()) == []


def _assert_living(storage: IStorageProvider, wanted: list[int]) -> None:
    """What has left may be there or not."""
    parts = storage.read(1, FIRST, FIRST + STAGED - 1, NO_LIMIT)
    living = {
        number: Slice(number, part.published_at, part.rows.slice(at, at + 1))
        for part in parts
        for at, number in enumerate(sequences([part]))
    }
    _assert_moved([living[number] for number in wanted], wanted)
    assert [part.rows for part in storage.read(1, FIRST + STAGED, ALL, NO_LIMIT)] == [rows(FIRST + STAGED, 2)]


@durable
def check_nothing_of_a_stage_is_left_with_its_queue(subject: Subject) -> None:
    ways: list[Record] = [Settled(1, 0, [(1, FIRST + STAGED - 1)]), QueueDeleted(1)]
    for last in ways:
        folder = subject.data_dir / type(last).__name__
        folder.mkdir(parents=True)
        for batch in (*_filled(), [*_move(), QueueDeleted(2)], [last]):
            with subject.opened(folder) as (storage, _):
                storage.append(batch)
        with subject.opened(folder) as (storage, state):
            assert storage.read(1, 1, ALL, NO_LIMIT) == []
            assert list(storage.check()) == []
            # What is given out next must not meet what was there.
            storage.append([*queue(3, LOG), added(1, 3, queue_id=3)])
            assert sequences(storage.read(3, 1, ALL, NO_LIMIT)) == [1, 2, 3]
            assert state.next_queue_id == 3


@durable
def check_repair_finds_the_blocks_of_stages(subject: Subject) -> None:
    if subject.repair is None:
        return
    gone: list[Record] = [QueueDeleted(2)]
    for batch in (*_filled(), _move(), gone):
        with subject.opened() as (storage, _):
            storage.append(batch)
    assert subject.repair(subject.data_dir) == []
    with subject.opened() as (storage, state):
        assert sorted(state.queues) == [1]
        assert state.next_queue_id == 3
        _assert_moved(storage.read(1, FIRST, ALL, NO_LIMIT), list(range(FIRST, FIRST + STAGED)))
        assert list(storage.check()) == []


def check_a_queue_that_nobody_reads_keeps_nothing(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        created = queue(1, STRONG)[:1]
        storage.append([*created, *queue(2), *_staged(1, STAGED)])
        storage.append([StageMoved(1, 1, MOVED_AT, 2, 1, STAGED), Dropped(2, [(1, STAGED)], Reason.MOVED)])
        assert list(storage.check()) == []
    with subject.opened() as (storage, _):
        assert storage.read(1, 1, ALL, NO_LIMIT) == []
        assert list(storage.check()) == []


CHECKS: list[Check] = [
    check_a_stage_is_read_in_its_queue_at_once,
    check_a_stage_with_holes,
    check_a_stage_survives_a_restart_behind_every_batch,
    check_a_stage_of_which_some_is_gone,
    check_nothing_of_a_stage_is_left_with_its_queue,
    check_repair_finds_the_blocks_of_stages,
    check_a_queue_that_nobody_reads_keeps_nothing,
]
