"""Whether a delay has ended between two looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model import upcoming as module
from vibemq.model.instants import Instants
from vibemq.model.upcoming import WINDOW_MS, Upcoming

START = 1_000_000


def test_what_ended_since_the_last_look_is_told_once() -> None:
    upcoming, delays = Upcoming(START), Instants({1: START + 10})
    upcoming.add(START + 10)
    assert [upcoming.pass_by(START + ms, delays) for ms in (5, 10, 11, 12)] == [False, False, True, False]


def test_before_all_have_been_looked_at_one_may_have_ended() -> None:
    delays = Instants((number * 1024, START + WINDOW_MS) for number in range(1, 40))
    upcoming = Upcoming()
    assert [upcoming.pass_by(START, delays) for _ in range(5)] == [True, True, True, False, False]


def test_those_beyond_the_next_minutes_take_no_memory() -> None:
    upcoming, delays = Upcoming(START), Instants((s, START + 10 * WINDOW_MS + s) for s in range(1, 5_000))
    for instant in delays.values():
        upcoming.add(instant)
    for minute in range(30):
        assert not upcoming.pass_by(START + minute * 20_000, delays)
        assert len(upcoming) == 0


@given(
    st.lists(st.integers(1, 5 * WINDOW_MS), max_size=60),
    st.lists(st.integers(1, WINDOW_MS // 3), min_size=1, max_size=40),
    st.booleans(),
)
def test_none_that_ends_is_passed_over(dues: list[int], steps: list[int], fresh: bool) -> None:
    upcoming, delays = Upcoming(START if fresh else 0), Instants()
    before = now = START
    for number, step in enumerate(steps):
        for due in dues[number :: len(steps)]:
            delays[1 + 1024 * len(delays)] = now + due
            upcoming.add(now + due)
        before, now = now, now + step
        ended = any(before <= due < now for due in delays.values())
        told = upcoming.pass_by(now, delays)
        assert told or not ended


@given(st.lists(st.tuples(st.integers(0, 900), st.integers(1, 60), st.integers(1, 9)), max_size=12))
def test_many_are_added_at_once(batches: list[tuple[int, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_TOGETHER_MAX", 16)
        patch.setattr(module, "_FEW", 4)
        upcoming, model = Upcoming(START), set[int]()
        for first, count, apart in batches:
            instants = [START + 100 + first + apart * number for number in range(count)]
            upcoming.add_all(instants[::-1])
            model.update(instants)
            assert len(upcoming) == len(model)
        seen = [ms for ms in range(1, 1_700) if upcoming.pass_by(START + ms, Instants())]
        assert seen == [instant + 1 - START for instant in sorted(model)]


def test_those_beyond_what_is_known_are_not_kept() -> None:
    upcoming = Upcoming(START)
    upcoming.add_all([START + WINDOW_MS - 1, START + WINDOW_MS, START + 1])
    assert len(upcoming) == 2
