"""Commands beside messages that do not fit are carried out, and answered when their facts are kept."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine.failures.answers import KNOWN, NOT_STORED, NOTHING_DONE, UNCERTAIN
from vibemq.errors import QueueNotFound, StorageFull
from vibemq.model.commands import (
    ChangeQueue,
    CloseSession,
    Command,
    CreateQueue,
    DeleteGroup,
    DeleteQueue,
    FilterGroup,
    JoinCursor,
    Publish,
    PurgeQueue,
    SeekGroup,
    Settle,
    Settlement,
    StartAt,
    Subscribe,
)
from vibemq.model.effects import Counted, Deliver, Published, Reply, Subscribed
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, Durability, QueueOptions, Retention

UNTOLD = "nothing yet"


@pytest.fixture
def driver() -> Driver:
    """Three messages in `q`, of which session 1 holds the first; a fan-out queue `f`, a log `l`; from now on, nothing
    is kept before the test says so."""
    driver = Driver()
    driver.create()
    driver.create("f", mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.create("l", mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG)
    driver.publish(3)
    driver.ask(SeekGroup(9, None, "f", "readers", StartAt.NOW))
    driver.subscribe(1, capacity_messages=1)
    driver.take()
    driver.hold = True
    return driver


def told(driver: Driver, token: str) -> Any:
    replies = [effect for effect in driver.effects if isinstance(effect, Reply) and effect.token == token]
    assert len(replies) <= 1
    return replies[0].result if replies else UNTOLD


def extras_of(*ids: str) -> dict[int, MessageExtra]:
    return {index: MessageExtra(dedup_id=dedup_id) for index, dedup_id in enumerate(ids)}


STANDING: list[Command] = [
    CreateQueue(2, "asked", "new", QueueOptions()),
    CreateQueue(2, "asked", "q", QueueOptions()),
    ChangeQueue(2, "asked", "q", {"max_attempts": 7}),
    DeleteQueue(2, "asked", "q"),
    DeleteQueue(2, "asked", "missing"),
    PurgeQueue(2, "asked", "q"),
    Subscribe(2, "asked", 1, "f", group="workers"),
    SeekGroup(2, "asked", "f", "readers", StartAt.BEGINNING),
    FilterGroup(2, "asked", "f", "others", None),
    DeleteGroup(2, "asked", "f", "readers"),
    JoinCursor(2, "asked", "l", "etl"),
    Settle(1, "asked", 1, Settlement.ACK, [(1, 1)]),
]


@pytest.mark.parametrize("command", STANDING, ids=lambda command: type(command).__name__)
@pytest.mark.parametrize("first", ["command", "publish"])
def test_a_command_beside_a_refused_publish_is_answered_when_it_is_kept(
    driver: Driver, command: Command, first: str
) -> None:
    publish = Publish(9, "published", "f", rows_of(2))
    driver.handle(*([command, publish] if first == "command" else [publish, command]))
    at_once = told(driver, "asked")
    driver.refuse()
    assert told(driver, "asked") is at_once
    driver.hold = False
    driver.keep()
    assert told(driver, "asked") is not UNTOLD
    assert not isinstance(told(driver, "asked"), StorageFull)
    assert sorted(told(driver, "published").refused) == [0, 1]
    driver.check()
    driver.close(1)
    driver.check()


@pytest.mark.parametrize("command", STANDING, ids=lambda command: type(command).__name__)
def test_what_is_owed_and_does_not_fit_either_is_not_promised(driver: Driver, command: Command) -> None:
    driver.handle(command, Publish(9, "published", "f", rows_of(2)))
    waits = told(driver, "asked") is UNTOLD
    driver.refuse_for_good()
    assert isinstance(told(driver, "asked"), StorageFull) == waits
    if waits:
        # What it says is what becomes of it: a subscription is gone, the others hold here and are stored later.
        outcome = NOTHING_DONE if isinstance(command, Subscribe) else UNCERTAIN
        assert str(told(driver, "asked")) == f"disk is full; {outcome}"
    assert {str(error) for error in told(driver, "published").refused.values()} == {f"disk is full; {NOT_STORED}"}
    driver.hold = False
    driver.advance(2_000)
    driver.check()
    driver.restart()
    driver.check()


def test_a_refused_deletion_holds_and_is_stored_later_as_the_refusal_says(driver: Driver) -> None:
    driver.handle(DeleteQueue(2, "asked", "q"), Publish(9, "published", "f", rows_of(2)))
    driver.refuse_for_good()
    assert str(told(driver, "asked")) == f"disk is full; {UNCERTAIN}"
    assert driver.engine.queue_info("q") is None
    driver.hold = False
    driver.advance(2_000)
    driver.restart()
    assert driver.engine.queue_info("q") is None


def test_a_known_duplicate_that_is_refused_does_not_say_that_nothing_is_stored(driver: Driver) -> None:
    driver.hold = False
    driver.create("u", dedup_window_ms=60_000)
    driver.publish(1, "u", dedup_id="a")
    driver.hold = True
    driver.handle(PurgeQueue(2, "asked", "q"), Publish(9, "again", "u", rows_of(2), extras_of("a", "b")))
    driver.refuse_for_good()
    refused = {index: str(error) for index, error in told(driver, "again").refused.items()}
    assert refused == {0: f"disk is full; {KNOWN}", 1: f"disk is full; {NOT_STORED}"}


def test_the_answers_keep_the_order_of_the_commands(driver: Driver) -> None:
    driver.handle(CreateQueue(2, "first", "new", QueueOptions()))
    driver.handle(Publish(2, "second", "q", rows_of(1)))
    driver.handle(DeleteQueue(2, "third", "new"))
    driver.refuse()
    assert [told(driver, token) for token in ("first", "second", "third")] == [UNTOLD] * 3
    driver.keep()
    order = [effect.token for effect in driver.effects if isinstance(effect, Reply) and effect.session == 2]
    assert order == ["first", "second", "third"]


def test_a_subscriber_that_waits_for_what_is_owed_is_handed_messages_behind_its_answer(driver: Driver) -> None:
    driver.handle(
        Subscribe(2, "asked", 1, "f", group="workers", capacity_messages=5), Publish(9, "published", "f", rows_of(2))
    )
    driver.refuse()
    driver.hold = False
    driver.keep()
    assert isinstance(told(driver, "asked"), Subscribed)
    assert driver.publish(1, "f").first_sequence == 3
    [deliver] = [e for e in driver.effects if isinstance(e, Deliver) and e.session == 2]
    assert sequences(deliver.runs) == [3]
    driver.check()


def test_who_leaves_meanwhile_is_no_consumer(driver: Driver) -> None:
    driver.handle(Subscribe(2, "asked", 1, "f", group="workers"), Publish(9, "published", "f", rows_of(2)))
    driver.refuse()
    driver.handle(CloseSession(2, clean=False))
    driver.hold = False
    driver.keep()
    assert driver.info("f").consumers == 0
    driver.check()


def test_an_error_needs_no_disk(driver: Driver) -> None:
    driver.handle(Publish(9, "published", "q", rows_of(2)), PurgeQueue(2, "asked", "missing"))
    driver.refuse()
    assert isinstance(told(driver, "asked"), QueueNotFound)


def test_nothing_waits_when_messages_alone_were_refused(driver: Driver) -> None:
    driver.handle(Publish(9, "published", "q", rows_of(2)))
    driver.refuse()
    assert driver.waiting == []
    assert sorted(told(driver, "published").refused) == [0, 1]


def test_a_purge_says_what_it_dropped(driver: Driver) -> None:
    driver.handle(Publish(9, "published", "q", rows_of(2)), PurgeQueue(2, "asked", "q"))
    driver.refuse()
    driver.keep()
    assert told(driver, "asked") == Counted(2)
    driver.hold = False
    driver.restart()
    assert driver.info("q").ready == 1, "what was in flight"


@pytest.mark.parametrize("durability", [Durability.STRONG, Durability.TRANSIENT])
def test_a_duplicate_of_a_message_that_is_there_stays_one(driver: Driver, durability: Durability) -> None:
    driver.hold = False
    driver.create("u", durability=durability, dedup_window_ms=60_000)
    assert driver.publish(1, "u", dedup_id="a").first_sequence == 1
    driver.hold = True
    driver.handle(Publish(9, "published", "q", rows_of(2)))
    extras = extras_of("a", "b")
    driver.handle(Publish(9, "again", "u", rows_of(2), extras))
    driver.refuse()
    driver.keep()
    again = told(driver, "again")
    assert again.duplicates == {0: 1}
    if durability is Durability.STRONG:
        assert sorted(again.refused) == [1]
    driver.check()


def test_a_duplicate_of_what_vanished_is_refused_like_it(driver: Driver) -> None:
    driver.hold = False
    driver.create("u", dedup_window_ms=60_000)
    driver.hold = True
    for token in ("published", "again"):
        driver.handle(Publish(9, token, "u", rows_of(1), extras_of("a")))
    driver.refuse()
    driver.keep()
    for token in ("published", "again"):
        assert told(driver, token) == Published("u", 0, 1, {0: told(driver, token).refused[0]})
        assert isinstance(told(driver, token).refused[0], StorageFull)
    driver.check()
