"""Who gets what, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver, rows_of, sequences
from vibemq.engine.queue.sizes import Sizes
from vibemq.engine.routing.turns import last_begun
from vibemq.model.commands import (
    CloseSession,
    Publish,
    SetCapacity,
    SetFlow,
    Settle,
    Settlement,
    StartAt,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import Deliver, Reply, Subscribed
from vibemq.model.options import DeliveryMode, Durability, LostConnection
from vibemq.model.records import HandedOut


def test_a_new_subscriber_at_once_receives_the_backlog() -> None:
    driver = Driver()
    driver.publish(5)
    assert driver.subscribe(2) == Subscribed("q", "", 1, 6)
    assert driver.take() == {2: [1, 2, 3, 4, 5]}


def test_single_messages_alternate_strictly() -> None:
    driver = Driver()
    driver.create()
    for session in (1, 2, 3):
        driver.subscribe(session)
    for _ in range(6):
        driver.publish(1)
    assert driver.take() == {1: [1, 4], 2: [2, 5], 3: [3, 6]}


def test_a_backlog_is_split_evenly_in_contiguous_stretches() -> None:
    driver = Driver()
    driver.create()
    driver.subscribe(1)
    driver.subscribe(2)
    driver.publish(600)
    by_session = driver.take()
    assert [len(by_session[1]), len(by_session[2])] == [300, 300]
    deliver = driver.records_of(HandedOut)[0]
    assert deliver.runs == [(1, 600)]


def test_one_hand_out_is_one_effect_with_merged_runs() -> None:
    driver = Driver()
    driver.create()
    driver.subscribe(1)
    driver.publish(500)
    assert [d.runs for d in driver.delivers()] == [[(1, 500)]]


def test_nobody_gets_more_than_its_capacity() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_messages=2)
    driver.publish(5)
    assert driver.take() == {1: [1, 2]}
    driver.settle(1, 1)
    assert driver.take() == {1: [3]}


def test_who_has_room_gets_what_the_full_one_cannot_take() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_messages=1)
    driver.subscribe(2, capacity_messages=10)
    driver.publish(6)
    by_session = driver.take()
    assert (len(by_session[1]), len(by_session[2])) == (1, 5)


def test_bytes_are_limited_and_overshot_by_one_message() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_bytes=250)
    driver.publish(10, size=100)
    assert driver.take() == {1: [1, 2, 3]}
    driver.settle(1, 1)
    assert driver.take() == {1: [4]}


def test_a_message_above_the_byte_limit_is_handed_out_alone() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_bytes=10)
    driver.publish(3, size=100)
    assert driver.take() == {1: [1]}


def test_credit_is_an_end() -> None:
    driver = Driver()
    driver.subscribe(1, credit=3)
    driver.publish(5)
    assert driver.take() == {1: [1, 2, 3]}
    driver.settle(1, 1, 2, 3)
    assert driver.take() == {}
    driver.handle(SetCapacity(1, None, 1, 100, add_credit=1))
    assert driver.take() == {1: [4]}


def test_more_credit_is_no_end_for_a_consumer_that_has_none() -> None:
    driver = Driver()
    driver.subscribe(1)
    driver.handle(SetCapacity(1, None, 1, 100, add_credit=2))
    driver.publish(5)
    assert driver.take() == {1: [1, 2, 3, 4, 5]}


def test_new_limits_count_for_what_is_held_already() -> None:
    driver = Driver()
    driver.subscribe(1, capacity_messages=4)
    driver.publish(10, size=100)
    driver.take()
    driver.handle(SetCapacity(1, None, 1, 0))
    driver.settle(1, 1, 2)
    assert driver.take() == {}
    driver.handle(SetCapacity(1, None, 1, 100, capacity_bytes=300))
    assert driver.take() == {1: [5]}


def test_subscribing_and_pausing_in_one_batch_delivers_nothing() -> None:
    driver = Driver()
    driver.publish(3)
    driver.handle(Subscribe(1, None, 1, "q"), SetCapacity(1, None, 1, 0))
    assert driver.take() == {}


def test_a_session_whose_socket_is_full_is_skipped_and_delays_nobody() -> None:
    driver = Driver()
    driver.subscribe(1)
    driver.subscribe(2)
    driver.handle(SetFlow(1, False))
    driver.publish(4)
    assert driver.take() == {2: [1, 2, 3, 4]}
    driver.handle(SetFlow(2, False))
    driver.publish(1)
    assert driver.take() == {}
    driver.handle(SetFlow(1, True))
    assert driver.take() == {1: [5]}


def test_only_the_highest_consumer_priority_receives_without_spill_over() -> None:
    driver = Driver()
    driver.subscribe(1, priority=0)
    driver.subscribe(2, priority=5, capacity_messages=2)
    driver.publish(5)
    assert driver.take() == {2: [1, 2]}
    driver.close(2, clean=True)
    assert driver.take() == {1: [1, 2, 3, 4, 5]}


def test_priorities_are_strict_between_levels_and_fifo_within() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    for priority in (1, 3, 0, 3, 1, 31):
        driver.publish(1, priority=priority)
    driver.subscribe(1)
    (deliver,) = driver.delivers()
    assert sequences(deliver.runs) == [6, 2, 4, 1, 5, 3]


def test_a_returned_message_keeps_its_priority() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    driver.subscribe(1, capacity_messages=1)
    driver.publish(1, priority=3)
    driver.publish(1)
    driver.settle(1, 1, verb=Settlement.RELEASE)
    assert driver.take() == {1: [1, 1]}


def test_an_ordinary_queue_ignores_priorities() -> None:
    driver = Driver()
    driver.publish(1, priority=0)
    driver.publish(1, priority=3)
    driver.subscribe(1)
    assert driver.take() == {1: [1, 2]}


def test_delayed_messages_come_at_their_time_and_at_their_place() -> None:
    driver = Driver()
    driver.create()
    driver.publish(1, deliver_at=driver.now + 500)
    driver.publish(2)
    driver.subscribe(1, capacity_messages=1)
    assert driver.take() == {1: [2]}
    assert driver.info().delayed == 1
    driver.advance(500)
    driver.settle(1, 2)
    assert driver.take() == {1: [3]}
    driver.settle(1, 3)
    assert driver.take() == {1: [1]}


def test_delays_survive_a_restart() -> None:
    driver = Driver()
    driver.publish(1, deliver_at=driver.now + 5_000)
    driver.restart(down_ms=1_000)
    driver.subscribe(1)
    assert driver.take() == {}
    driver.advance(4_000)
    assert driver.take() == {1: [1]}


def test_fan_out_without_ack_is_settled_when_it_is_written() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITHOUT_ACK, durability=Durability.ASYNC)
    driver.writes = False
    driver.subscribe(1, capacity_messages=1)
    driver.publish(5)
    (deliver,) = driver.delivers()
    assert deliver.settled
    assert deliver.runs == [(1, 5)]
    driver.advance(3_600_000)
    info = driver.info()
    assert (info.in_flight, info.ready, info.counters["settled"]) == (5, 0, 0)
    driver.settle(1, 1, 2, 3)
    info = driver.info()
    assert (info.in_flight, info.ready, info.counters["settled"]) == (2, 0, 3)
    driver.check()


def test_what_a_fan_out_without_ack_has_not_written_goes_back() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITHOUT_ACK)
    driver.writes = False
    driver.subscribe(1, group="g")
    driver.publish(5)
    driver.settle(1, 1, 2)
    driver.handle(Settle(1, None, 1, Settlement.RELEASE, [(3, 5)]), CloseSession(1, clean=False))
    driver.take()
    driver.subscribe(2, group="g")
    assert driver.take() == {2: [3, 4, 5]}
    driver.check()


def test_the_subscribe_answer_of_a_new_durable_group_is_gated() -> None:
    driver = Driver()
    driver.create()
    driver.publish(1)
    driver.hold = True
    told = driver.handle(Subscribe(1, "s", 1, "q", group="g", start=StartAt.BEGINNING))
    assert [type(effect) for effect in told] == [Deliver]
    assert driver.waiting[0].gated


def test_who_publishes_and_consumes_in_one_batch_gets_its_messages() -> None:
    driver = Driver()
    driver.handle(Subscribe(1, None, 1, "q"), Publish(1, None, "q", rows_of(2)))
    assert driver.take() == {1: [1, 2]}


def test_the_answer_that_ends_deliveries_says_so() -> None:
    driver = Driver()
    driver.create()
    driver.subscribe(2)
    driver.handle(Unsubscribe(2, "end", 1), Unsubscribe(2, "again", 1))
    marks = [(e.token, e.order, e.ends_deliveries) for e in driver.effects if isinstance(e, Reply) and e.session == 2]
    assert marks[-2:] == [("end", 0, True), ("again", 1, True)]


def hand_out_cost(count: int) -> int:
    driver = Driver()
    driver.publish(count)
    return sum(instructions(lambda: driver.subscribe(1, capacity_messages=count, capacity_bytes=1 << 40)).values())


def test_a_limit_of_bytes_is_not_looked_up_message_by_message() -> None:
    assert hand_out_cost(20_000) < 3 * hand_out_cost(20)


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500)), min_size=1, max_size=20), st.data())
def test_messages_are_taken_as_long_as_they_begin_within_the_bytes(
    chunks: list[tuple[int, int]], data: st.DataObject
) -> None:
    sizes, end = Sizes(), 1
    for count, size in chunks:
        sizes.add(end, end + count - 1, size, 10_000 * end, 1)
        end += count
    first = data.draw(st.integers(1, end - 1))
    last = data.draw(st.integers(first, end - 1))
    room = data.draw(st.integers(1, 3_000))
    expected, left = first, room - sizes.between(first, first)
    while left > 0 and expected < last:
        expected += 1
        left -= sizes.between(expected, expected)
    assert last_begun(sizes, first, last, room) == expected


def published_with_delays(driver: Driver, *delays: int, **options: object) -> None:
    for delay in delays:
        driver.publish(1, **({"deliver_at": driver.now + delay} if delay else {}), **options)


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("durability", [Durability.STRONG, Durability.ASYNC])
def test_a_delayed_message_takes_its_place_by_the_instant_at_which_it_falls_due(
    durability: Durability, restarted: bool
) -> None:
    driver = Driver()
    driver.create(durability=durability)
    published_with_delays(driver, 2_000, 1_000, 0)
    driver.advance(1_500)
    published_with_delays(driver, 0)
    driver.advance(1_500)
    published_with_delays(driver, 0)
    if restarted:
        driver.restart()
    driver.subscribe(1)
    assert driver.take_in_order() == [3, 2, 4, 1, 5]


def test_of_messages_that_fall_due_together_the_first_is_the_first_published() -> None:
    driver = Driver()
    driver.create()
    driver.publish(4, deliver_at=driver.now + 1_000)
    driver.publish(1, deliver_at=driver.now + 999)
    driver.advance(1_000)
    driver.publish(1)
    driver.advance(1)
    driver.subscribe(1)
    assert driver.take_in_order() == [5, 6, 1, 2, 3, 4]


@pytest.mark.parametrize("restarted", [False, True])
def test_what_comes_back_has_its_place_by_sequence(restarted: bool) -> None:
    driver = Driver()
    driver.create(lost_connection=LostConnection.RELEASE)
    published_with_delays(driver, 3_000, 2_000, 1_000, 0)
    driver.advance(3_000)
    driver.subscribe(1, capacity_messages=3)
    assert driver.take_in_order() == [4, 3, 2]
    if restarted:
        driver.restart()
    else:
        driver.close(1)
    driver.subscribe(2)
    assert driver.take_in_order() == [2, 3, 4, 1]


def test_every_level_has_its_own_order_by_instant() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.PRIORITY_BASED)
    published_with_delays(driver, 2_000, 1_000, 0, priority=1)
    published_with_delays(driver, 2_000, 1_000, 0, priority=3)
    driver.advance(2_000)
    driver.restart()
    driver.subscribe(1)
    assert driver.take_in_order() == [6, 5, 4, 3, 2, 1]


def test_a_late_tick_hands_nothing_out_before_its_turn() -> None:
    driver = Driver()
    driver.create()
    published_with_delays(driver, 2_000, 1_000)
    driver.now += 3_000
    driver.publish(1)
    driver.subscribe(1)
    assert driver.take_in_order() == [2, 1, 3]


def test_named_groups_see_delayed_messages_in_the_same_order() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    for name in ("a", "b"):
        driver.subscribe(1, group=name, consumer=ord(name))
        driver.close(1, clean=True)
    published_with_delays(driver, 2_000, 1_000, 0)
    driver.advance(1_500)
    published_with_delays(driver, 0)
    driver.advance(1_500)
    driver.subscribe(2, group="a")
    assert driver.take_in_order() == [3, 2, 4, 1]
    driver.restart()
    driver.subscribe(3, group="b")
    assert driver.take_in_order() == [3, 2, 4, 1]


def test_a_consumer_with_little_room_for_bytes_gets_them_in_the_same_order() -> None:
    driver = Driver()
    driver.create()
    published_with_delays(driver, 2_000, 1_000, 0, 0)
    driver.advance(2_000)
    driver.subscribe(1, capacity_messages=10, capacity_bytes=25)
    assert driver.take_in_order() == [3, 4, 2]
    driver.settle(1, 3)
    driver.settle(1, 4)
    assert driver.take_in_order() == [1]


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("flushing", [False, True])
def test_a_delay_whose_message_is_on_its_way_while_the_next_ones_are_looked_for_keeps_its_place(
    flushing: bool, restarts: bool
) -> None:
    driver = Driver()
    driver.create()
    start = driver.now
    driver.publish(1, deliver_at=start + 3_600_000)
    driver.advance(60_000)
    driver.hold = flushing
    driver.publish(1, deliver_at=start + 125_000)
    driver.advance(1)
    driver.publish(1)
    if flushing:
        driver.hold = False
        driver.keep()
    for instant in (124_000, 126_000):
        driver.advance(start + instant - driver.now)
        driver.publish(1)
    if restarts:
        driver.restart()
    driver.subscribe(1)
    assert driver.take_in_order() == [3, 4, 2, 5]
