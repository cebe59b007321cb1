"""What happens to a transient queue in one batch: some of it is written, the rest is not, and all of it is in order."""

import gc
from collections.abc import Sequence
from weakref import ref

from vibemq.model.records import (
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    GroupDeleted,
    GroupMoved,
    HandedOut,
    QueueDeleted,
    Reason,
    Record,
    Settled,
)
from vibemq.storage.interface import IStorageProvider
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT, added, letter, queue, sequences
from vibemq.testing.storage_conformance.subject import Check, Subject
from vibemq.testing.storage_workload import TRANSIENT, rows


def check_a_letter_outlives_its_transient_queue_that_is_deleted_in_the_same_batch(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        _begin(storage)
        storage.append([DeadLettered(1, 0, [letter(1, 2)]), QueueDeleted(1)])
        [found] = storage.dead_letters()
        assert (found.facts, found.row, found.queue) == (letter(1, 2), rows(2, 1)[0], "queue-1")
        assert storage.dead_queues() == [(1, "queue-1")]
        assert sequences(storage.read(1, 3, ALL, NO_LIMIT)) == []
        assert list(storage.check()) == []


def check_a_transient_group_that_settles_and_goes_back_in_one_batch_gets_its_messages_again(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        _begin(storage)
        storage.append([Settled(1, 0, [(1, 5)]), GroupMoved(1, 0, 3, 2)])
        assert sequences(storage.read(1, 3, ALL, NO_LIMIT)) == [3, 4, 5, 6, 7, 8]
        storage.append([Settled(1, 0, [(1, 8)])])
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == []


def check_messages_that_lose_their_only_transient_group_in_the_same_batch_are_not_kept(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        storage.append(queue(1, TRANSIENT))
        storage.append([added(1, 8), GroupDeleted(1, 0)])
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == []
        assert storage.stats().buffered_bytes == 0
        storage.append([GroupCreated(1, 1, "late", True, 9), added(9, 1)])
        assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == [9]


def check_a_letter_of_a_transient_queue_comes_and_goes_in_one_batch(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        _begin(storage)
        storage.append([DeadLettered(1, 0, [letter(1, 1), letter(2, 2)]), DeadRemoved([1])])
        assert [dead.facts.dead_id for dead in storage.dead_letters()] == [2]
        assert sequences(storage.read(1, 1, 1, NO_LIMIT)) == []
        storage.append([DeadLettered(1, 0, [letter(3, 3)]), QueueDeleted(1), DeadRemoved([2, 3])])
        assert storage.dead_letters() == []
        assert storage.dead_queues() == []
        assert storage.stats().buffered_bytes == 0


def check_a_removed_letter_of_a_transient_queue_is_kept_nowhere(subject: Subject) -> None:
    class Text(str):
        """One that can be looked for."""

        __slots__ = ("__weakref__",)

    with subject.opened() as (storage, _):
        _begin(storage)
        error = Text("late")
        kept = ref(error)
        storage.append([DeadLettered(1, 0, [DeadFacts(1, 2, Reason.REJECTED, error, 1, 1, 5, 5)])])
        del error
        storage.append([DeadRemoved([1])])
        storage.append([added(9, 1)])
        gc.collect()
        assert kept() is None


def check_a_transient_queue_lives_and_dies_in_one_batch(subject: Subject) -> None:
    with subject.opened() as (storage, _):
        died: list[Record] = [HandedOut(1, 0, [(1, 4)]), DeadLettered(1, 0, [letter(1, 3)])]
        storage.append([*queue(1, TRANSIENT), added(1, 8), *died, QueueDeleted(1)])
        assert [dead.row for dead in storage.dead_letters()] == [rows(3, 1)[0]]


def _begin(storage: IStorageProvider) -> None:
    """A transient queue with eight messages, each added by itself, that are all handed out."""
    messages: Sequence[Record] = [added(sequence, 1) for sequence in range(1, 9)]
    storage.append(queue(1, TRANSIENT))
    storage.append([*messages, HandedOut(1, 0, [(1, 8)])])


CHECKS: list[Check] = [value for name, value in list(globals().items()) if name.startswith("check_")]
