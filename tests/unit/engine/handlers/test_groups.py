"""Durable groups with a filter: what does not match is settled by itself, whether or not a consumer is there."""

from typing import Any

import pytest

from tests.simulation.engine_driver import Driver
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.routing import routes
from vibemq.errors import GroupNotFound, InvalidOptions, NotAuthorized
from vibemq.model.commands import (
    CreateQueue,
    DeleteGroup,
    FilterGroup,
    JoinCursor,
    PurgeQueue,
    SeekGroup,
    Settlement,
    StartAt,
    Unsubscribe,
)
from vibemq.model.effects import Classify
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.records import GroupFiltered
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import GroupInfo

EVEN, ODD, THIRD, NONE = (Selector.parse(text) for text in ("n % 2 == 0", "n % 2 == 1", "n % 3 == 0", "missing"))
FAN_OUT = QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK)


def _driver(**filters: Selector | None) -> Driver:
    driver = Driver()
    answer = driver.ask(CreateQueue(9, None, "q", FAN_OUT, groups=list(filters), filters=filters))
    assert answer is None
    return driver


def _group(driver: Driver, name: str = "g") -> Group:
    return driver.engine._state.queues["q"].groups[name]


def _filter(driver: Driver, where: Selector | None, group: str = "g", **more: Any) -> Any:
    return driver.ask(FilterGroup(9, None, "q", group, where, **more))


def _waiting(driver: Driver, name: str = "g") -> list[int]:
    return list(_group(driver, name).unsettled_set())


def test_what_does_not_match_is_settled_without_a_consumer() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.publish(6)
    assert _waiting(driver) == [2, 4, 6]
    assert _waiting(driver, "h") == [1, 2, 3, 4, 5, 6]
    driver.publish(2)
    assert _waiting(driver) == [2, 4, 6, 8]
    assert _group(driver).counters.settled == 4
    driver.check()


def test_a_consumer_is_given_the_others_and_its_own_selector_counts_within_them() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.publish(6)
    driver.subscribe(1, group="g")
    driver.subscribe(2, group="g", where=THIRD, priority=1)
    driver.publish(6)
    assert driver.take() == {1: [2, 4, 6, 8, 10], 2: [12]}
    driver.handle(Unsubscribe(1, None, 1))
    driver.handle(Unsubscribe(2, None, 1))
    driver.publish(2)
    assert _group(driver).where == EVEN
    assert _waiting(driver) == [2, 4, 6, 8, 10, 12, 14]


def test_a_message_without_the_property_does_not_match() -> None:
    driver = _driver(g=NONE)
    driver.publish(3)
    assert _waiting(driver) == []
    assert driver.info().ready == 0


def test_the_only_group_of_a_queue_frees_what_does_not_match() -> None:
    driver = _driver(g=EVEN)
    driver.publish(4)
    (stored,) = driver.disk.queues[1].groups.values()
    assert (stored.head, [*stored.taken]) == (2, [3])
    assert _waiting(driver) == [2, 4]
    driver.check()


def test_a_filter_is_there_after_a_crash_and_what_was_not_looked_at_is_looked_at() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.publish(4)
    driver.looks = False
    driver.publish(4)
    assert _waiting(driver) == [2, 4, 5, 6, 7, 8]
    driver.restart()
    assert _group(driver).where == EVEN
    assert driver.questions, "nobody has to come for it"
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert _waiting(driver) == [2, 4, 6, 8]
    driver.check()


def test_another_filter_counts_for_all_that_waits_but_not_for_what_is_in_flight() -> None:
    driver = _driver(g=EVEN)
    driver.publish(6)
    driver.subscribe(1, group="g", capacity_messages=1)
    assert driver.take() == {1: [2]}
    info = _filter(driver, THIRD)
    assert isinstance(info, GroupInfo)
    assert (info.where, info.consumers) == (THIRD.text, 1)
    assert _waiting(driver) == [2, 6]
    driver.settle(1, 2, verb=Settlement.RELEASE)
    assert driver.take() == {1: [6]}, "what comes back is looked at as well"
    driver.check()
    _filter(driver, None)
    driver.publish(2)
    driver.settle(1, 6)
    assert driver.take() == {1: [7]}
    assert _group(driver).routes is None


def test_an_answer_about_the_filter_before_settles_nothing() -> None:
    driver = _driver(g=EVEN)
    driver.looks = False
    driver.publish(4)
    (stale,) = driver.questions
    driver.questions.clear()
    _filter(driver, ODD)
    driver.look(stale)
    assert _waiting(driver) == [1, 2, 3, 4]
    _filter(driver, None)
    for question in driver.questions:
        driver.look(question)
    assert _waiting(driver) == [1, 2, 3, 4]
    driver.subscribe(1, group="g")
    assert driver.take() == {1: [1, 2, 3, 4]}


def test_the_same_filter_again_is_no_change() -> None:
    driver = _driver(g=EVEN)
    _filter(driver, Selector.parse(EVEN.text))
    driver.ask(CreateQueue(9, None, "q", FAN_OUT, groups=["g"], filters={"g": EVEN}))
    assert len(driver.records_of(GroupFiltered)) == 1


def test_a_queue_that_is_there_gets_the_filters_of_a_declaration() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.publish(4)
    driver.ask(CreateQueue(9, None, "q", FAN_OUT, groups=["g", "h", "i"], filters={"g": None, "i": ODD}))
    assert [_group(driver, name).where for name in "ghi"] == [None, None, ODD]
    assert _waiting(driver) == [2, 4]
    assert _waiting(driver, "i") == [1, 3]
    driver.restart()
    assert [_group(driver, name).where for name in "ghi"] == [None, None, ODD]


def test_a_group_that_is_missing_is_made_and_begins_where_it_is_told() -> None:
    driver = _driver(h=None)
    driver.publish(4)
    _filter(driver, EVEN)
    _filter(driver, EVEN, "i", start=StartAt.BEGINNING)
    driver.publish(2)
    assert (_waiting(driver), _waiting(driver, "i")) == ([6], [2, 4, 6])


def test_a_group_that_was_deleted_under_a_question_and_made_again_has_no_filter() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.looks = False
    driver.publish(4)
    driver.ask(DeleteGroup(9, None, "q", "g"))
    driver.subscribe(1, group="g", start=StartAt.BEGINNING)
    for question in driver.questions:
        driver.look(question)
    assert driver.take() == {1: [1, 2, 3, 4]}
    assert _group(driver).where is None
    driver.check()


@pytest.mark.parametrize("late", [False, True])
def test_moving_and_purging_under_a_question(*, late: bool) -> None:
    driver = _driver(g=EVEN, h=None)
    driver.looks = not late
    driver.publish(6)
    driver.ask(SeekGroup(9, None, "q", "g", StartAt.SEQUENCE, 3))
    driver.looks = True
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert _waiting(driver) == [4, 6]
    driver.looks = not late
    driver.publish(2)
    driver.ask(PurgeQueue(9, None, "q"))
    while driver.questions:
        driver.look(driver.questions.pop(0))
    assert _waiting(driver) == []
    driver.check()


def test_delayed_messages_are_looked_at_when_they_fall_due() -> None:
    driver = _driver(g=EVEN, h=None)
    driver.publish(4, deliver_at=driver.now + 1_000)
    driver.advance(500)
    assert _waiting(driver) == [1, 2, 3, 4]
    driver.advance(1_000)
    assert _waiting(driver) == [2, 4]


def test_what_fails_comes_back_and_dies_as_ever() -> None:
    driver = Driver()
    options = FAN_OUT.with_changes(max_attempts=2, retry_base_ms=100, retry_max_ms=100)
    driver.ask(CreateQueue(9, None, "q", options, groups=["g"], filters={"g": EVEN}))
    driver.subscribe(1, group="g")
    driver.publish(2)
    for _ in range(2):
        driver.settle(1, 2, verb=Settlement.RETRY)
        driver.advance(1_000)
    assert driver.take() == {1: [2, 2]}
    assert [entry.facts.sequence for entry in driver.dead.entries.values()] == [2]
    driver.check()


def test_a_filter_goes_on_whatever_is_kept_for_full_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "KNOWN_RUNS_MAX", 8)
    driver = _driver(g=EVEN, h=None)
    driver.subscribe(1, group="g", where=THIRD, capacity_messages=1)
    driver.publish(4_000)
    group = _group(driver)
    assert group.unsettled == 2_000
    driver.subscribe(2, group="g", where=NONE)
    driver.subscribe(3, group="g", capacity_messages=1 << 40)
    driver.take()
    driver.handle(Unsubscribe(1, None, 1))
    assert group.counters.delivered == 2_000


def test_cursors_and_filters_do_not_go_together() -> None:
    driver = _driver(g=EVEN)
    refused = driver.ask(JoinCursor(9, None, "q", "g"))
    assert isinstance(refused, InvalidOptions)
    assert "has a filter" in str(refused)
    driver.ask(JoinCursor(9, None, "q", "reader"))
    refused = _filter(driver, EVEN, "reader")
    assert isinstance(refused, InvalidOptions)
    assert "is a cursor" in str(refused)
    refused = driver.ask(CreateQueue(9, None, "q", groups=["reader"], filters={"reader": EVEN}))
    assert isinstance(refused, InvalidOptions)
    assert driver.ask(CreateQueue(9, None, "q", groups=["reader"], filters={"reader": None})) is None
    assert driver.ask(CreateQueue(9, None, "work", groups=["g"], filters={"g": None})) is None


def test_where_filters_are_refused() -> None:
    driver = _driver(g=EVEN)
    driver.subscribe(1)
    (passing,) = [name for name in driver.engine._state.queues["q"].groups if name.startswith("~")]
    assert isinstance(_filter(driver, EVEN, passing), GroupNotFound)
    assert isinstance(driver.ask(FilterGroup(9, None, "none", "g", EVEN)), Exception)
    driver.create("work")
    assert isinstance(driver.ask(FilterGroup(9, None, "work", "g", EVEN)), InvalidOptions)
    work = CreateQueue(9, None, "new", groups=["g"], filters={"g": EVEN})
    assert isinstance(driver.ask(work), InvalidOptions)
    assert "new" not in driver.engine._state.queues
    other = CreateQueue(9, None, "new", FAN_OUT, groups=["g"], filters={"h": EVEN})
    assert isinstance(driver.ask(other), InvalidOptions)
    assert isinstance(_filter(driver, ODD, user="bob", manage=False), NotAuthorized)
    assert _group(driver).where == EVEN


def test_without_a_filter_nothing_is_asked() -> None:
    driver = _driver(g=None, h=None)
    driver.publish(3)
    driver.restart()
    assert not [effect for effect in driver.effects if isinstance(effect, Classify)]


def test_a_publisher_that_waits_for_room_goes_on() -> None:
    driver = Driver()
    options = FAN_OUT.with_changes(max_messages=4)
    driver.ask(CreateQueue(9, None, "q", options, groups=["g"], filters={"g": NONE}))
    for _ in range(3):
        assert driver.publish(4).refused is None


@pytest.mark.parametrize("how", ["seek", "delete"])
def test_what_is_on_its_way_when_the_last_group_that_waited_for_it_goes_is_nobodys(how: str) -> None:
    """The store lets go of it with that record, before it hears of the group that comes next."""
    driver = Driver()
    driver.ask(CreateQueue(9, None, "q", QueueOptions(mode=DeliveryMode.FAN_OUT_WITH_ACK), groups=["g", "h"]))
    driver.ask(SeekGroup(9, None, "q", "h", StartAt.SEQUENCE, 5))
    driver.hold = True
    driver.publish(6)
    if how == "seek":
        driver.handle(SeekGroup(9, "", "q", "g", StartAt.SEQUENCE, 4))
    else:
        driver.handle(DeleteGroup(9, "", "q", "g"))
    driver.subscribe(1, group="late", start=StartAt.BEGINNING)
    # The store takes one record after the other, and the engine hands out what it hears of.
    while driver.waiting:
        driver.keep(1)
    driver.hold = False
    driver.publish(1)
    first = 4 if how == "seek" else 5
    assert driver.take() == {1: [*range(first, 8)]}
    driver.check()
