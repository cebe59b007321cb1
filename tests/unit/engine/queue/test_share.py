"""One capacity of several consumers of a session, whatever their queues."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.share import Share, SharedUnacked
from vibemq.errors import InvalidOptions
from vibemq.model.commands import (
    DeleteQueue,
    EndConsumers,
    PurgeQueue,
    SetCapacity,
    SetFlow,
    SetShare,
    Settlement,
    SharedCapacity,
    Unsubscribe,
)
from vibemq.model.effects import Deliver, Subscribed
from vibemq.model.options import DeliveryMode
from vibemq.model.runs import END, Run, run_count

FOUR = SharedCapacity("worker", 4)


def queues(*names: str, count: int = 100, **options: Any) -> Driver:
    driver = Driver()
    for name in names:
        driver.create(name, **options)
        driver.publish(count, name)
    return driver


def join(driver: Driver, consumer: int, queue: str, share: SharedCapacity = FOUR, **options: Any) -> Any:
    return driver.subscribe(1, queue, consumer=consumer, share=share, **options)


def handed_out(driver: Driver) -> dict[str, list[int]]:
    """Queue -> sequences in order, since the last look."""
    found: dict[str, list[int]] = {}
    for effect in driver.delivers():
        found.setdefault(effect.queue, []).extend(n for first, last in effect.runs for n in range(first, last + 1))
    driver.take()
    driver.check()
    return found


def test_subscriptions_of_two_queues_hold_four_together() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    join(driver, 2, "b")
    assert handed_out(driver) == {"a": [1, 2, 3, 4]}


def test_who_waits_is_next_and_then_they_alternate() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    join(driver, 2, "b")
    driver.take()
    driver.settle(1, 1)
    assert handed_out(driver) == {"a": [5]}
    driver.settle(1, 2)
    assert handed_out(driver) == {"b": [1]}
    driver.settle(1, 3)
    assert handed_out(driver) == {"a": [6]}
    driver.settle(1, 1, consumer=2)
    assert handed_out(driver) == {"b": [2]}


@pytest.mark.parametrize("members", [2, 3, 12])
def test_no_queue_of_a_share_starves(members: int) -> None:
    names = [f"q{number}" for number in range(members)]
    driver = queues(*names, count=400)
    for number, name in enumerate(names):
        join(driver, number, name, SharedCapacity("worker", 100))
    served: Counter[str] = Counter()
    while sum(served.values()) < 300 * members:
        for deliver in driver.delivers():
            served[deliver.queue] += run_count(deliver.runs)
            driver.effects.remove(deliver)
            driver.settle(1, *[n for a, b in deliver.runs for n in range(a, b + 1)], consumer=deliver.consumer)
        driver.check()
    # The first one took the whole capacity when it was alone.
    assert max(served.values()) - min(served.values()) <= 2 * 100


def test_who_has_nothing_is_passed_over() -> None:
    driver = queues("a", "b", "c")
    for number, name in enumerate(("a", "b", "c")):
        join(driver, number, name)
    driver.take()
    driver.handle(SetFlow(1, open=False))
    driver.handle(EndConsumers(1, {"b": InvalidOptions("b is over")}.get))
    driver.handle(SetFlow(1, open=True))
    driver.settle(1, 1, 2, 3, consumer=0)
    found = handed_out(driver)
    assert sorted(found) == ["a", "c"]
    assert sum(map(len, found.values())) == 3


def test_a_queue_that_was_emptied_leaves_the_room_to_the_next_in_line() -> None:
    driver = queues("a", "b", "c", count=10)
    for number, name in enumerate(("a", "b", "c")):
        join(driver, number, name)
    driver.take()
    driver.ask(PurgeQueue(9, None, "a"))
    driver.ask(PurgeQueue(9, None, "b"))
    driver.settle(1, 1, consumer=0)
    assert handed_out(driver) == {"c": [1]}


def test_another_capacity_is_refused_and_none_is_that_of_the_share() -> None:
    driver = queues("a", "b", "c")
    join(driver, 1, "a")
    with pytest.raises(InvalidOptions, match=r"hold 4 messages together, and this one of queue 'b' asks for 8"):
        raise join(driver, 2, "b", SharedCapacity("worker", 8))
    with pytest.raises(InvalidOptions, match=r"hold 0 bytes together"):
        raise join(driver, 2, "b", SharedCapacity("worker", 4, 10))
    assert isinstance(join(driver, 3, "c", SharedCapacity("worker")), Subscribed)
    assert handed_out(driver) == {"a": [1, 2, 3, 4]}


def test_a_refused_subscription_has_created_nothing() -> None:
    driver = queues("a")
    join(driver, 1, "a")
    assert isinstance(join(driver, 2, "new", SharedCapacity("worker", 8)), InvalidOptions)
    assert driver.engine.queue_info("new") is None


def test_sessions_share_nothing() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    driver.subscribe(2, "b", share=SharedCapacity("worker", 7))
    assert {name: len(found) for name, found in handed_out(driver).items()} == {"a": 4, "b": 7}


def test_a_change_counts_for_all_and_takes_nothing_back() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    join(driver, 2, "b")
    driver.take()
    driver.ask(SetShare(1, None, "worker", 1))
    driver.settle(1, 1, 2, 3)
    assert handed_out(driver) == {}
    driver.settle(1, 4)
    assert handed_out(driver) == {"a": [5]}
    driver.ask(SetShare(1, None, "worker", 6))
    assert sum(map(len, handed_out(driver).values())) == 5
    driver.ask(SetShare(1, None, "worker", 0))
    driver.settle(1, 5)
    assert handed_out(driver) == {}
    driver.ask(SetShare(1, None, "nobody has it", 6))
    assert handed_out(driver) == {}


def test_bytes_are_shared_too() -> None:
    driver = Driver()
    for name in ("a", "b"):
        driver.publish(10, name, size=100)
        join(driver, len(name) + (name == "b"), name, SharedCapacity("worker", 100, 250))
    assert handed_out(driver) == {"a": [1, 2, 3]}
    driver.settle(1, 1)
    assert handed_out(driver) == {"a": [4]}
    driver.settle(1, 2)
    assert handed_out(driver) == {"b": [1]}


def test_bytes_that_are_limited_later_count_what_is_held() -> None:
    driver = Driver()
    driver.publish(10, "a", size=100)
    join(driver, 1, "a", SharedCapacity("worker", 3))
    driver.take()
    driver.ask(SetShare(1, None, "worker", 100, 200))
    driver.settle(1, 1)
    assert handed_out(driver) == {}
    driver.settle(1, 2)
    assert handed_out(driver) == {"a": [4]}


def test_own_limits_count_beside_the_share() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a", capacity_messages=1)
    join(driver, 2, "b", credit=2)
    assert {name: len(found) for name, found in handed_out(driver).items()} == {"a": 1, "b": 2}
    driver.handle(SetCapacity(1, None, 2, END, add_credit=9))
    assert {name: len(found) for name, found in handed_out(driver).items()} == {"b": 1}
    driver.handle(SetCapacity(1, None, 1, 0))
    driver.settle(1, 1)
    assert {name: len(found) for name, found in handed_out(driver).items()} == {"b": 1}


def test_the_highest_priority_receives_also_while_its_share_is_full() -> None:
    driver = queues("a", "b")
    join(driver, 1, "b")
    driver.subscribe(2, "a", capacity_messages=10)
    driver.take()
    join(driver, 2, "a", priority=1)
    driver.settle(2, 1)
    assert handed_out(driver) == {}
    driver.settle(1, 1)
    driver.settle(1, 2)
    assert handed_out(driver) == {"a": [11], "b": [5]}


def test_what_a_consumer_holds_after_it_has_left_counts() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    join(driver, 2, "b")
    driver.ask(Unsubscribe(1, None, 1))
    assert handed_out(driver) == {"a": [1, 2, 3, 4]}
    driver.settle(1, 1, verb=Settlement.RELEASE)
    assert handed_out(driver) == {"b": [1]}


def test_the_share_ends_with_its_last_member() -> None:
    driver = queues("a", count=1)
    join(driver, 1, "a")
    driver.ask(Unsubscribe(1, None, 1))
    driver.settle(1, 1)
    assert isinstance(join(driver, 2, "a", SharedCapacity("worker", 9)), Subscribed)
    driver.check()


def test_a_deleted_queue_leaves_its_room() -> None:
    driver = queues("a", "b")
    join(driver, 1, "a")
    join(driver, 2, "b")
    driver.take()
    driver.ask(DeleteQueue(9, None, "a"))
    driver.advance(0)
    assert handed_out(driver) == {"b": [1, 2, 3, 4]}


def test_a_timeout_leaves_room() -> None:
    driver = queues("a", "b", ack_timeout_ms=1_000, max_attempts=1)
    join(driver, 1, "a")
    join(driver, 2, "b", ack_timeout_ms=0)
    driver.take()
    driver.advance(1_500)
    assert "b" in handed_out(driver)


def test_whoever_does_not_acknowledge_shares_nothing() -> None:
    driver = queues("a")
    driver.create("news", mode=DeliveryMode.FAN_OUT_WITHOUT_ACK)
    join(driver, 2, "news")
    join(driver, 1, "a")
    driver.publish(9, "news")
    assert {name: len(found) for name, found in handed_out(driver).items()} == {"a": 4, "news": 9}


def test_a_number_that_still_holds_messages_keeps_its_share() -> None:
    driver = queues("a")
    join(driver, 1, "a")
    driver.ask(Unsubscribe(1, None, 1))
    assert isinstance(join(driver, 1, "a", SharedCapacity("other", 4)), InvalidOptions)
    assert isinstance(driver.subscribe(1, "a", consumer=1), InvalidOptions)
    assert isinstance(join(driver, 1, "a"), Subscribed)


ACTIONS = st.tuples(st.integers(0, 7), st.integers(0, 3), st.integers(1, 9))


@given(st.lists(ACTIONS, max_size=60))
def test_never_more_than_the_capacity_and_never_less_than_there_is(actions: list[tuple[int, int, int]]) -> None:
    driver = Driver()
    for number in range(4):
        driver.create(f"q{number}")
        join(driver, number, f"q{number}", SharedCapacity("worker", 5))
    held: dict[int, list[int]] = {number: [] for number in range(4)}
    capacity, waiting = 5, Counter[int]()
    for action, number, amount in actions:
        if action <= 1:
            driver.publish(amount, f"q{number}")
            waiting[number] += amount
        elif action == 2:
            capacity = amount - 1
            driver.ask(SetShare(1, None, "worker", capacity))
        elif action == 3:
            driver.handle(SetFlow(1, open=False))
            driver.handle(SetFlow(1, open=True))
        else:
            taken, held[number] = held[number][:amount], held[number][amount:]
            driver.settle(1, *taken, consumer=number)
        for deliver in driver.delivers():
            held[deliver.consumer] += [n for a, b in deliver.runs for n in range(a, b + 1)]
            waiting[deliver.consumer] -= run_count(deliver.runs)
        before = sum(map(len, held.values()))
        gave = bool(driver.take())
        driver.check()
        assert not gave or before <= capacity
        assert before >= capacity or not waiting.total(), "there is room, and something waits"


def test_a_hold_tells_its_share_of_every_change() -> None:
    share: Share[str] = Share("s", 10, 0, {})
    held = SharedUnacked(share.hold)
    held.add(1, 10, END, 100)
    assert (share.count, share.size) == (10, 100)
    held.extend(3, 5, 7)
    assert (share.count, share.size) == (10, 100)
    assert held.take_front(2) == [(1, 2)]
    held.weigh(lambda first, last: last - first + 1)
    assert (share.count, share.size) == (8, 8)
    taken: list[Run] = held.take_all()
    assert sum(b - a + 1 for a, b in taken) == 8
    assert (share.count, share.size, held.count) == (0, 0, 0)


def test_deliveries_of_one_share_come_in_few_pieces() -> None:
    driver = queues("a", "b", count=1_000)
    join(driver, 1, "a", SharedCapacity("worker", 400))
    join(driver, 2, "b", SharedCapacity("worker"))
    driver.take()
    driver.settle(1, *range(1, 101))
    assert len([effect for effect in driver.effects if isinstance(effect, Deliver)]) <= 4
