"""Subscriptions whose heartbeats have stopped."""

from dataclasses import replace

from vibemq.protocols.eventmesh.http.push.heartbeats import ENDED_AT_ONCE, Heartbeats
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import SubscriptionKey
from vibemq.testing.session_conformance import NOW, context

KEY = SubscriptionKey("ann", "", 0, "g", "t", "http://example.com/")
EXPIRY_MS = 90_000


class Beating:
    def __init__(self) -> None:
        self.session = InnerSession(context(), None, parted=lambda reason: None)
        self.ended: list[SubscriptionKey] = []
        self.heartbeats = Heartbeats(lambda: self.session, EXPIRY_MS, self._silent)

    def _silent(self, key: SubscriptionKey) -> None:
        self.heartbeats.forget(key)
        self.ended.append(key)

    def turn_at(self, now: int) -> None:
        self.session.tick(now)
        self.session.commands()


def test_the_silent_one_ends_in_time_and_the_others_stay() -> None:
    beating, other = Beating(), replace(KEY, topic="other")
    beating.heartbeats.note(KEY, NOW)
    beating.heartbeats.note(other, NOW)
    beating.heartbeats.note(other, NOW + 30_000)
    beating.turn_at(NOW + EXPIRY_MS - 1)
    assert beating.ended == []
    beating.turn_at(NOW + EXPIRY_MS)
    assert beating.ended == [KEY]
    beating.turn_at(NOW + 30_000 + EXPIRY_MS)
    assert beating.ended == [KEY, other]


def test_a_machine_that_was_suspended_hears_first_and_ends_subscriptions_later() -> None:
    beating, resumed = Beating(), NOW + 3_600_000
    beating.heartbeats.note(KEY, NOW)
    beating.turn_at(resumed)
    assert beating.ended == []
    beating.heartbeats.note(KEY, resumed + 1_000)
    beating.turn_at(resumed + EXPIRY_MS)
    assert beating.ended == []
    beating.turn_at(resumed + 1_000 + EXPIRY_MS)
    assert beating.ended == [KEY]


def test_very_many_end_in_turns() -> None:
    beating = Beating()
    keys = [replace(KEY, topic=f"t{number}") for number in range(3 * ENDED_AT_ONCE)]
    for key in keys:
        beating.heartbeats.note(key, NOW)
    for turn in range(1, 4):
        beating.turn_at(NOW + EXPIRY_MS)
        assert beating.ended == keys[: turn * ENDED_AT_ONCE]
