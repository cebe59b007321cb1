"""Which queues a client creates anew, and which it forgets."""

import logging

import pytest

from vibemq.client import passing
from vibemq.client.passing import LOOK_S, REMEMBERED_MAX, PassingQueues
from vibemq.model.options import QueueOptions

AUTO_DELETE = QueueOptions(auto_delete=True)
EXCLUSIVE = QueueOptions(exclusive=True)


@pytest.fixture
def subscribed() -> set[str]:
    return set()


@pytest.fixture
def queues(subscribed: set[str]) -> PassingQueues:
    return PassingQueues(lambda: subscribed)


def test_what_is_exclusive_or_subscribed_is_created_anew(queues: PassingQueues, subscribed: set[str]) -> None:
    for name, options in (("own", EXCLUSIVE), ("events", AUTO_DELETE), ("old", AUTO_DELETE), ("deleted", EXCLUSIVE)):
        queues.created(name, options, name.encode(), 0)
    queues.deleted("deleted")
    queues.deleted("never there")
    subscribed.add("events")
    assert queues.to_create() == [("own", b"own"), ("events", b"events")]


def test_an_expired_queue_is_forgotten_when_nobody_has_used_it(queues: PassingQueues, subscribed: set[str]) -> None:
    for name in ("unused", "used", "subscribed"):
        queues.created(name, QueueOptions(expires_ms=60_000), b"", 0)
    subscribed.add("subscribed")
    queues.tick(60)
    assert len(queues) == 3
    queues.used("used", 65)
    queues.used("never there", 65)
    queues.tick(60 + 2 * LOOK_S)
    subscribed.add("unused")
    subscribed.add("used")
    assert [name for name, _ in queues.to_create()] == ["used", "subscribed"]


def test_a_queue_without_a_time_is_not_forgotten(queues: PassingQueues) -> None:
    queues.created("own", EXCLUSIVE, b"", 0)
    queues.tick(1e9)
    assert len(queues) == 1


def test_the_oldest_that_would_not_be_created_anew_makes_room(
    queues: PassingQueues, subscribed: set[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(passing, "REMEMBERED_MAX", 4)
    for name, options in (("a", EXCLUSIVE), ("b", AUTO_DELETE), ("c", AUTO_DELETE), ("d", AUTO_DELETE)):
        queues.created(name, options, b"", 0)
    queues.created("b", AUTO_DELETE, b"", 1)
    queues.created("e", EXCLUSIVE, b"", 1)
    subscribed.update("bcd")
    assert sorted(name for name, _ in queues.to_create()) == ["a", "b", "d", "e"]
    with caplog.at_level(logging.WARNING):
        queues.created("f", EXCLUSIVE, b"", 2)
    assert "queue 'f' will not be created anew" in caplog.text
    assert len(queues) == 4


def test_it_is_bounded(queues: PassingQueues) -> None:
    for number in range(REMEMBERED_MAX + 100):
        queues.created(f"q{number}", AUTO_DELETE, b"", 0)
    assert len(queues) == REMEMBERED_MAX
