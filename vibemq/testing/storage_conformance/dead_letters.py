"""Dead letters: their messages, pages and filters, and what becomes of them."""

from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import (
    ALL_GROUPS,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    HandedOut,
    MessagesAdded,
    QueueDeleted,
    Reason,
    Record,
    Settled,
)
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, letter, queue
from vibemq.testing.storage_conformance.subject import Check, Subject, durable, restart
from vibemq.testing.storage_workload import rows


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
def check_each_letter_of_a_message_counts(subject: Subject) -> None:
    """Two groups have given up the same messages: after a restart there are as many letters as before, also where the
    store knows of some and the journal of others."""
    with subject.opened() as (storage, _):
        storage.append([*queue(), GroupCreated(1, 1, "other", True, 1), added(1, 3), *queue(2, name="b")])
        storage.append([added(1, 9, queue_id=2), DeadLettered(2, 0, [letter(1, 1)])])
        storage.append([DeadLettered(1, 0, [letter(2, 1), letter(3, 2)]), DeadLettered(1, 1, [letter(4, 1)])])
    later: list[list[Record]] = [
        [DeadLettered(1, 1, [letter(5, 2, error="late"), letter(6, 3)])],
        [DeadRemoved([2])],
        [DeadRemoved([3, 5])],
        [QueueDeleted(1)],
        [DeadRemoved([4])],
    ]
    for batch, letters in zip(later, [3, 5, 4, 2, 2], strict=True):
        with subject.opened() as (storage, state):
            assert {queue_id: queue.letters for queue_id, queue in state.queues.items()} == {1: letters, 2: 1}
            assert state.dead_count == letters + 1
            storage.append(batch)
            assert list(storage.check()) == []
    with subject.opened() as (_, state):
        assert {queue_id: queue.letters for queue_id, queue in state.queues.items()} == {1: 1, 2: 1}


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


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
