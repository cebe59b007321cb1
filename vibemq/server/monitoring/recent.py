"""What was so in the last minutes: how long confirms and flushes took, and where messages have died."""

from collections import Counter, deque
from collections.abc import Iterator, Sequence

from vibemq.server.monitoring.metrics import BUCKETS_S, Histogram
from vibemq.server.monitoring.snapshot import Snapshot

LATENCY_WINDOW_S = 60.0
DEATHS_WINDOW_S = 900.0
MINUTE_S = 60.0
QUEUES_MAX = 1_000
"""Of a minute that are told apart."""


class LatencyWindow:
    """Of what a histogram has counted in the last LATENCY_WINDOW_S."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, list[int]]] = deque()

    def note(self, now_s: float, histogram: Histogram) -> None:
        counts = self._counts
        counts.append((now_s, histogram.counts.copy()))
        while len(counts) > 2 and now_s - counts[1][0] >= LATENCY_WINDOW_S:
            counts.popleft()

    def quantile_ms(self, share: float) -> float | None:
        """None when there was nothing to measure. Inside a bucket it is taken to be even."""
        if not self._counts:
            return None
        first = self._counts[0][1] if len(self._counts) > 1 else [0] * (len(BUCKETS_S) + 1)
        return quantile_ms([late - early for late, early in zip(self._counts[-1][1], first, strict=True)], share)


def quantile_ms(counts: Sequence[int], share: float) -> float | None:
    wanted = share * sum(counts)
    if not wanted:
        return None
    below, lower = 0, 0.0
    for bound, count in zip(BUCKETS_S, counts, strict=False):
        if below + count >= wanted:
            return round(1000 * (lower + (bound - lower) * (wanted - below) / count), 3)
        below, lower = below + count, bound
    # Longer than the last bound: nobody knows how much longer.
    return 1000 * BUCKETS_S[-1]


class RecentDeaths:
    """Messages that became dead letters in the last DEATHS_WINDOW_S, by queue. To the minute."""

    def __init__(self) -> None:
        self._minutes: deque[tuple[float, Counter[str]]] = deque()

    def steps(self, snapshot: Snapshot, last: Snapshot | None) -> Iterator[None]:
        """Note what has died between two pictures, a little with each step."""
        before: dict[int, int] = {}
        if last is not None:
            for row, dead in enumerate(last.columns["dead_lettered"]):
                if dead:
                    before[last.columns["queue_id"][row]] = dead
                yield
        minutes, now_s = self._minutes, snapshot.taken_at
        if not minutes or now_s - minutes[-1][0] >= MINUTE_S:
            minutes.append((now_s, Counter()))
        counted = minutes[-1][1]
        ids = snapshot.columns["queue_id"]
        for row, dead in enumerate(snapshot.columns["dead_lettered"]):
            more = dead - before.get(ids[row], 0)
            name = snapshot.names[row]
            if more > 0 and (name in counted or len(counted) < QUEUES_MAX):
                counted[name] += more
            yield

    def forget(self, now_s: float) -> None:
        while self._minutes and now_s - self._minutes[0][0] >= DEATHS_WINDOW_S:
            self._minutes.popleft()

    def by_queue(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for _, counted in self._minutes:
            total.update(counted)
        return total
