"""When a flush may run on the event loop. Times are told, none is measured."""

from vibemq.server.commit.flush_place import (
    BYTES_MAX,
    FORGIVEN_AFTER,
    HOLD_MAX_S,
    SHORT_MIN,
    STEPS_MAX,
    FlushPlace,
    is_small_flush,
)

QUICK_S, SLOW_S = HOLD_MAX_S / 2, HOLD_MAX_S * 2


def short_ones(place: FlushPlace, *, on_loop: bool = False) -> int:
    """How many short flushes in a row it takes until the next one may run on the loop."""
    for number in range(1_000_000):
        if place.is_loop:
            return number
        place.note(QUICK_S, on_loop=on_loop)
    raise AssertionError("never")


def test_the_first_flushes_run_in_the_thread() -> None:
    place = FlushPlace()
    assert short_ones(place) == SHORT_MIN


def test_a_slow_flush_in_the_thread_begins_the_count_again() -> None:
    place = FlushPlace()
    short_ones(place)
    place.note(SLOW_S, on_loop=False)
    assert short_ones(place) == SHORT_MIN


def test_each_slow_flush_on_the_loop_doubles_what_is_asked_for() -> None:
    place = FlushPlace()
    asked = []
    for _ in range(4):
        asked.append(short_ones(place))
        place.note(SLOW_S, on_loop=True)
    assert asked == [SHORT_MIN, 2 * SHORT_MIN, 4 * SHORT_MIN, 8 * SHORT_MIN]


def test_a_disk_that_is_slow_every_so_often_is_left_to_the_thread() -> None:
    assert held(FlushPlace(), SLOW_S, 100) <= 5


def held(place: FlushPlace, slow_s: float, every: int, flushes: int = 300_000) -> int:
    """How many slow flushes ran on the loop."""
    number_held = 0
    for number in range(1, flushes + 1):
        slow, on_loop = number % every == 0, place.is_loop
        number_held += slow and on_loop
        place.note(slow_s if slow else QUICK_S, on_loop=on_loop)
    return number_held


def test_a_disk_that_is_slow_now_and_then_holds_the_loop_a_few_times() -> None:
    assert held(FlushPlace(), SLOW_S, 300) <= 6
    assert held(FlushPlace(), SLOW_S, 10_000) <= 12


def test_long_holds_count_for_more() -> None:
    assert held(FlushPlace(), 0.3, 300) == 1
    assert held(FlushPlace(), 0.3, 5_000) == 1
    assert held(FlushPlace(), 10 * HOLD_MAX_S, 5_000) <= 4


def test_slow_flushes_are_forgiven_in_time() -> None:
    place = FlushPlace()
    short_ones(place)
    place.note(SLOW_S, on_loop=True)
    for _ in range(FORGIVEN_AFTER):
        place.note(QUICK_S, on_loop=place.is_loop)
    place.note(SLOW_S, on_loop=False)
    assert short_ones(place) == SHORT_MIN


def test_few_outcomes_and_bytes_are_small_and_nobody_is_in_no_hurry() -> None:
    assert is_small_flush(1, 0)
    assert is_small_flush(STEPS_MAX, BYTES_MAX)
    assert not is_small_flush(STEPS_MAX + 1, 0)
    assert not is_small_flush(1, BYTES_MAX + 1)
    assert not is_small_flush(0, 0)
