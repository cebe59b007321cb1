"""Rings of figures, against a list of everything that was recorded."""

from collections.abc import Sequence
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.server.monitoring.history.rings import GAP_MS_MAX, POINTS, TIERS, Ring, ring_bytes

START = 1_700_000_000_000 // 300_000 * 300_000
FINE, MIDDLE, COARSE = range(3)


def recorded(figures: Sequence[float], *, step_ms: int = 5_000) -> Ring:
    ring = Ring(1)
    for number, figure in enumerate(figures):
        ring.record(START + number * step_ms, [figure])
    return ring


def test_a_queue_costs_what_is_said() -> None:
    assert POINTS == 180 + 360 + 576
    assert ring_bytes(6) == 24 + 4 * 6 * 1_116


def test_the_last_point_is_that_of_now_and_before_the_first_there_is_none() -> None:
    ring = recorded([1, 2, 3])
    points = ring.points(FINE, 0, START + 12_000)
    assert points[-3:] == [1, 2, 3]
    assert points[:-3] == [None] * 177


def test_points_grow_old_although_nothing_is_recorded() -> None:
    ring = recorded([1, 2, 3])
    assert ring.points(FINE, 0, START + 30_000)[-7:] == [1, 2, 3, None, None, None, None]
    assert set(ring.points(FINE, 0, START + 3_600_000)) == {None}
    assert 2 in ring.points(MIDDLE, 0, START + 3_600_000)


def test_coarser_points_are_means() -> None:
    ring = recorded([float(number % 12) for number in range(60)])
    assert ring.points(MIDDLE, 0, START + 299_000)[-5:] == pytest.approx([5.5] * 5)
    assert ring.points(COARSE, 0, START + 299_000)[-1] == pytest.approx(5.5)


def test_where_nothing_was_measured_there_is_nothing_to_weigh() -> None:
    ring = Ring(2)
    for number, figure in enumerate([10.0, *[nan] * 9, 20.0, 60.0]):
        ring.record(START + number * 5_000, [figure, float(number)])
    for tier in (MIDDLE, COARSE):
        assert ring.points(tier, 0, START + 55_000)[-1] == pytest.approx(30)
        assert ring.points(tier, 1, START + 55_000)[-1] == pytest.approx(5.5)


def test_a_ring_goes_round() -> None:
    ring = recorded([float(number) for number in range(1_000)])
    assert ring.points(FINE, 0, START + 999 * 5_000) == [float(number) for number in range(820, 1_000)]


def test_records_that_are_near_leave_no_gap_and_others_do() -> None:
    ring = recorded([1, 2], step_ms=20_000)
    assert ring.points(FINE, 0, START + 20_000)[-5:] == [1, 2, 2, 2, 2]
    ring.record(START + 20_000 + GAP_MS_MAX + 5_000, [3])
    points = ring.points(FINE, 0, START + 20_000 + GAP_MS_MAX + 5_000)
    assert points[-2:] == [None, 3]
    assert points.count(None) == 180 - 5 - 1


def test_a_clock_that_goes_back_takes_what_is_behind_the_new_instant_and_nothing_else() -> None:
    """Twenty minutes of figures, and a clock that is set back by ten."""
    ring = recorded([float(number) for number in range(240)])
    ring.record(START + 600_000, [9])
    before = [float(number) for number in range(60, 120)]
    assert ring.points(FINE, 0, START + 600_000) == [*[None] * 119, *before, 9]
    assert ring.points(MIDDLE, 0, START + 600_000)[-11:-1] == pytest.approx([5.5 + 12 * minute for minute in range(10)])
    assert ring.points(COARSE, 0, START + 600_000)[-3:-1] == pytest.approx([29.5, 89.5])
    ring.record(START + 605_000, [10])
    assert ring.points(FINE, 0, START + 1_195_000) == [*before, 9, 10, *[None] * 118]
    assert ring.points(COARSE, 0, START + 1_195_000)[-4:-2] == pytest.approx([29.5, 89.5])


def test_a_clock_that_goes_back_a_little_changes_nothing_and_a_lot_begins_anew() -> None:
    ring = recorded([1, 2, 3])
    ring.record(START, [9])
    assert ring.points(FINE, 0, START + 10_000)[-3:] == [1, 2, 3]
    ring.record(START - 86_400_000, [9])
    assert ring.points(FINE, 0, START - 86_400_000)[-2:] == [None, 9]


def test_what_was_never_measured_is_no_figure() -> None:
    ring = recorded([float("nan"), 5, float("nan")])
    assert ring.points(FINE, 0, START + 10_000)[-3:] == [None, 5, None]
    assert ring.points(MIDDLE, 0, START + 10_000)[-1] == 5


def test_a_ring_of_a_buffer_goes_on() -> None:
    ring = recorded([1, 2, 3])
    again = Ring(1, bytearray(ring.buffer))
    again.record(START + 60_000, [4])
    points = again.points(FINE, 0, START + 60_000)
    assert points[-13:] == [1, 2, 3, *[None] * 9, 4]


@given(st.lists(st.tuples(st.integers(1, 400), st.integers(0, 1_000)), max_size=60))
def test_the_middle_tier_agrees_with_everything_that_was_recorded(steps: list[tuple[int, int]]) -> None:
    """Steps of seconds with a figure each, never further apart than a gap may be."""
    ring, at_ms = Ring(2), START
    by_minute: dict[int, list[int]] = {}
    for seconds, figure in steps:
        at_ms += 1_000 * min(seconds, 60)
        ring.record(at_ms, [figure, -figure])
        by_minute.setdefault(at_ms // 60_000, []).append(figure)
    points = ring.points(MIDDLE, 0, at_ms)
    for minute, figures in by_minute.items():
        point = points[minute - at_ms // 60_000 - 1]
        assert point == pytest.approx(sum(figures) / len(figures), rel=1e-4, abs=1e-3)
    if steps:
        assert ring.points(MIDDLE, 1, at_ms)[-1] == -points[-1]  # type: ignore[operator]
    assert len(points) == TIERS[MIDDLE].points
