"""Rings of figures in three tiers. Pure: the caller brings the time.

    tier      step    points    shows
    fine      5 s     180       15 min
    middle    1 min   360       6 h
    coarse    5 min   576       48 h

A point of the middle and of the coarse tier is the mean of what was recorded in its step. Where nothing was recorded
there is NaN. Points are float32.

A ring's bytes, in the order of the machine:

    latest    3 x i64    of each tier the number of its latest step, counted from 1970; -1 = none yet
    points    tiers one after the other, in each the points, in each the series: f32
                         the step with number n is point n modulo the tier's points
"""

from array import array
from collections.abc import Sequence
from math import isnan, nan
from typing import NamedTuple


class Tier(NamedTuple):
    step_ms: int
    points: int
    first: int
    """Its first point among those of all tiers."""


TIERS = (Tier(5_000, 180, 0), Tier(60_000, 360, 180), Tier(300_000, 576, 540))
POINTS = sum(tier.points for tier in TIERS)
HEAD_BYTES = 8 * len(TIERS)
GAP_MS_MAX = 120_000
"""Between two records that are this near there is no gap: the later one stands for the time in between."""
BACK_STEPS_MAX = 12
"""Of the finest tier. When a clock goes back by more, what was recorded behind the new instant is forgotten."""


def ring_bytes(series: int) -> int:
    return HEAD_BYTES + 4 * series * POINTS


class Ring:
    """Of some series that are recorded together."""

    __slots__ = ("_counts", "_latest", "_points", "_recorded_at", "buffer", "series")

    def __init__(self, series: int, buffer: bytearray | None = None) -> None:
        """`buffer`: of a ring that was saved, with as many series."""
        self.series = series
        self.buffer = bytearray(ring_bytes(series)) if buffer is None else buffer
        view = memoryview(self.buffer)
        self._latest = view[:HEAD_BYTES].cast("q")
        self._points = view[HEAD_BYTES:].cast("f")
        self._counts = array("I", [1]) * (len(TIERS) * series)
        """Of each tier and series: figures in the latest step. Where none was measured, it is none; what a saved
        ring has there counts as one."""
        self._recorded_at = 0
        if buffer is None:
            self._clear()

    def record(self, at_ms: int, figures: Sequence[float]) -> None:
        """`figures`: one for each series."""
        near = self._recorded_at and at_ms - self._recorded_at <= GAP_MS_MAX
        self._recorded_at = at_ms
        together = array("f", figures)
        if at_ms // TIERS[0].step_ms < self._latest[0] - BACK_STEPS_MAX:
            self._go_back(at_ms)
        for number, tier in enumerate(TIERS):
            step, latest = at_ms // tier.step_ms, self._latest[number]
            if step > latest:
                self._advance(number, tier, latest, step, together if near else None)
                self._put(tier, step, together)
                self._latest[number] = step
                self._begin_counts(number)
            elif step == latest:
                self._mix(number, tier, step, together)

    def points(self, number: int, series: int, at_ms: int) -> list[float | None]:
        """Of a tier, from the oldest point to that of the instant; None where there is none."""
        tier, latest = TIERS[number], self._latest[number]
        last = at_ms // tier.step_ms
        found: list[float | None] = []
        for step in range(last - tier.points + 1, last + 1):
            if not latest - tier.points < step <= latest or step < 0:
                found.append(None)
                continue
            value = self._points[self._place(tier, step) + series]
            found.append(None if isnan(value) else value)
        return found

    def _go_back(self, at_ms: int) -> None:
        nothing = array("f", [nan]) * self.series
        for number, tier in enumerate(TIERS):
            step, latest = at_ms // tier.step_ms, self._latest[number]
            for ahead in range(step + 1, min(latest, step + tier.points) + 1):
                self._put(tier, ahead, nothing)
            self._latest[number] = min(step, latest)
            self._begin_counts(number)

    def _advance(self, number: int, tier: Tier, latest: int, step: int, between: "array[float] | None") -> None:
        """What lies between the latest step and this one."""
        if latest < 0:
            return
        figures = array("f", [nan]) * self.series if between is None else between
        for missing in range(max(latest + 1, step - tier.points + 1), step):
            self._put(tier, missing, figures)

    def _put(self, tier: Tier, step: int, figures: "array[float]") -> None:
        place = self._place(tier, step)
        self._points[place : place + self.series] = memoryview(figures)

    def _begin_counts(self, number: int) -> None:
        first = number * self.series
        self._counts[first : first + self.series] = array("I", [1]) * self.series

    def _mix(self, number: int, tier: Tier, step: int, figures: "array[float]") -> None:
        place, first = self._place(tier, step), number * self.series
        for index, figure in enumerate(figures):
            if isnan(figure):
                continue
            before = self._points[place + index]
            if isnan(before) or not number:
                self._points[place + index] = figure
                continue
            self._counts[first + index] += 1
            self._points[place + index] = before + (figure - before) / self._counts[first + index]

    def _place(self, tier: Tier, step: int) -> int:
        return (tier.first + step % tier.points) * self.series

    def _clear(self) -> None:
        for number in range(len(TIERS)):
            self._latest[number] = -1
        self._points[:] = memoryview(array("f", [nan]) * (self.series * POINTS))
