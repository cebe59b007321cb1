"""Where messages go when consumers have selectors."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.routing import routes
from vibemq.engine.queue.routing.routes import SELECTORS_MAX
from vibemq.errors import InvalidOptions
from vibemq.model.commands import PurgeQueue, Settle, Settlement, StartAt, Subscribe, Unsubscribe
from vibemq.model.effects import Classify, Subscribed
from vibemq.model.options import DeliveryMode
from vibemq.model.selector import Selector

EVEN, ODD, THIRD, LATE = (Selector.parse(text) for text in ("n % 2 == 0", "n % 2 == 1", "n % 3 == 0", "n > 100"))


def _driver(**options: object) -> Driver:
    driver = Driver()
    driver.create(**options)
    return driver


def test_each_consumer_is_given_what_its_selector_matches() -> None:
    driver = _driver()
    driver.publish(10)
    driver.subscribe(1, where=EVEN)
    driver.subscribe(2, where=ODD)
    driver.publish(2)
    assert driver.take() == {1: [2, 4, 6, 8, 10, 12], 2: [1, 3, 5, 7, 9, 11]}


def test_what_nobody_wants_stays_and_holds_up_nothing() -> None:
    driver = _driver()
    driver.publish(6)
    driver.subscribe(1, where=EVEN)
    assert driver.take() == {1: [2, 4, 6]}
    assert driver.info().ready == 3
    driver.subscribe(2, where=THIRD)
    assert driver.take() == {2: [3]}
    driver.subscribe(3)
    assert driver.take() == {3: [1, 5]}


def test_without_a_selector_nothing_is_asked() -> None:
    driver = _driver()
    driver.subscribe(1)
    driver.publish(3)
    assert not [effect for effect in driver.effects if isinstance(effect, Classify)]


def test_a_group_whose_last_selector_has_gone_is_as_before() -> None:
    driver = _driver()
    driver.subscribe(1)
    driver.subscribe(2, where=LATE)
    driver.publish(2)
    driver.handle(Unsubscribe(2, None, 1))
    driver.publish(2)
    assert driver.take() == {1: [1, 2, 3, 4]}
    assert driver.engine._state.queues["q"].groups[""].routes is None


def test_priorities_count_within_each_selector_and_nothing_spills_over() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, priority=2, capacity_messages=1)
    driver.subscribe(2, where=EVEN, priority=1)
    driver.subscribe(3, where=ODD, priority=1)
    driver.subscribe(4, priority=0)
    driver.publish(6)
    assert driver.take() == {1: [2], 3: [1, 3, 5]}
    driver.settle(1, 2)
    assert driver.take() == {1: [4]}
    driver.handle(Unsubscribe(1, None, 1))
    assert driver.take() == {2: [6]}


def test_of_one_priority_the_selector_that_came_first_has_what_it_has_room_for() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, capacity_messages=2)
    driver.subscribe(2, where=Selector.parse("n > 0"))
    driver.publish(6)
    assert driver.take() == {1: [2, 4], 2: [1, 3, 5, 6]}


def test_consumers_of_one_selector_take_turns() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN)
    driver.subscribe(2, where=EVEN)
    for _ in range(8):
        driver.publish(1)
    assert driver.take() == {1: [2, 6], 2: [4, 8]}


def test_the_weight_is_the_length_of_a_turn() -> None:
    for where in (None, Selector.parse("n > 0")):
        driver = _driver()
        driver.subscribe(1, where=where, weight=2)
        driver.subscribe(2, where=where)
        for _ in range(6):
            driver.publish(1)
        assert driver.take() == {1: [1, 2, 4, 5], 2: [3, 6]}
        driver.publish(300)
        assert {session: len(got) for session, got in driver.take().items()} == {1: 200, 2: 100}


def test_a_weight_below_one_is_refused() -> None:
    driver = _driver()
    answer = driver.ask(Subscribe(1, None, 1, "q", weight=0))
    assert isinstance(answer, InvalidOptions)


def test_what_comes_back_keeps_its_place_before_newer_ones() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, capacity_messages=2)
    driver.publish(8)
    assert driver.take() == {1: [2, 4]}
    driver.settle(1, 2, verb=Settlement.RELEASE)
    driver.settle(1, 4, verb=Settlement.RELEASE)
    assert driver.take() == {1: [2, 4]}
    driver.close(1, clean=True)
    driver.subscribe(2, where=EVEN)
    assert driver.take() == {2: [2, 4, 6, 8]}


def test_while_the_answer_is_on_its_way_messages_come_and_go() -> None:
    driver = _driver()
    driver.looks = False
    driver.publish(6)
    driver.subscribe(1, where=EVEN)
    driver.subscribe(2, where=THIRD)
    driver.publish(2)
    (question,) = driver.questions
    assert (question.runs, question.selectors) == ([(1, 6)], (EVEN,))
    driver.ask(PurgeQueue(9, None, "q"))
    driver.publish(4)
    driver.looks = True
    driver.look(question)
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert driver.take() == {1: [10, 12], 2: [9]}


def test_a_selector_that_comes_while_the_answer_is_on_its_way_is_asked_too() -> None:
    driver = _driver()
    driver.looks = False
    driver.publish(6)
    driver.subscribe(1, where=EVEN, priority=1)
    (question,) = driver.questions
    driver.questions.clear()
    driver.subscribe(2, where=THIRD)
    driver.looks = True
    driver.look(question)
    assert driver.take() == {1: [2, 4, 6], 2: [3]}


def test_an_answer_that_nobody_waits_for_is_passed_over() -> None:
    driver = _driver()
    driver.looks = False
    driver.publish(4)
    driver.subscribe(1, where=EVEN)
    (old,) = driver.questions
    driver.handle(Unsubscribe(1, None, 1))
    driver.subscribe(2, where=ODD)
    driver.looks = True
    driver.look(old)
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert driver.take() == {2: [1, 3]}


def test_a_consumer_that_holds_messages_may_change_its_selector() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN, capacity_messages=1)
    driver.publish(6)
    assert driver.take() == {1: [2]}
    driver.handle(Unsubscribe(1, None, 1))
    assert isinstance(driver.subscribe(1, where=ODD), Subscribed)
    assert driver.take() == {1: [1, 3, 5]}
    driver.settle(1, 2)
    assert driver.info().in_flight == 3


def test_a_named_group_keeps_what_its_consumers_do_not_want() -> None:
    driver = _driver(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="a", where=EVEN)
    driver.subscribe(2, group="b")
    driver.publish(4)
    assert driver.take() == {1: [2, 4], 2: [1, 2, 3, 4]}
    driver.close(1)
    driver.subscribe(3, group="a")
    assert driver.take() == {3: [1, 2, 3, 4]}


@pytest.mark.parametrize("mode", [DeliveryMode.FAN_OUT_WITH_ACK, DeliveryMode.FAN_OUT_WITHOUT_ACK])
def test_a_passing_group_is_done_with_what_its_consumer_does_not_want(mode: DeliveryMode) -> None:
    driver = _driver(mode=mode)
    driver.subscribe(1, where=EVEN)
    driver.subscribe(2)
    driver.publish(4)
    assert driver.take() == {1: [2, 4], 2: [1, 2, 3, 4]}
    assert driver.info().ready == 0
    driver.settle(2, 1, 2, 3, 4)
    driver.settle(1, 2, 4)
    assert not driver.engine.violations()


def test_messages_of_higher_priority_come_first() -> None:
    driver = _driver(mode=DeliveryMode.PRIORITY_BASED)
    driver.publish(4)
    driver.publish(4, priority=3)
    driver.subscribe(1, where=EVEN, capacity_messages=3)
    assert driver.take() == {1: [6, 8, 2]}
    driver.settle(1, 6, verb=Settlement.RELEASE)
    assert driver.take() == {1: [6]}


def test_messages_with_a_delay_come_when_it_is_over() -> None:
    driver = _driver()
    driver.subscribe(1, where=EVEN)
    driver.publish(2, deliver_at=driver.now + 1_000)
    driver.publish(2)
    assert driver.take() == {1: [4]}
    driver.advance(1_000)
    assert driver.take() == {1: [2]}
    assert not driver.engine.violations()


def test_bytes_and_credit_count_as_without_a_selector() -> None:
    driver = _driver()
    driver.publish(20, size=100)
    driver.subscribe(1, where=EVEN, capacity_bytes=250)
    assert driver.take() == {1: [2, 4, 6]}
    driver.subscribe(2, where=ODD, credit=2)
    assert driver.take() == {2: [1, 3]}


def test_there_are_only_so_many_different_selectors_in_a_group() -> None:
    driver = _driver()
    for number in range(SELECTORS_MAX):
        driver.subscribe(1, consumer=number, where=Selector.parse(f"n == {number}"))
    answer = driver.ask(Subscribe(2, None, 1, "q", where=Selector.parse(f"n == {SELECTORS_MAX}")))
    assert isinstance(answer, InvalidOptions)
    assert str(SELECTORS_MAX) in str(answer)
    assert isinstance(driver.subscribe(2, where=Selector.parse("n == 1")), Subscribed)


def test_nobody_looks_further_ahead_than_the_consumers_need() -> None:
    driver = _driver()
    driver.publish(5_000)
    driver.subscribe(1, where=EVEN, capacity_messages=10)
    asked = [run for effect in driver.effects if isinstance(effect, Classify) for run in effect.runs]
    assert asked == [(1, routes.ASKED_MESSAGES)]


def test_many_selectors_that_match_in_many_ways_are_served_in_short_steps() -> None:
    driver = _driver()
    driver.looks = False
    # Each message is matched by another set of them.
    driver.properties_of = lambda sequence: {"n": sequence * 2654435761 % (1 << 32)}
    for number in range(30):
        where = Selector.parse(f"n / {1 << number} % 2 == 1")
        driver.subscribe(1, consumer=number, where=where, capacity_messages=3)
    driver.publish(routes.ASKED_MESSAGES)
    driver.looks = True
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert len(driver.take()[1]) == 90
    driver.looks = False
    costs: list[int] = []
    for number in range(30):
        for _ in range(3):
            held = driver.engine._state.sessions[1].consumers[number].unacked.runs()
            if held:
                settle = partial(driver.settle, 1, held[0][0], consumer=number)
                costs.append(sum(instructions(settle).values()))
    driver.looks = True
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert len(driver.take()[1]) == 90
    assert max(costs) < 150_000


_SOME = [None, EVEN, ODD, THIRD, Selector.parse("n > 5"), Selector.parse("n < 0")]
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("subscribe"), st.sampled_from(_SOME), st.integers(1, 3), st.integers(0, 2)),
        st.tuples(st.just("leave"), st.integers(0, 9), st.booleans()),
        st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from(Settlement)),
        st.tuples(st.just("look"), st.booleans()),
        st.tuples(st.just("wait"), st.integers(1, 5_000)),
    ),
    max_size=30,
)


@given(_STEPS, st.sampled_from(DeliveryMode))
def test_whatever_happens_nobody_is_given_what_it_does_not_want_and_nothing_is_lost(
    steps: list[tuple[object, ...]], mode: DeliveryMode
) -> None:
    driver = _driver(mode=mode, retry_base_ms=10, ack_timeout_ms=0)
    wanted: dict[int, Selector | None] = {}
    held: dict[int, list[int]] = {}
    sessions = 0

    def note() -> None:
        for session, got in driver.take().items():
            selector = wanted[session]
            assert all(selector is None or selector.matches({"n": sequence}) for sequence in got)
            held.setdefault(session, []).extend(got)

    for kind, *args in steps:
        match kind, args:
            case "publish", [int(number)]:
                driver.publish(number)
            case "subscribe", [where, int(capacity), int(priority)]:
                sessions += 1
                wanted[sessions] = where  # type: ignore[assignment]
                driver.subscribe(sessions, where=where, capacity_messages=capacity, priority=priority)
            case "leave", [int(number), bool(clean)] if wanted:
                driver.close(sorted(wanted)[number % len(wanted)], clean=clean)
            case "settle", [int(number), Settlement() as verb] if any(held.values()):
                session = sorted(some for some in held if held[some])[number % sum(map(bool, held.values()))]
                driver.handle(Settle(session, None, 1, verb, [(held[session][0],) * 2]))
                del held[session][0]
            case "look", [bool(looks)]:
                driver.looks = looks
            case "wait", [int(ms)]:
                driver.advance(ms)
        note()
        assert not driver.engine.violations()
    driver.looks = True
    while driver.questions:
        driver.look(driver.questions.pop(0))
    for session in wanted:
        driver.close(session, clean=True)
    driver.take()
    left = driver.info().ready + driver.info().delayed
    if left and mode in (DeliveryMode.ROUND_ROBIN, DeliveryMode.PRIORITY_BASED):
        driver.subscribe(1_000, start=StartAt.DEFAULT, capacity_messages=1 << 30)
        driver.advance(200_000)
        assert len(driver.take().get(1_000, [])) == left
    assert not driver.engine.violations()


@pytest.mark.parametrize("count", [2, 7, 60])
def test_several_consumers_of_a_session_are_given_theirs_in_the_order_of_the_queue(count: int) -> None:
    driver = _driver()
    for number in range(count):
        where = Selector.parse(f"n % {count} == {number}")
        driver.subscribe(1, consumer=number, where=where, capacity_messages=10_000)
    driver.publish(1_000)
    assert driver.take_in_order() == list(range(1, 1_001))
    assert not driver.engine.violations()


def test_one_of_them_that_is_full_does_not_hold_up_the_others() -> None:
    driver = _driver()
    driver.subscribe(1, consumer=1, where=EVEN, capacity_messages=2)
    driver.subscribe(1, consumer=2, where=ODD, capacity_messages=10_000)
    driver.publish(600)
    assert driver.take_in_order() == sorted([2, 4, *range(1, 601, 2)])
    driver.settle(1, 2, 4, consumer=1)
    assert driver.take_in_order() == [6, 8]
