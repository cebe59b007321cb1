"""Publishing: sequences, durability, dedup, auto-creation."""

from itertools import count, pairwise
from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import Batch, EngineSettings
from vibemq.engine.handlers import publish
from vibemq.engine.handlers.append import show
from vibemq.errors import InvalidQueueName, QueueNotFound, StorageFull
from vibemq.model.commands import ChangeQueue, Publish, PurgeQueue, SetCapacity, StartAt, Subscribe
from vibemq.model.effects import Counted, Incomplete, Outcome, Published
from vibemq.model.extras.dedup_table import DEDUP_SEQUENCE_BITS, DedupTable
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import MessagesAdded


def test_sequences_count_from_one_and_go_on() -> None:
    driver = Driver()
    assert driver.publish(3) == Published("q", 1, 3)
    assert driver.publish(2) == Published("q", 4, 2)
    assert driver.info().next_sequence == 6


def test_an_empty_publish_is_answered() -> None:
    driver = Driver()
    driver.create()
    assert driver.publish(0) == Published("q", 0, 0)
    assert driver.info().next_sequence == 1


@pytest.mark.parametrize("durability", [Durability.WEAK, Durability.STRONG])
def test_strong_and_weak_messages_are_told_and_handed_out_only_when_kept(durability: Durability) -> None:
    driver = Driver()
    driver.create(durability=durability)
    driver.subscribe(2)
    driver.hold = True
    assert driver.publish(2) is None
    assert driver.waiting[0].durability is durability
    assert driver.take() == {}
    driver.keep()
    assert driver.take() == {2: [1, 2]}


@pytest.mark.parametrize("durability", [Durability.TRANSIENT, Durability.ASYNC])
def test_transient_and_async_messages_are_handed_out_in_the_same_outcome(durability: Durability) -> None:
    driver = Driver()
    driver.create(durability=durability)
    driver.subscribe(2)
    driver.hold = True
    assert driver.publish(2) == Published("q", 1, 2)
    assert driver.take() == {2: [1, 2]}
    assert driver.waiting[0].durability is durability


def test_later_messages_are_not_shown_before_earlier_ones() -> None:
    driver = Driver()
    driver.create()
    driver.subscribe(2)
    driver.hold = True
    driver.publish(1)
    driver.publish(1)
    first, second = driver.waiting
    driver.waiting = []
    assert driver.submit(driver.engine.committed(second.ticket, driver.now)) == []
    driver.submit(driver.engine.committed(first.ticket, driver.now))
    assert driver.take() == {2: [1, 2]}


def test_publishes_of_one_read_become_one_record() -> None:
    driver = Driver()
    driver.create()
    driver.handle(*(Publish(1, index, "q", rows_of(1)) for index in range(5)))
    (added,) = driver.records_of(MessagesAdded)
    assert added.rows == rows_of(5)
    assert [driver.answer(index).first_sequence for index in range(5)] == [1, 2, 3, 4, 5]


def test_a_missing_queue_is_created_with_the_defaults() -> None:
    driver = Driver(EngineSettings(queue_defaults=QueueOptions(max_attempts=7)))
    driver.publish(1)
    assert driver.info().options.max_attempts == 7


def test_without_auto_creation_a_publish_to_a_missing_queue_is_refused() -> None:
    driver = Driver(EngineSettings(auto_create=False))
    assert isinstance(driver.publish(1), QueueNotFound)
    assert isinstance(Driver().ask(Publish(1, None, "q", rows_of(1), create=False)), QueueNotFound)


def test_an_impossible_name_is_not_created() -> None:
    driver = Driver()
    assert isinstance(driver.publish(1, "no/slash"), InvalidQueueName)
    assert driver.records == []


def test_a_publish_without_token_is_not_answered() -> None:
    driver = Driver()
    driver.handle(Publish(1, None, "q", rows_of(1)))
    assert driver.effects == []
    assert driver.info().ready == 1


# -- dedup --------------------------------------------------------------------------------------------------------


def test_a_dedup_id_is_published_once_within_its_window() -> None:
    driver = Driver()
    driver.create(dedup_window_ms=1_000)
    driver.publish(1, dedup_id=b"a")
    assert driver.publish(1, dedup_id=b"a") == Published("q", 0, 1, duplicates={0: 1})
    driver.advance(1_001)
    assert driver.publish(1, dedup_id=b"a").first_sequence == 2


def test_a_long_dedup_id_that_an_earlier_version_has_stored_whole_is_known() -> None:
    driver = Driver()
    driver.create(dedup_window_ms=10_000)
    driver.publish(1)
    driver.disk.queues[1].dedup[b"k" * 200] = driver.now << DEDUP_SEQUENCE_BITS | 1
    driver.restart()
    assert driver.publish(1, dedup_id=b"k" * 200).duplicates == {0: 1}


def test_of_long_dedup_ids_little_is_remembered() -> None:
    driver = Driver()
    driver.create(dedup_window_ms=10_000)
    long = b"order " * 10_000
    driver.publish(1, dedup_id=long + b"1")
    assert driver.publish(1, dedup_id=long + b"1").duplicates == {0: 1}
    assert driver.publish(1, dedup_id=long + b"2").duplicates is None
    engine, stored = driver.engine._state.queues["q"].dedup.ids, driver.disk.queues[1].dedup
    assert list(engine) == list(stored)
    assert [len(known) < 200 for known in stored] == [True] * 2
    driver.restart()
    assert driver.publish(1, dedup_id=long + b"2").duplicates == {0: 2}
    assert driver.publish(1, dedup_id=long).duplicates is None


def test_the_window_survives_a_restart() -> None:
    driver = Driver()
    driver.create(dedup_window_ms=10_000)
    driver.publish(1, dedup_id=b"a")
    driver.restart(down_ms=5_000)
    assert driver.publish(1, dedup_id=b"a").duplicates == {0: 1}
    driver.advance(5_001)
    assert driver.publish(1, dedup_id=b"a").duplicates is None


WEAKER = pytest.mark.parametrize("weaker", [Durability.ASYNC, Durability.WEAK])


def known_in_a_queue_that_becomes_strong(weaker: Durability) -> Driver:
    """A message of id `a` in `q`, accepted under the weaker durability; the queue is to be strong from now on, and
    nothing of that is kept yet."""
    driver = Driver()
    driver.create(durability=weaker)
    driver.publish(1, dedup_id=b"a")
    driver.hold = True
    driver.handle(ChangeQueue(9, "change", "q", {"durability": "strong"}))
    return driver


@WEAKER
def test_a_duplicate_on_a_queue_that_is_being_made_strong_is_confirmed_with_the_change(weaker: Durability) -> None:
    driver = known_in_a_queue_that_becomes_strong(weaker)
    driver.handle(Publish(2, "again", "q", rows_of(1), {0: MessageExtra(dedup_id=b"a")}))
    assert driver.answer("again") is None
    assert driver.waiting[-1].durability is Durability.STRONG
    driver.keep(1)
    assert driver.answer("again") is None
    driver.keep()
    assert driver.answer("again").duplicates == {0: 1}
    # The queue is strong, and the original safe.
    driver.handle(Publish(2, "once more", "q", rows_of(1), {0: MessageExtra(dedup_id=b"a")}))
    assert driver.answer("once more").duplicates == {0: 1}


def test_a_duplicate_of_what_is_on_its_way_is_as_safe_as_the_queue_is_to_be() -> None:
    driver = Driver()
    driver.create(durability=Durability.WEAK)
    driver.hold = True
    for token in ("first", "again"):
        if token == "again":
            driver.handle(ChangeQueue(9, "change", "q", {"durability": "strong"}))
        driver.handle(Publish(2, token, "q", rows_of(1), {0: MessageExtra(dedup_id=b"a")}))
    driver.keep(1)
    assert (driver.answer("first").first_sequence, driver.answer("again")) == (1, None)
    driver.keep()
    assert driver.answer("again").duplicates == {0: 1}


@WEAKER
def test_a_duplicate_waits_for_a_change_that_could_not_be_written(weaker: Durability) -> None:
    driver = known_in_a_queue_that_becomes_strong(weaker)
    driver.refuse_for_good()
    driver.handle(Publish(2, "again", "q", rows_of(1), {0: MessageExtra(dedup_id=b"a")}))
    assert driver.answer("again") is None
    driver.keep()
    assert driver.answer("again").duplicates == {0: 1}
    assert not driver.engine._state.is_being_strengthened(driver.engine._state.queues["q"])


def test_a_duplicate_on_a_queue_that_is_being_made_weaker_is_confirmed_at_once() -> None:
    driver = Driver()
    driver.create()
    driver.publish(1, dedup_id=b"a")
    driver.hold = True
    driver.handle(ChangeQueue(9, "change", "q", {"durability": "weak"}))
    assert driver.publish(1, dedup_id=b"a").duplicates == {0: 1}


def test_twins_within_one_publish_are_one_message() -> None:
    driver = Driver()
    extras = {0: MessageExtra(dedup_id=b"a"), 2: MessageExtra(dedup_id=b"a")}
    answer = driver.ask(Publish(1, None, "q", rows_of(4), extras))
    assert answer == Published("q", 1, 4, duplicates={2: 1})
    assert driver.info().ready == 3


def test_a_duplicate_is_answered_only_when_its_original_is_safe() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.publish(1, dedup_id=b"a")
    assert driver.publish(1, dedup_id=b"a") is None
    token = f"token-{3}"
    assert driver.answer(token) is None
    driver.keep()
    assert driver.answer(token) == Published("q", 0, 1, duplicates={0: 1})


def test_a_duplicate_of_a_message_that_could_not_be_stored_is_refused() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.publish(1, dedup_id=b"a")
    driver.publish(1, dedup_id=b"a")
    driver.refuse()
    assert isinstance(driver.answer("token-3").refused[0], StorageFull)
    driver.hold = False
    assert driver.publish(1, dedup_id=b"a").duplicates is None


def test_a_mixed_publish_waits_for_both_its_own_rows_and_the_originals() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.publish(1, dedup_id=b"a")
    extras = {0: MessageExtra(dedup_id=b"a")}
    driver.ask(Publish(1, None, "q", rows_of(2), extras))
    driver.keep(1)
    assert driver.answer("token-3") is None
    driver.keep(1)
    assert driver.answer("token-3") == Published("q", 2, 2, duplicates={0: 1})


class Compared(int):
    """What is known of an id; its sequence counts how often it is compared."""

    times = 0

    def __and__(self, mask: int) -> "Compared":
        return Compared(int(self) & mask)

    def _compare(name: str) -> Any:  # noqa: N805
        def compare(self: "Compared", other: int) -> bool:
            Compared.times += 1
            return getattr(int, name)(self, other)  # type: ignore[no-any-return]

        return compare

    __lt__, __le__, __gt__, __ge__ = map(_compare, ("__lt__", "__le__", "__gt__", "__ge__"))


class Window(DedupTable):
    def __iter__(self) -> Any:
        raise AssertionError("all ids of the window are looked at")

    oldest_first = latest_first = __iter__


def remembered(driver: Driver, batches: int) -> dict[int, MessageExtra]:
    """Publish batches, none of which is kept yet; what the last one had beside its rows."""
    driver.create(dedup_window_ms=60_000)
    driver.hold = True
    extras: dict[int, MessageExtra] = {}
    for number in range(batches):
        extras = {index: MessageExtra(dedup_id=b"%d %d" % (number, index)) for index in range(300)}
        driver.handle(Publish(9, number, "q", rows_of(300), extras))
    return extras


def test_what_vanishes_is_forgotten_without_a_look_at_all_ids_of_the_window() -> None:
    driver = Driver()
    extras = remembered(driver, 3)
    driver.keep(2)
    queue = driver.engine._state.queues["q"]
    assert len(queue.unseen) > 0
    queue.dedup.ids = Window(queue.dedup.ids)
    driver.refuse()
    assert len(queue.dedup.ids) == 600
    driver.hold = False
    driver.handle(Publish(9, "again", "q", rows_of(300), extras))
    assert driver.answer("again") == Published("q", 901, 300)


def test_duplicates_of_messages_on_their_way_are_looked_for_once() -> None:
    driver = Driver()
    extras = remembered(driver, 12)
    queue = driver.engine._state.queues["q"]
    assert len(queue.unseen) == 12
    queue.dedup.ids = DedupTable({key: Compared(known) for key, known in queue.dedup.ids.items()})
    Compared.times = 0
    driver.handle(Publish(9, "again", "q", rows_of(300), extras))
    assert 300 <= Compared.times < 4 * 300
    driver.keep(11)
    assert driver.answer("again") is None
    driver.keep()
    assert len(driver.answer("again").duplicates) == 300


# -- extras in steps ------------------------------------------------------------------------------------------------

ROWS = 1_024


def different(driver: Driver) -> dict[int, MessageExtra]:
    return {index: MessageExtra(1, driver.now + 90_000 + index, driver.now + 5_000 + index) for index in range(ROWS)}


def levelled(driver: Driver) -> dict[int, MessageExtra]:
    return {index: MessageExtra(index % 4, driver.now + 90_000 + index) for index in range(ROWS)}


def shown_first(driver: Driver, extras: dict[int, MessageExtra]) -> int:
    driver.hold = True
    driver.handle(Publish(9, None, "q", rows_of(len(extras)), extras))
    [outcome] = driver.waiting
    driver.engine.committed(outcome.ticket, driver.now)
    return driver.engine._state.queues["q"].groups[""].waiting


def test_fewer_messages_with_dedup_ids_are_one_part() -> None:
    plain, remembered = Driver(), Driver()
    plain.create(dedup_window_ms=60_000)
    remembered.create(dedup_window_ms=60_000)
    few = shown_first(remembered, {index: MessageExtra(dedup_id=b"%d" % index) for index in range(2 * ROWS)})
    assert 0 < few < shown_first(plain, {index: MessageExtra(1) for index in range(2 * ROWS)})


def test_a_batch_with_extras_is_shown_in_parts_and_is_complete_with_the_last_one() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.handle(Publish(9, "published", "q", rows_of(ROWS), different(driver)), Publish(9, "next", "q", rows_of(1)))
    [outcome] = driver.waiting
    queue = driver.engine._state.queues["q"]
    shown, answers = list[int](), list[Outcome]([Incomplete()])
    while isinstance(answers[-1], Incomplete):
        answers.append(driver.engine.committed(outcome.ticket, driver.now))
        shown.append(queue.groups[""].waiting)
    assert shown == sorted(set(shown))
    assert max(after - before for before, after in pairwise([0, *shown])) <= ROWS // 4
    assert shown[-1] == ROWS + 1
    assert driver.engine.next_deadline() != driver.now


@pytest.mark.parametrize("durability", [Durability.TRANSIENT, Durability.ASYNC])
def test_a_batch_with_extras_that_is_answered_at_once_is_shown_at_once(durability: Durability) -> None:
    driver = Driver()
    driver.create(durability=durability)
    driver.hold = True
    batch = Batch([Publish(9, "published", "q", rows_of(ROWS), levelled(driver)), PurgeQueue(9, "purged", "q")])
    driver.submit(driver.engine.advance(batch, driver.now))
    assert isinstance(driver.answer("published"), Published)
    assert driver.engine._state.queues["q"].groups[""].waiting == ROWS
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
    driver.hold = False
    driver.keep()
    assert driver.answer("purged") == Counted(ROWS)
    driver.advance(10_000)
    assert driver.info().ready == 0
    assert driver.engine.violations() == []


def test_a_batch_that_is_carried_out_whole_ends_behind_one_that_is_shown_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = Driver()
    driver.create()
    driver.create("other")
    driver.hold = True
    driver.handle(Publish(9, "shown", "q", rows_of(ROWS), different(driver)))
    [outcome] = driver.waiting
    assert isinstance(driver.engine.committed(outcome.ticket, driver.now), Incomplete)
    calls = count()

    def shown(*args: Any) -> None:
        # Endless without this, should it fail.
        assert next(calls) < 100
        show(*args)

    monkeypatch.setattr(publish, "show", shown)
    driver.handle(
        Publish(9, None, "other", rows_of(2 * ROWS), {index: MessageExtra(1) for index in range(2 * ROWS)}),
        Publish(9, None, "q", rows_of(ROWS), different(driver)),
    )
    queue = driver.engine._state.queues["q"]
    assert (queue.groups[""].waiting, queue.unseen_count) == (ROWS, ROWS)
    assert next(calls) > 1


def test_one_commit_shows_the_parts_of_many_queues_in_steps() -> None:
    driver = Driver()
    names = [f"q{number}" for number in range(6)]
    for name in names:
        driver.create(name)
    driver.hold = True
    driver.handle(*(Publish(9, None, name, rows_of(ROWS), different(driver)) for name in names))
    driver.hold = False
    [outcome] = driver.waiting
    answers, steps = list[Outcome]([Incomplete()]), [0]
    while isinstance(answers[-1], Incomplete):
        answers.append(driver.engine.committed(outcome.ticket, driver.now))
        steps.append(sum(driver.engine._state.queues[name].groups[""].waiting for name in names))
    assert steps[-1] == len(names) * ROWS
    assert max(after - before for before, after in pairwise(steps)) <= ROWS // 4


def test_an_async_batch_with_extras_vanishes_wherever_it_is() -> None:
    driver = Driver()
    driver.create(durability=Durability.ASYNC)
    driver.hold = True
    driver.handle(Publish(9, "published", "q", rows_of(ROWS), different(driver)))
    queue = driver.engine._state.queues["q"]
    assert queue.groups[""].waiting == ROWS
    driver.refuse()
    assert (queue.groups[""].waiting, queue.unseen_count, len(queue.unseen)) == (0, 0, 0)
    driver.hold = False
    driver.advance(10)
    assert driver.publish(1).first_sequence == ROWS + 1
    assert driver.engine.violations() == []


def test_a_transient_batch_with_extras_is_shown_before_the_next_one_is_taken() -> None:
    driver = Driver()
    driver.create(durability=Durability.TRANSIENT)
    batch = Batch([Publish(9, None, "q", rows_of(ROWS), different(driver)) for _ in range(3)])
    queue = driver.engine._state.queues["q"]
    unseen = []
    while not batch.done:
        driver.submit(driver.engine.advance(batch, driver.now))
        unseen.append(queue.unseen_count)
    assert max(unseen) <= ROWS
    driver.advance(10)
    assert queue.groups[""].waiting == 3 * ROWS
    assert driver.engine.violations() == []


def test_what_follows_from_a_failure_is_recorded_behind_the_outcomes_that_failed_after_it() -> None:
    """The consumer of the first outcome is gone, and gives back what the second one handed out to it: too late."""
    driver = Driver()
    driver.create(dead_letter=True)
    driver.publish(2, expires_at=driver.now + 100)
    driver.hold = True
    driver.handle(Subscribe(1, "asked", 1, "q", group="g", start=StartAt.BEGINNING, capacity_messages=1))
    driver.handle(SetCapacity(1, None, 1, 10))
    driver.now += 200
    driver.refuse_for_good()
    driver.hold = False
    driver.advance(2_000)
    driver.check()
    dead = driver.engine.dead_count
    driver.take()
    driver.restart()
    driver.check()
    driver.subscribe(2, group="g", capacity_messages=10)
    assert driver.take_in_order() == []
    assert driver.engine.dead_count == dead


def test_what_vanishes_later_in_a_series_of_failures_is_not_in_what_followed_from_the_first() -> None:
    driver = Driver()
    driver.create(durability=Durability.ASYNC, dead_letter=True)
    driver.hold = True
    driver.handle(Subscribe(1, "asked", 1, "q", group="g", capacity_messages=10))
    driver.handle(Publish(9, None, "q", rows_of(3)))
    driver.refuse_for_good()
    driver.hold = False
    driver.advance(2_000)
    driver.check()
    assert driver.engine.dead_count == 0
    driver.restart()
    driver.check()
