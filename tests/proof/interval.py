"""Where the median of a measure lies, whatever its distribution: noise makes the interval wide, never a verdict."""

import math
from collections.abc import Sequence
from typing import NamedTuple

CONFIDENCE = 0.999
"""High, because whoever measures until the interval is clear looks at it many times."""


class Interval(NamedTuple):
    low: float
    high: float

    def is_below(self, limit: float) -> bool:
        return self.high < limit

    def is_above(self, limit: float) -> bool:
        return self.low >= limit


def of_median(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Between two of the values, counted from both ends (the sign test); without bounds when they are too few."""
    ordered = sorted(values)
    count = len(ordered)
    doubt = (1 - confidence) / 2
    rank = 0
    below = 0.0
    while True:
        below += math.comb(count, rank) / 2**count
        if below > doubt:
            break
        rank += 1
    return Interval(ordered[rank - 1], ordered[count - rank]) if rank else Interval(-math.inf, math.inf)
