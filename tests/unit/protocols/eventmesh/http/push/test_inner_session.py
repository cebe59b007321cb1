"""What the plug-in's own session calls, and that very much of it is done in turns."""

import pytest

from vibemq.model.commands import Settle, Unsubscribe
from vibemq.model.runs import Run
from vibemq.protocols.eventmesh.http.push.inner_session import (
    ACK_WAIT_MS,
    ACKS_TOGETHER,
    CALLS_AT_ONCE,
    InnerSession,
)
from vibemq.testing.session_conformance import NOW, context

MANY = 10 * CALLS_AT_ONCE


def inner_session() -> InnerSession:
    return InnerSession(context(), None, parted=lambda reason: None)


def turns(session: InnerSession, called: list[int]) -> list[int]:
    """How many calls there are in each."""
    found = []
    while session.unread:
        before = len(called)
        session.commands()
        found.append(len(called) - before)
    return found


def test_a_long_row_of_calls_is_done_in_turns_and_in_order() -> None:
    session, called = inner_session(), list[int]()
    session.call_for_each(range(MANY), called.append)
    session.call_for_each([MANY], called.append)
    assert not called
    session.call_soon(lambda: called.append(-1))
    found = turns(session, called)
    assert called == [-1, *range(MANY + 1)]
    assert max(found) <= CALLS_AT_ONCE


def test_what_is_due_together_is_called_in_turns_and_nothing_before_its_time() -> None:
    session, called = inner_session(), list[int]()
    for number in range(MANY):
        session.call_at(NOW + 1_000, lambda number=number: called.append(number))  # type: ignore[misc]
    session.call_at(NOW + 1_001, lambda: called.append(MANY))
    session.tick(NOW + 999)
    assert not session.unread
    session.tick(NOW + 1_000)
    found = turns(session, called)
    assert called == list(range(MANY))
    assert max(found) <= CALLS_AT_ONCE
    assert session.next_deadline() == NOW + 1_001


def test_another_session_goes_on_with_what_is_left() -> None:
    gone, session, called = inner_session(), inner_session(), list[int]()
    gone.call_for_each(range(MANY), called.append)
    gone.commands()
    session.go_on_after(gone)
    turns(session, called)
    assert called == list(range(MANY))


def test_a_call_that_fails_takes_nothing_else_of_its_row_with_it() -> None:
    gone, session, called = inner_session(), inner_session(), list[int]()

    def call(number: int) -> None:
        called.append(number)
        if number in (0, 3, MANY - 1):
            raise ValueError(f"call {number} fails")

    gone.call_for_each(range(MANY), call)
    gone.call_for_each([MANY], called.append)
    for _ in range(2):
        with pytest.raises(ValueError, match="fails"):
            gone.commands()
    session.go_on_after(gone)
    with pytest.raises(ValueError, match="fails"):
        turns(session, called)
    turns(session, called)
    assert called == list(range(MANY + 1))


def acks_in(session: InnerSession) -> list[tuple[int, list[Run]]]:
    found = []
    for command in session.commands():
        assert isinstance(command, Settle)
        found.append((command.consumer, command.runs))
    return found


def test_acknowledgements_behind_which_others_follow_wait_for_them() -> None:
    session = inner_session()
    for sequence in range(1, ACKS_TOGETHER):
        session.acknowledge(7, sequence, more=True)
        assert acks_in(session) == []
    session.acknowledge(7, ACKS_TOGETHER, more=True)
    assert acks_in(session) == [(7, [(each, each) for each in range(1, ACKS_TOGETHER + 1)])]
    session.acknowledge(7, 99, more=True)
    assert acks_in(session) == []
    session.acknowledge(8, 1)
    assert acks_in(session) == [(7, [(99, 99)]), (8, [(1, 1)])]


def test_an_acknowledgement_waits_only_for_a_moment() -> None:
    session = inner_session()
    session.acknowledge(7, 1, more=True)
    assert acks_in(session) == []
    assert session.next_deadline() == NOW + ACK_WAIT_MS
    session.tick(NOW + ACK_WAIT_MS)
    assert acks_in(session) == [(7, [(1, 1)])]
    assert session.next_deadline() is None


def test_an_acknowledgement_that_waits_has_a_time_of_its_own() -> None:
    """Those before it were handed in, and what had been waited for with them does not count for it."""
    session = inner_session()
    session.acknowledge(7, 1, more=True)
    session.hand_in_acks()
    assert acks_in(session) == [(7, [(1, 1)])]
    session.tick(NOW + ACK_WAIT_MS - 1)
    session.acknowledge(7, 2, more=True)
    session.tick(NOW + ACK_WAIT_MS)
    assert acks_in(session) == []
    assert session.next_deadline() == NOW + 2 * ACK_WAIT_MS - 1
    session.tick(NOW + 2 * ACK_WAIT_MS - 1)
    assert acks_in(session) == [(7, [(2, 2)])]


def test_what_waits_to_be_acknowledged_goes_before_the_end_of_its_consumer() -> None:
    session = inner_session()
    session.acknowledge(7, 1, more=True)
    session.ask(Unsubscribe(session.number, None, 7))
    first, second = session.commands()
    assert isinstance(first, Settle)
    assert isinstance(second, Unsubscribe)
