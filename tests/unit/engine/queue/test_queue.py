"""A queue without messages gives back the containers that it made for them, and goes on as any other queue."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.group import _NOTHING_COUNTED
from vibemq.engine.queue.queue import Queue
from vibemq.model.commands import Publish, Unsubscribe
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows

MINUTE_MS = 60_000
CONTAINERS = (
    "sizes",
    "unseen",
    "holes",
    "expiries",
    "delayed",
    "upcoming",
    "dedup",
    "parked",
    "alarms",
    "retired",
    "ranks",
)
OF_GROUPS = ("_delayed", "_scheduled", "attempts", "held_up", "consumers", "_levels")


def queue_of(driver: Driver, name: str = "q") -> Queue:
    return driver.engine._state.queues[name]


def own_containers(queue: Queue) -> list[str]:
    """What it does not share with a queue that was never used."""
    fresh = Queue(1, "fresh", queue.options, 1, "f")
    fresh.new_group("", durable=True, start=1)
    found = [name for name in CONTAINERS if getattr(queue, name) is not getattr(fresh, name)]
    ours, theirs = queue.groups[""], fresh.groups[""]
    found += [name for name in OF_GROUPS if getattr(ours, name) is not getattr(theirs, name)]
    return found if ours.ready._plain is theirs.ready._plain else [*found, "ready"]


def use_once(driver: Driver, **extra: Any) -> None:
    driver.publish(3, **extra)
    driver.subscribe(1)
    driver.settle(
        1, *(n for deliver in driver.delivers() for first, last in deliver.runs for n in range(first, last + 1))
    )
    driver.ask(Unsubscribe(1, None, 1))
    driver.take()


@pytest.mark.parametrize("extra", [{}, {"priority": 3}, {"expires_at": 1 << 40}])
def test_a_queue_that_was_used_once_has_no_containers_of_its_own(extra: dict[str, Any]) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    use_once(driver, **extra)
    assert own_containers(queue_of(driver)) != []
    driver.advance(MINUTE_MS)
    assert own_containers(queue_of(driver)) == []
    driver.check()


def test_a_publish_that_waits_keeps_only_what_tells_of_it() -> None:
    driver = Driver()
    driver.create()
    driver.publish(2)
    assert own_containers(queue_of(driver)) == ["sizes", "ready"]


def test_what_is_published_after_that_expires_and_is_delayed_as_before() -> None:
    driver = Driver()
    driver.create(message_ttl_ms=10_000, dead_letter=False)
    use_once(driver)
    driver.advance(MINUTE_MS)
    driver.publish(1, deliver_at=driver.now + 2_000)
    driver.publish(1)
    driver.subscribe(1, capacity_messages=1)
    assert driver.take_in_order() == [5]
    driver.settle(1, 5)
    driver.advance(2_000)
    assert driver.take_in_order() == [4]
    driver.settle(1, 4)
    driver.ask(Unsubscribe(1, None, 1))
    driver.publish(1)
    driver.advance(11_000)
    assert driver.info().counters["expired"] == 1
    driver.check()


def test_a_queue_that_has_a_message_keeps_what_is_noted_of_it() -> None:
    driver = Driver()
    driver.create()
    driver.publish(2, size=100)
    driver.subscribe(1, capacity_messages=1)
    driver.advance(MINUTE_MS)
    assert "sizes" in own_containers(queue_of(driver))
    assert queue_of(driver).sizes.between(1, 2) >= 200


def test_nothing_is_counted_in_a_group_that_no_message_has_entered() -> None:
    queue = Queue(1, "q", QueueOptions(), 1, "i")
    group = queue.new_group("", durable=True, start=1)
    with pytest.raises(RuntimeError, match="settled is counted"):
        group.counters.settled += 1
    group.count_in(2)
    group.counters.settled += 1
    assert (_NOTHING_COUNTED.entered, _NOTHING_COUNTED.settled, group.counters.remainder()) == (0, 0, 1)


def added(driver: Driver) -> list[bool]:
    """Of the messages that were added since the last look: whether they do not share a chunk with those before."""
    found = [record.apart for record in driver.records_of(MessagesAdded)]
    driver.records.clear()
    return found


def test_while_many_delays_are_on_their_way_no_publish_shares_a_chunk_with_the_one_before() -> None:
    driver = Driver()
    driver.create()
    count = 3_000
    due = {index: MessageExtra(deliver_at=driver.now + 5_000 + index * 7_919 % count) for index in range(count)}
    driver.hold = True
    driver.handle(Publish(9, None, "q", Rows.of([b"m"] * count), due))
    driver.handle(Publish(9, None, "q", Rows.of([b"m"])))
    driver.advance(6_000)
    driver.handle(Publish(9, None, "q", Rows.of([b"m"])))
    driver.hold = False
    driver.keep()
    driver.advance(1)
    assert added(driver) == [False, True, True]
    # Those of the batch are known one by one from now on, and the last of them is yet to end.
    driver.handle(Publish(9, None, "q", Rows.of([b"m"])))
    driver.handle(Publish(9, None, "q", Rows.of([b"m"])))
    driver.advance(2_500)
    driver.handle(Publish(9, None, "q", Rows.of([b"m"])))
    assert added(driver) == [True, False, True]
    driver.subscribe(1, capacity_messages=count + 10)
    order = driver.take_in_order()
    # Published at 0, before any delay ended; then at 6,000, at 6,001, and when all had ended.
    assert order[0] == count + 1
    assert order.index(count + 2) == sum(extra.deliver_at < driver.now - 2_501 for extra in due.values()) + 1
    assert order[-1] == count + 5
    assert sorted(order) == list(range(1, count + 6))
    driver.check()
