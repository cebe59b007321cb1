"""What the plug-in's own session calls, and that very much of it is done in turns."""

import pytest

from vibemq.protocols.eventmesh.http.push.inner_session import CALLS_AT_ONCE, InnerSession
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
