"""A publish that asks for a reply: its one end, and its time."""

import random
from collections import Counter

import pytest

from tests.simulation.engine_driver import Driver, rows_of
from vibemq.engine.pacing import STEP_UNITS
from vibemq.engine.requests import asking
from vibemq.engine.waiting import PER_UNIT
from vibemq.errors import (
    InvalidQueueName,
    NoReply,
    QueueFull,
    QueueNotFound,
    RateLimited,
    RequesterGone,
    RequestFailed,
    StorageFull,
)
from vibemq.model.commands import CreateQueue, DeleteQueue, Publish, Requester, Settlement, Unsubscribe
from vibemq.model.effects import Published
from vibemq.model.options import DeliveryMode, Durability, Overflow, QueueOptions
from vibemq.model.rows import Rows


def test_the_reply_comes_once_and_the_message_stays_the_consumers() -> None:
    driver = Driver()
    driver.subscribe(1)
    assert driver.request("a") == Published("q", 1, 1)
    assert driver.take() == {1: [1]}
    assert driver.respond("a") is None
    [reply] = driver.outcomes()["a"]
    assert isinstance(reply, Rows)
    assert reply.count == 1
    assert isinstance(driver.respond("a"), RequesterGone)
    assert len(driver.outcomes()["a"]) == 1
    assert driver.info().in_flight == 1
    driver.settle(1, 1)
    driver.advance(10_000)
    assert len(driver.outcomes()["a"]) == 1
    driver.check()


def test_a_request_lives_as_long_as_its_requester_waits() -> None:
    driver = Driver()
    driver.create(dead_letter=False)
    driver.request("a", timeout_ms=640)
    driver.advance(639)
    assert (driver.info().ready, driver.outcomes()) == (1, {})
    driver.advance(11)
    assert driver.info().ready == 0
    [error] = driver.outcomes()["a"]
    assert isinstance(error, NoReply)
    assert "within 0.64 s" in str(error)
    assert isinstance(driver.respond("a"), RequesterGone)


def test_who_works_too_long_replies_too_late() -> None:
    driver = Driver()
    driver.subscribe(1)
    driver.request("a", timeout_ms=640)
    driver.take()
    driver.advance(640)
    assert isinstance(driver.respond("a"), RequesterGone)
    driver.advance(10)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, NoReply)
    assert "may still work on it" in str(error)


def test_a_shorter_ttl_stays() -> None:
    driver = Driver()
    driver.request("a", timeout_ms=2_000, expires_at=driver.now + 100)
    driver.advance(200)
    assert isinstance(driver.outcomes()["a"][0], NoReply)


def test_after_a_redelivery_the_first_reply_counts() -> None:
    driver = Driver()
    driver.create(retry_base_ms=0)
    driver.subscribe(1)
    driver.request("a")
    driver.settle(1, 1, verb=Settlement.RETRY, delay_ms=0)
    assert driver.respond("a", session=1) is None
    assert isinstance(driver.respond("a", session=2), RequesterGone)
    assert [type(outcome) for outcome in driver.outcomes()["a"]] == [Rows]


def test_a_session_that_has_ended_hears_nothing_and_its_responder_does() -> None:
    driver = Driver()
    driver.subscribe(1)
    for number in range(500):
        driver.request(f"a{number}", session=8)
    driver.request("b", session=7)
    driver.close(8)
    assert isinstance(driver.respond("a3"), RequesterGone)
    assert driver.respond("b") is None
    driver.advance(10_000)
    assert set(driver.outcomes()) == {"b"}
    assert len(driver.engine._state.requests) == 0


def test_a_full_queue_refuses_the_request_and_nobody_waits() -> None:
    driver = Driver()
    driver.create(max_messages=1, overflow=Overflow.DROP_NEWEST)
    driver.publish(1)
    assert isinstance(driver.request("a").refused[0], QueueFull)
    assert isinstance(driver.respond("a"), RequesterGone)
    assert driver.outcomes() == {}


def test_a_missing_queue_refuses_it() -> None:
    driver = Driver()
    requester = Requester("a", "t", 100)
    answer = driver.ask(Publish(8, None, "none", Rows.of([b"r"]), create=False, requester=requester))
    assert isinstance(answer, QueueNotFound)
    assert len(driver.engine._state.requests) == 0


def test_a_request_that_waits_for_room_is_asked_once_there_is_some() -> None:
    driver = Driver()
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish(1)
    driver.subscribe(1, capacity_messages=1)
    driver.publish(1)
    assert driver.request("a") is None
    assert isinstance(driver.respond("a"), RequesterGone)
    driver.settle(1, 1)
    driver.settle(1, 2)
    assert driver.respond("a") is None


def test_a_disk_that_is_full_is_an_error_of_the_publish_alone() -> None:
    driver = Driver()
    driver.create()
    driver.hold = True
    driver.request("a")
    driver.refuse()
    driver.hold = False
    [answer] = [e.result for e in driver.effects if getattr(e, "result", None).__class__ is Published]
    assert isinstance(answer.refused[0], StorageFull)
    assert (driver.outcomes(), len(driver.engine._state.requests)) == ({}, 0)
    driver.advance(5_000)
    assert driver.outcomes() == {}


def test_who_was_told_of_the_publish_before_the_disk_was_full_is_told_that_nobody_will_reply() -> None:
    driver = Driver()
    driver.create(durability=Durability.ASYNC)
    driver.hold = True
    assert isinstance(driver.request("a"), Published)
    driver.refuse()
    driver.hold = False
    driver.advance(1)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, RequestFailed)
    assert "the store had no room for it" in str(error)
    assert len(driver.engine._state.requests) == 0


def test_one_session_waits_for_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REQUESTS_MAX", 2)
    driver = Driver()
    driver.request("a")
    driver.request("b")
    assert isinstance(driver.request("c"), RateLimited)
    assert isinstance(driver.request("d", session=7), Published)
    driver.respond("a")
    assert isinstance(driver.request("e"), Published)


def test_a_request_beyond_the_limit_makes_no_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REQUESTS_MAX", 1)
    driver = Driver()
    driver.request("a")
    told = len(driver.records)
    assert isinstance(driver.request("b", "new"), RateLimited)
    assert isinstance(driver.request("b", "no/slash"), InvalidQueueName)
    assert driver.engine.queue_info("new") is None
    assert len(driver.records) == told


def full_queue() -> Driver:
    """One message waits and no other fits; publishers wait for room."""
    driver = Driver()
    driver.create(max_messages=1, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish(1)
    return driver


def test_requests_that_wait_for_room_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "REQUESTS_MAX", 2)
    driver = full_queue()
    assert (driver.request("a", timeout_ms=60_000), driver.request("b", timeout_ms=60_000)) == (None, None)
    assert isinstance(driver.request("c"), RateLimited)
    driver.advance(driver.settings.block_timeout_ms)
    # They were refused, which is their end.
    assert len(driver.engine._state.requests) == 0
    assert driver.request("d") is None


def test_a_request_that_waits_for_room_ends_with_its_time_and_is_not_published_afterwards() -> None:
    driver = full_queue()
    driver.request("a", timeout_ms=640)
    driver.request("b", timeout_ms=6_400)
    driver.advance(700)
    [error] = driver.outcomes()["a"]
    assert isinstance(error, NoReply)
    assert "was not published" in str(error)
    driver.subscribe(1, capacity_messages=5)
    assert driver.info().ready + driver.info().in_flight == 2
    driver.settle(1, 1)
    assert driver.respond("b") is None
    driver.advance(10_000)
    assert {address: len(ends) for address, ends in driver.outcomes().items()} == {"a": 1, "b": 1}


def test_time_in_front_of_a_full_queue_is_part_of_the_requests_time() -> None:
    driver = full_queue()
    driver.request("a", timeout_ms=6_400)
    driver.advance(3_200)
    driver.subscribe(1, capacity_messages=5)
    driver.settle(1, 1)
    driver.advance(3_100)
    assert driver.outcomes() == {}
    driver.advance(300)
    assert isinstance(driver.outcomes()["a"][0], NoReply)


@pytest.mark.parametrize("how", ["delete", "close"])
def test_nothing_is_left_of_those_that_waited_for_room(how: str) -> None:
    driver = full_queue()
    driver.request("a", timeout_ms=60_000)
    driver.ask(DeleteQueue(9, None, "q")) if how == "delete" else driver.close(8)
    assert len(driver.engine._state.requests) == 0
    driver.advance(100_000)
    assert driver.outcomes() == {}


def test_who_gives_up_takes_the_request_back() -> None:
    driver = Driver()
    driver.request("a")
    driver.request("b")
    driver.give_up("a", session=7)
    assert driver.info().ready == 2
    driver.give_up("a")
    driver.give_up("a")
    assert driver.info().ready == 1
    assert isinstance(driver.respond("a"), RequesterGone)
    driver.subscribe(1)
    assert driver.take() == {1: [2]}
    driver.give_up("b")
    assert isinstance(driver.respond("b"), RequesterGone)
    assert (driver.info().in_flight, driver.info().dead) == (1, 0)
    driver.settle(1, 2)
    driver.advance(10_000)
    assert driver.outcomes() == {}
    driver.check()


def test_who_gives_up_in_front_of_a_full_queue_is_not_published() -> None:
    driver = full_queue()
    driver.request("a", timeout_ms=60_000)
    driver.give_up("a")
    driver.subscribe(1)
    driver.settle(1, 1)
    assert driver.info().ready + driver.info().in_flight == 0
    assert (driver.outcomes(), len(driver.engine._state.requests)) == ({}, 0)


@pytest.mark.parametrize("how", ["gives up", "waits too long"])
def test_whose_request_waits_for_room_no_more_lets_smaller_ones_pass(how: str) -> None:
    driver = Driver()
    driver.create(max_bytes=100, overflow=Overflow.BLOCK_PUBLISHER)
    driver.publish(1, size=60)
    requester = Requester("a", "t", 640)
    assert driver.ask(Publish(8, None, "q", rows_of(1, 90), requester=requester)) is None
    assert driver.publish(1, size=10) is None
    if how == "gives up":
        driver.give_up("a")
    else:
        driver.advance(650)
    assert driver.info().ready == 2


@pytest.mark.parametrize("durability", list(Durability))
def test_replies_come_whatever_the_durability(durability: Durability) -> None:
    driver = Driver()
    driver.create(durability=durability)
    driver.subscribe(1)
    driver.request("a")
    assert driver.respond("a") is None
    assert len(driver.outcomes()["a"]) == 1


def test_very_many_end_in_steps() -> None:
    driver = Driver()
    driver.create(dead_letter=False)
    for number in range(5_000):
        driver.request(f"a{number}", timeout_ms=1_000)
    driver.now += 20_000
    steps = 0
    while driver.engine.next_deadline() is not None and driver.engine.next_deadline() <= driver.now:  # type: ignore[operator]
        before = sum(map(len, driver.outcomes().values()))
        driver.tick()
        steps += 1
        assert sum(map(len, driver.outcomes().values())) - before <= 4 * PER_UNIT * STEP_UNITS
    assert steps > 4
    assert Counter(map(len, driver.outcomes().values())) == {1: 5_000}


@pytest.mark.parametrize("seed", range(30))
def test_every_request_has_one_end_whatever_happens(seed: int) -> None:
    """But those whose session has ended, or that were refused, which have none."""
    rng, driver = random.Random(seed), Driver()
    asked: dict[str, int] = {}
    gone: set[int] = set()
    number = 0
    for _ in range(150):
        driver.now += rng.choice([0, 0, 50, 400])
        driver.tick()
        queue = rng.choice(["a", "b"])
        match rng.randrange(12):
            case 0 | 1 | 2 | 3:
                number += 1
                session = 100 + rng.randrange(4) + 10 * len(gone)
                answer = driver.request(str(number), queue, session=session, timeout_ms=rng.choice([100, 1_000, 9_000]))
                if isinstance(answer, Published) and not answer.refused:
                    asked[str(number)] = session
            case 4 | 5 if asked:
                driver.respond(rng.choice(sorted(asked)))
            case 6:
                driver.subscribe(rng.randint(1, 2), queue, consumer=ord(queue), capacity_messages=3, credit=None)
            case 7:
                for deliver in driver.delivers():
                    verb = rng.choice(list(Settlement))
                    runs = [n for first, last in deliver.runs for n in range(first, last + 1)]
                    driver.settle(deliver.session, *runs, verb=verb, consumer=deliver.consumer)
            case 8 if asked:
                session = rng.choice(sorted(asked.values()))
                gone.add(session)
                driver.close(session)
            case 9:
                driver.close(rng.randint(1, 2))
            case 10:
                driver.ask(DeleteQueue(9, None, queue))
            case 11:
                options = QueueOptions(
                    mode=rng.choice(list(DeliveryMode)),
                    max_messages=rng.choice([0, 3]),
                    dead_letter=rng.random() < 0.5,
                    overflow=rng.choice([Overflow.DROP_OLDEST, Overflow.DROP_NEWEST]),
                    max_attempts=1,
                )
                driver.ask(CreateQueue(9, None, queue, options))
                driver.ask(Unsubscribe(1, None, ord(queue)))
    driver.advance(60_000)
    for address, session in asked.items():
        ends = len(driver.outcomes().get(address, []))
        assert ends == 1 or (ends == 0 and session in gone), address
    assert set(driver.outcomes()) <= set(asked)
    assert len(driver.engine._state.requests) == 0
    assert not driver.engine._state.requests._buckets
