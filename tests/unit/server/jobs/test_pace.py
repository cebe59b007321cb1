"""A rate is kept over time, whatever holds a job up between two steps; every instant is the test's."""

from random import Random

import pytest

from vibemq.operations.dead_letters.letters import LETTERS_PER_STEP
from vibemq.server.jobs.pace import BEHIND_MS_MAX, Pace


def run(rate: float, seconds: int, *, late_ms: int = 0) -> int:
    """Letters that go in this time, when each step comes up to `late_ms` late."""
    pace, rng, now, went = Pace(), Random(3), 1_000_000, 0
    end = now + 1000 * seconds
    while now < end:
        at = pace.wait_until(rate, now)
        if at > now:
            now = at + rng.randint(0, late_ms)
            continue
        count = pace.letters(rate)
        pace.went(count, rate, now)
        went += count
    return went


@pytest.mark.parametrize("late_ms", [0, 5])
@pytest.mark.parametrize("rate", [0.5, 1, 7, 19, 20, 100, 999, 2_000])
def test_a_rate_is_kept_within_five_percent(rate: float, late_ms: int) -> None:
    seconds = 60
    assert run(rate, seconds, late_ms=late_ms) == pytest.approx(rate * seconds, rel=0.05, abs=1)


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace()
    pace.went(50, 0, 1_000)
    assert pace.wait_until(0, 1_000) == 1_000
    assert pace.letters(0) == LETTERS_PER_STEP


def test_what_was_missed_is_made_up_for_a_moment_only() -> None:
    pace, now = Pace(), 1_000_000
    pace.went(pace.letters(100), 100, now)
    now += 60_000
    went = 0
    while pace.wait_until(100, now) <= now:
        pace.went(pace.letters(100), 100, now)
        went += pace.letters(100)
    assert went <= 100 * BEHIND_MS_MAX / 1000 + pace.letters(100)


def test_a_pause_is_not_made_up_for() -> None:
    pace, now = Pace(), 1_000_000
    pace.went(5, 100, now)
    pace.paused(now + 50)
    assert pace.wait_until(100, now + 60_000) == now + 60_000
    pace.went(5, 100, now + 60_000)
    assert pace.wait_until(100, now + 60_000) == now + 60_050


def test_a_pause_makes_nothing_go_before_its_time() -> None:
    pace, now = Pace(), 1_000_000
    assert pace.wait_until(0.1, now) == now
    pace.went(1, 0.1, now)
    pace.paused(now + 1_000)
    assert pace.wait_until(0.1, now + 1_000) == now + 10_000


def test_a_higher_rate_counts_at_once() -> None:
    pace, now = Pace(), 1_000_000
    assert pace.wait_until(0.1, now) == now
    pace.went(1, 0.1, now)
    assert pace.wait_until(0.1, now) == now + 10_000
    assert pace.wait_until(1_000, now) <= now + 50


def test_the_rate_of_late() -> None:
    pace, now = Pace(), 1_000_000
    assert pace.rate_now(now) == 0
    for step in range(100):
        pace.went(10, 100, now + 100 * step)
    assert pace.rate_now(now + 9_900) == pytest.approx(100, rel=0.05)
    assert pace.rate_now(now + 60_000) == 0
