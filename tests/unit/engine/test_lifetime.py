"""Queues that go away by themselves: when their time begins, begins again, and ends. The clock is the driver's."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.errors import InvalidOptions, QueueNotFound
from vibemq.model.commands import (
    ChangeQueue,
    CreateQueue,
    DescribeQueue,
    EndConsumers,
    JoinCursor,
    SetCapacity,
    Settlement,
    Unsubscribe,
)
from vibemq.model.effects import Departure, QueueGone
from vibemq.model.options import DeliveryMode, Durability, QueueOptions
from vibemq.model.records import QueueAttended, QueueDeleted
from vibemq.model.runs import END

HOUR = 3_600_000


@pytest.fixture
def driver() -> Driver:
    return Driver()


def gone(driver: Driver) -> dict[str, str]:
    return {effect.queue: str(effect.why) for effect in driver.effects if isinstance(effect, QueueGone)}


def is_there(driver: Driver, queue: str = "q") -> bool:
    return driver.engine.queue_info(queue) is not None


def declare(driver: Driver, session: int = 9, queue: str = "q", **options: Any) -> Any:
    return driver.ask(CreateQueue(session, None, queue, QueueOptions(**options)))


# -- expires_ms -----------------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_uses_expires_to_the_millisecond(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert not is_there(driver)
    assert gone(driver) == {"q": "expired"}
    assert len(driver.records_of(QueueDeleted)) == 1
    driver.check()


def test_publishing_does_not_keep_a_queue(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.advance(HOUR // 2)
    driver.publish(3)
    driver.ask(DescribeQueue(9, None, "q"))
    driver.advance(HOUR // 2)
    assert gone(driver) == {"q": "expired"}
    driver.check()


@pytest.mark.parametrize(
    "use",
    [
        lambda driver: declare(driver),
        lambda driver: driver.ask(ChangeQueue(9, None, "q", {"max_attempts": 7})),
        lambda driver: driver.ask(JoinCursor(9, None, "q", "readers")),
        lambda driver: (driver.subscribe(1, credit=1), driver.close(1)),
        lambda driver: (driver.subscribe(1), driver.close(1)),
    ],
    ids=["declared", "changed", "cursor", "fetched", "consumed"],
)
def test_declaring_and_consuming_begin_the_time_anew(driver: Driver, use: Any) -> None:
    driver.create(expires_ms=HOUR)
    driver.advance(HOUR - 1)
    use(driver)
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert gone(driver) == {"q": "expired"}


def test_a_queue_with_a_consumer_does_not_expire(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.subscribe(1)
    driver.advance(50 * HOUR)
    driver.close(1)
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert not is_there(driver)


def test_a_consumer_that_only_holds_messages_keeps_the_queue(driver: Driver) -> None:
    driver.create(expires_ms=HOUR, ack_timeout_ms=0)
    driver.publish(1)
    driver.subscribe(1)
    driver.ask(Unsubscribe(1, None, 1))
    driver.advance(5 * HOUR)
    driver.settle(1, 1)
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert not is_there(driver)


def test_a_shorter_time_counts_from_the_change_on(driver: Driver) -> None:
    driver.create(expires_ms=10 * HOUR)
    driver.advance(5 * HOUR)
    driver.ask(ChangeQueue(9, None, "q", {"expires_ms": HOUR}))
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert not is_there(driver)


def test_without_the_option_a_queue_stays(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.ask(ChangeQueue(9, None, "q", {"expires_ms": 0}))
    driver.create("other")
    driver.advance(1_000 * HOUR)
    assert is_there(driver)
    assert is_there(driver, "other")
    assert gone(driver) == {}


def test_after_a_restart_the_time_begins_anew(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.advance(HOUR - 1)
    driver.restart(down_ms=5 * HOUR)
    driver.advance(HOUR - 1)
    assert is_there(driver)
    driver.advance(1)
    assert gone(driver) == {"q": "expired"}
    driver.restart()
    assert not is_there(driver)


def test_dead_letters_of_a_queue_that_went_away_stay(driver: Driver) -> None:
    driver.create(expires_ms=HOUR)
    driver.publish(1)
    driver.subscribe(1)
    driver.settle(1, 1, verb=Settlement.REJECT)
    driver.close(1)
    driver.advance(HOUR)
    assert not is_there(driver)
    assert driver.engine.dead_count == 1


# -- auto_delete ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credit", [None, 0])
def test_a_subscription_is_a_consumer_whenever_it_is_given_its_credit(driver: Driver, credit: int | None) -> None:
    driver.create(auto_delete=True)
    driver.subscribe(1, credit=credit)
    driver.handle(SetCapacity(1, None, 1, END, add_credit=END))
    driver.publish()
    driver.settle(1, *driver.take()[1])
    driver.close(1)
    assert gone(driver) == {"q": "auto_delete"}


def test_a_queue_goes_with_its_last_consumer(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.subscribe(1)
    driver.subscribe(2)
    driver.close(1)
    assert is_there(driver)
    driver.ask(Unsubscribe(2, None, 1))
    assert not is_there(driver)
    assert gone(driver) == {"q": "auto_delete"}
    driver.check()


def test_a_queue_that_never_had_a_consumer_waits_for_one(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.publish(3)
    driver.advance(1_000 * HOUR)
    driver.restart()
    driver.advance(0)
    assert driver.info().ready == 3
    driver.subscribe(1)
    driver.close(1)
    assert gone(driver) == {"q": "auto_delete"}


def test_a_fetch_is_no_consumer_whose_end_deletes_the_queue(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.publish(2)
    driver.subscribe(1, credit=1)
    driver.settle(1, 1)
    driver.close(1)
    assert driver.info().ready == 1
    # But while one is there, the queue has not been left.
    driver.subscribe(2, capacity_messages=1)
    driver.subscribe(3, credit=1)
    driver.close(2)
    assert is_there(driver)
    driver.close(3)
    assert not is_there(driver)


@pytest.mark.parametrize("other", [{}, {"expires_ms": HOUR}], ids=["new", "mortal before"])
def test_the_option_counts_the_consumers_that_are_there(driver: Driver, other: Any) -> None:
    driver.create(**other)
    driver.subscribe(1)
    driver.ask(ChangeQueue(9, None, "q", {"auto_delete": True}))
    assert len(driver.records_of(QueueAttended)) == 1
    driver.close(1)
    assert gone(driver) == {"q": "auto_delete"}
    driver.check()


def test_the_option_does_not_count_fetches_nor_who_has_left(driver: Driver) -> None:
    driver.create()
    driver.subscribe(1)
    driver.close(1)
    driver.subscribe(2, credit=1)
    driver.ask(ChangeQueue(9, None, "q", {"auto_delete": True}))
    driver.close(2)
    assert is_there(driver)


def test_consumers_under_which_the_option_was_set_count_after_a_restart(driver: Driver) -> None:
    driver.create()
    driver.subscribe(1)
    driver.ask(ChangeQueue(9, None, "q", {"auto_delete": True}))
    driver.restart()
    driver.advance(0)
    assert gone(driver) == {"q": "auto_delete"}


def test_a_change_that_the_disk_refuses_is_owed_with_its_consumers(driver: Driver) -> None:
    driver.create()
    driver.subscribe(1)
    driver.hold = True
    driver.ask(ChangeQueue(9, None, "q", {"auto_delete": True}))
    driver.refuse()
    driver.hold = False
    driver.keep()
    driver.advance(2_000)
    assert len(driver.records_of(QueueAttended)) == 1
    driver.close(1)
    assert gone(driver) == {"q": "auto_delete"}
    driver.check()


def test_who_still_holds_messages_has_not_left(driver: Driver) -> None:
    driver.create(auto_delete=True, ack_timeout_ms=0)
    driver.publish(1)
    driver.subscribe(1)
    driver.ask(Unsubscribe(1, None, 1))
    assert is_there(driver)
    driver.settle(1, 1)
    assert not is_there(driver)


def test_subscriptions_that_the_broker_ends_are_consumers_that_leave(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.subscribe(1)
    driver.handle(EndConsumers(1, QueueNotFound))
    assert gone(driver) == {"q": "auto_delete"}


@pytest.mark.parametrize("mode", [DeliveryMode.FAN_OUT_WITH_ACK, DeliveryMode.FAN_OUT_WITHOUT_ACK])
def test_the_consumers_of_all_groups_count(driver: Driver, mode: DeliveryMode) -> None:
    driver.create(auto_delete=True, mode=mode)
    for session in (1, 2, 3):
        driver.subscribe(session)
    driver.close(2)
    driver.close(1)
    assert is_there(driver)
    driver.close(3)
    assert not is_there(driver)
    driver.check()


def test_after_a_restart_what_had_a_consumer_is_removed(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.create("kept", auto_delete=True)
    driver.subscribe(1)
    assert len(driver.records_of(QueueAttended)) == 1
    driver.subscribe(2)
    assert len(driver.records_of(QueueAttended)) == 1
    driver.restart()
    driver.advance(0)
    assert gone(driver) == {"q": "auto_delete"}
    assert is_there(driver, "kept")
    driver.check()


def test_a_subscription_that_the_disk_refuses_is_no_consumer(driver: Driver) -> None:
    driver.create(auto_delete=True)
    driver.publish(1)
    driver.hold = True
    driver.subscribe(1)
    driver.refuse_for_good()
    driver.hold = False
    driver.keep()
    driver.advance(2_000)
    assert driver.info().ready == 1
    assert driver.info().consumers == 0
    driver.restart()
    driver.advance(0)
    assert driver.info().ready == 1


def test_both_may_be_wanted(driver: Driver) -> None:
    driver.create(auto_delete=True, expires_ms=HOUR)
    driver.advance(HOUR)
    assert gone(driver) == {"q": "expired"}
    driver.create("r", auto_delete=True, expires_ms=HOUR)
    driver.subscribe(1, "r")
    driver.close(1)
    assert gone(driver) == {"q": "expired", "r": "auto_delete"}


# -- exclusive ------------------------------------------------------------------------------------------------------


def test_an_exclusive_queue_goes_with_its_connection(driver: Driver) -> None:
    declare(driver, session=1, exclusive=True)
    declare(driver, session=1, queue="r", exclusive=True)
    declare(driver, session=2, queue="s", exclusive=True)
    driver.subscribe(1)
    driver.publish(5)
    driver.close(1)
    assert gone(driver) == {"q": "exclusive", "r": "exclusive"}
    assert is_there(driver, "s")
    driver.check()


def test_nobody_leaves_an_exclusive_queue_by_leaving_it(driver: Driver) -> None:
    declare(driver, session=1, exclusive=True)
    driver.subscribe(1)
    driver.ask(Unsubscribe(1, None, 1))
    assert is_there(driver)


def test_after_a_restart_exclusive_queues_are_removed(driver: Driver) -> None:
    declare(driver, session=1, exclusive=True)
    driver.publish(1)
    driver.restart()
    driver.advance(0)
    assert gone(driver) == {"q": "exclusive"}
    driver.restart()
    assert not is_there(driver)


def test_the_broker_itself_has_no_exclusive_queues(driver: Driver) -> None:
    refusal = declare(driver, session=0, exclusive=True)
    assert isinstance(refusal, InvalidOptions)
    assert "belongs to the connection" in str(refusal)


def test_a_queue_cannot_become_exclusive(driver: Driver) -> None:
    driver.create()
    refusal = driver.ask(ChangeQueue(9, None, "q", {"exclusive": True}))
    assert isinstance(refusal, InvalidOptions)


@pytest.mark.parametrize("durability", list(Durability))
def test_every_durability_may_go_away(driver: Driver, durability: Durability) -> None:
    driver.create(durability=durability, auto_delete=True, expires_ms=HOUR)
    driver.publish(2)
    driver.subscribe(1)
    driver.restart()
    driver.advance(0)
    assert gone(driver) == {"q": str(Departure.AUTO_DELETE)}
    driver.check()
