"""Requests of several topics: in turns, and always answered."""

from vibemq.errors import RequestFailed, VibeMQError
from vibemq.protocols.eventmesh.http.push.exchanges import (
    EXCHANGE_TIMEOUT_MS,
    STEPS_AT_ONCE,
    STEPS_TOGETHER,
    Exchanges,
    HubExchange,
)
from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import KeptSubscription, SubscriptionKey
from vibemq.protocols.eventmesh.http.state import Done
from vibemq.testing.session_conformance import context

KEPT = [KeptSubscription(SubscriptionKey("u", "", 0, "g", f"t{number}", "http://x/")) for number in range(1_000)]


class Hub:
    def __init__(self) -> None:
        self.session = InnerSession(context(), None, parted=lambda reason: None)
        self.exchanges = Exchanges(lambda: self.session)
        self.begun: list[Done] = []
        self.done: list[VibeMQError | None] = []

    def ask(self, *, at_once: bool) -> None:
        def step(kept: KeptSubscription, told: Done) -> None:
            self.begun.append(told)
            if at_once:
                told(None)

        self.exchanges.begin(HubExchange(KEPT, step, self.done.append))


def test_steps_that_are_done_at_once_leave_turns_to_others() -> None:
    hub = Hub()
    hub.ask(at_once=True)
    while hub.session.unread:
        before = len(hub.begun)
        hub.session.commands()
        assert len(hub.begun) - before <= STEPS_AT_ONCE
    assert len(hub.begun) == len(KEPT)
    assert hub.done == [None]


def test_what_the_engine_never_answers_is_answered_by_the_deadline() -> None:
    hub = Hub()
    hub.ask(at_once=False)
    while hub.session.unread:
        hub.session.commands()
    assert len(hub.begun) == STEPS_TOGETHER
    assert not hub.done
    hub.session.tick(hub.session.now + EXCHANGE_TIMEOUT_MS)
    hub.session.commands()
    [error] = hub.done
    assert isinstance(error, RequestFailed)
    for told in hub.begun:
        told(None)
    assert len(hub.begun) == STEPS_TOGETHER, "nothing is begun for an exchange that is over"
    assert len(hub.done) == 1


def test_a_session_that_had_nothing_to_do_for_long_gives_the_whole_time() -> None:
    """It learns the time in its own turns alone, and another session asks."""
    hub = Hub()
    late = hub.session.now + 2 * EXCHANGE_TIMEOUT_MS
    hub.ask(at_once=False)
    for now in (late, late + EXCHANGE_TIMEOUT_MS - 1):
        hub.session.tick(now)
        while hub.session.unread:
            hub.session.commands()
        assert not hub.done
    hub.session.tick(late + EXCHANGE_TIMEOUT_MS)
    hub.session.commands()
    assert len(hub.done) == 1


def test_who_has_not_begun_is_told_when_all_fail() -> None:
    hub = Hub()
    hub.ask(at_once=False)
    hub.exchanges.fail_all(RequestFailed("over"))
    assert [str(error) for error in hub.done] == ["over"]
    hub.session.commands()
    assert hub.begun == []


def test_the_first_failure_is_the_answer() -> None:
    hub = Hub()
    hub.ask(at_once=False)
    hub.session.commands()
    hub.begun[3](RequestFailed("why"))
    hub.begun[4](RequestFailed("another"))
    assert [str(error) for error in hub.done] == ["why"]
