"""What was so in the last minutes."""

from collections import Counter
from collections.abc import Mapping

import pytest

from tests.unit.operations.monitoring.pictures import picture
from vibemq.server.monitoring.metrics import BUCKETS_S, Histogram
from vibemq.server.monitoring.recent import DEATHS_WINDOW_S, LatencyWindow, RecentDeaths, quantile_ms
from vibemq.server.monitoring.snapshot import Snapshot


def test_a_quantile_lies_inside_its_bucket() -> None:
    counts = [0] * (len(BUCKETS_S) + 1)
    assert quantile_ms(counts, 0.5) is None
    counts[1] = 100
    assert quantile_ms(counts, 0.5) == pytest.approx(0.75)
    assert quantile_ms(counts, 1.0) == pytest.approx(1.0)
    counts[-1] = 100
    assert quantile_ms(counts, 0.99) == 10_000


def test_only_the_last_minute_counts() -> None:
    histogram, window = Histogram(), LatencyWindow()
    histogram.observe(0.004)
    window.note(0.0, histogram)
    assert window.quantile_ms(0.5) is not None
    for second in range(10, 71, 10):
        histogram.observe(0.0001)
        window.note(float(second), histogram)
    found = window.quantile_ms(1.0)
    assert found is not None
    assert found <= 0.5
    window.note(200.0, histogram)
    assert window.quantile_ms(0.5) is None


def taken(at_s: float, dead: Mapping[str, int]) -> Snapshot:
    made = picture({name: {"dead_lettered": count} for name, count in dead.items()})
    return Snapshot(names=made.names, columns=made.columns, totals=made.totals, taken_at=at_s)


def test_deaths_are_counted_by_queue_and_forgotten_after_a_while() -> None:
    deaths = RecentDeaths()
    pictures = [taken(0.0, {"a": 1, "b": 0}), taken(5.0, {"a": 3, "b": 0}), taken(600.0, {"a": 3, "b": 2, "c": 1})]
    for last, picture_now in zip([None, *pictures[:-1]], pictures, strict=True):
        list(deaths.steps(picture_now, last))
    assert deaths.by_queue() == Counter(a=3, b=2, c=1)
    deaths.forget(DEATHS_WINDOW_S)
    assert deaths.by_queue() == Counter(b=2, c=1)
    deaths.forget(600.0 + DEATHS_WINDOW_S)
    assert not deaths.by_queue()
