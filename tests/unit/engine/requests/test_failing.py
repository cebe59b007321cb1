"""Requests whose messages leave their queue: the requester is told why, at once."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.short_steps import steps_of
from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine import Batch
from vibemq.engine.requests.failing import NOTED_PER_UNIT, fail_requests
from vibemq.errors import NoReply, RequestFailed
from vibemq.model.commands import (
    DeleteGroup,
    DeleteQueue,
    MoveMessages,
    PurgeQueue,
    RemoveMessages,
    SeekGroup,
    Settle,
    Settlement,
    StartAt,
)
from vibemq.model.effects import Responded
from vibemq.model.options import DeliveryMode, Overflow, Retention
from vibemq.model.records import Reason

STEP = 4


def reject(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.REJECT, reason="no such item")


def use_up(driver: Driver) -> None:
    driver.settle(1, 1, verb=Settlement.RETRY, reason="KeyError: 'x'")


WAYS: dict[str, tuple[Callable[[Driver], object], bool]] = {
    "a consumer rejected it: no such item": (reject, True),
    "its attempts are used up: KeyError: 'x'": (use_up, True),
    "its attempts are used up: connection lost": (lambda driver: driver.close(1), True),
    "it was removed from the queue": (lambda driver: driver.ask(PurgeQueue(9, None, "q")), False),
    "removed from the queue": (lambda driver: driver.ask(RemoveMessages(9, None, "q", [(1, 1)])), False),
    "the queue was deleted": (lambda driver: driver.ask(DeleteQueue(9, None, "q")), False),
    "queue is full": (lambda driver: driver.publish(5), False),
}


@pytest.mark.parametrize("dead_letter", [True, False])
@pytest.mark.parametrize("words", WAYS)
def test_the_requester_hears_why(words: str, dead_letter: bool) -> None:
    way, taken = WAYS[words]
    driver = Driver()
    driver.create(dead_letter=dead_letter, max_attempts=1, max_messages=5, overflow=Overflow.DROP_OLDEST)
    driver.request("a")
    if taken:
        driver.subscribe(1)
    assert driver.outcomes() == {}
    way(driver)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, RequestFailed)
    assert str(error).startswith("the request to queue 'q' was not answered, because ")
    assert words in str(error)
    driver.advance(10_000)
    assert len(driver.outcomes()["a"]) == 1


def test_nobody_hears_of_a_dead_letter_that_is_not_kept() -> None:
    driver = Driver()
    driver.create()
    driver.request("a")
    driver.subscribe(1)
    outcome = driver.engine.handle([Settle(1, None, 1, Settlement.REJECT, [(1, 1)])], driver.now)
    assert not [effect for effect in outcome.effects if isinstance(effect, Responded)]
    assert [type(effect) for effect in outcome.after_append] == [Responded]


def test_overflow_that_goes_into_the_dead_letters_at_once() -> None:
    driver = Driver()
    driver.create(dead_letter=True, max_messages=1, overflow=Overflow.REDIRECT_TO_DLQ)
    driver.publish(1)
    driver.request("a")
    [error] = driver.outcomes()["a"]
    assert isinstance(error, RequestFailed)
    assert "the queue is full, and the message has become a dead letter" in str(error)
    assert "others" not in str(error)
    assert driver.info().dead == 1


def test_expiry_in_the_queue_is_no_reply() -> None:
    driver = Driver()
    driver.create(dead_letter=True)
    driver.request("a", timeout_ms=1_000)
    driver.advance(1_000)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, NoReply)
    assert "nobody works on it" in str(error)
    assert driver.info().dead == 1


def test_a_log_that_is_full() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK, retention=Retention.LOG, retain_messages=1)
    driver.subscribe(1)
    driver.request("a")
    driver.publish(3)
    assert "its log is full" in str(driver.outcomes()["a"][0])


def test_a_request_that_another_group_still_has_is_not_lost() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="one")
    driver.subscribe(2, group="two")
    driver.request("a")
    driver.settle(1, 1, verb=Settlement.REJECT)
    assert driver.outcomes() == {}
    driver.settle(2, 1, verb=Settlement.REJECT)
    assert isinstance(driver.outcomes()["a"][0], RequestFailed)


def test_an_acknowledged_request_may_be_answered_later() -> None:
    driver = Driver()
    driver.subscribe(1)
    driver.request("a")
    driver.settle(1, 1)
    assert driver.respond("a") is None


def test_very_many_of_a_purged_queue_are_told_in_steps() -> None:
    driver = Driver()
    for number in range(4_000):
        driver.request(f"a{number}")
    driver.ask(PurgeQueue(9, None, "q"))
    driver.advance(1)
    assert len(driver.outcomes()) == 4_000


@pytest.mark.parametrize("how", ["delete", "seek", "leave"])
def test_a_group_that_goes_on_without_it(how: str) -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="one")
    driver.subscribe(2, group=None if how == "leave" else "two")
    driver.request("a")
    driver.settle(1, 1, verb=Settlement.REJECT)
    assert driver.outcomes() == {}
    match how:
        case "delete":
            driver.ask(DeleteGroup(9, None, "q", "two", manage=True))
        case "seek":
            driver.ask(SeekGroup(9, None, "q", "two", StartAt.NOW, manage=True))
        case "leave":
            driver.close(2)
    driver.advance(0)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, RequestFailed)
    assert "no subscription has it any more" in str(error)


def test_a_group_that_is_read_again_keeps_its_requests() -> None:
    driver = Driver()
    driver.create(mode=DeliveryMode.FAN_OUT_WITH_ACK)
    driver.subscribe(1, group="one")
    driver.request("a")
    driver.ask(SeekGroup(9, None, "q", "one", StartAt.BEGINNING, manage=True))
    assert driver.outcomes() == {}
    driver.settle(1, 1, verb=Settlement.REJECT)
    driver.advance(1)
    assert driver.outcomes() == {}


def move(driver: Driver, *sequences: int) -> None:
    info = driver.info("a")
    moving = MoveMessages(
        1, None, "a", info.incarnation, "b", list(sequences), [driver.now] * len(sequences), rows_of(len(sequences))
    )
    driver.ask(moving)


def test_a_request_that_was_moved_is_one_of_its_new_queue() -> None:
    driver = Driver()
    driver.create("a")
    driver.create("b")
    driver.publish(2, "b")
    for address in ("x", "y", "z"):
        driver.request(address, "a", timeout_ms=6_400)
    move(driver, 1, 3)
    assert driver.outcomes() == {}
    driver.ask(DeleteQueue(9, None, "a"))
    assert set(driver.outcomes()) == {"y"}
    driver.subscribe(1, "b")
    assert driver.respond("x") is None
    driver.settle(1, 4, verb=Settlement.REJECT, reason="no")
    [error] = driver.outcomes()["z"]
    assert "queue 'b' was not answered, because a consumer rejected it: no" in str(error)
    assert len(driver.engine._state.requests) == 0


def test_a_move_that_the_disk_refuses_moves_no_request() -> None:
    driver = Driver()
    driver.create("a")
    driver.create("b")
    driver.request("x", "a")
    driver.hold = True
    move(driver, 1)
    driver.refuse()
    driver.hold = False
    driver.subscribe(1, "a")
    assert driver.outcomes() == {}
    driver.settle(1, 1, verb=Settlement.REJECT, reason="no")
    assert isinstance(driver.outcomes()["x"][0], RequestFailed)


def test_every_reason_has_its_words() -> None:
    driver = Driver()
    for reason in Reason:
        driver.request(reason.name, reason.name)
        fail_requests(driver.engine._state.queues[reason.name], [(1, 1)], reason)
    driver.tick()
    assert set(driver.outcomes()) == {reason.name for reason in Reason}


def test_an_acknowledgement_looks_at_the_requests_of_its_runs_and_no_others() -> None:
    driver = Driver()
    driver.create()
    for number in range(200):
        driver.request(f"a{number}", timeout_ms=90_000)
    driver.publish(50_000)
    requests = driver.engine._state.queues["q"].requests
    looked: list[int] = []

    class Looked(type(requests)):  # type: ignore[misc]
        __slots__ = ()

        def __getitem__(self, sequence: int) -> object:
            looked.append(sequence)
            return super().__getitem__(sequence)

        def __contains__(self, sequence: object) -> bool:
            looked.append(sequence)  # type: ignore[arg-type]
            return super().__contains__(sequence)

    requests.__class__ = Looked
    driver.subscribe(1, capacity_messages=60_000)
    driver.advance(10)
    driver.handle(Settle(1, None, 1, Settlement.ACK, [(201, 16_000), (20_000, 36_000)]))
    assert looked == []
    driver.handle(Settle(1, None, 1, Settlement.ACK, [(198, 200), (17_000, 17_100)]))
    assert looked == [198, 199, 200]


def test_very_many_requests_are_acknowledged_in_steps() -> None:
    count = 3 * NOTED_PER_UNIT * STEP
    with steps_of(STEP):
        driver = Driver()
        driver.create()
        for number in range(count):
            driver.request(f"a{number}", timeout_ms=90_000)
        driver.subscribe(1, capacity_messages=count)
        driver.advance(10)
        batch = Batch([Settle(1, None, 1, Settlement.ACK, [(1, count)])])
        requests = driver.engine._state.queues["q"].requests
        noted = [0]
        while not batch.done:
            driver.submit(driver.engine.advance(batch, driver.now))
            noted.append(sum(waiting.acknowledged for waiting in requests.values()))
        assert noted[-1] == count
        assert max(after - before for before, after in pairwise(noted)) <= NOTED_PER_UNIT * STEP
