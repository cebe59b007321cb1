"""How the time of a run is shared: whoever ends its cases early leaves its time to those behind it."""

import threading
from collections.abc import Iterable

from tests.proof.contract import Method, Size

RESERVED_PART = 0.25
"""Of a run: where the methods that run alone need no more of it to prove anything, they get that before all else."""


class Lane:
    """Methods that run `width` at a time until `deadline`. `take` and `done` may be called from any thread."""

    def __init__(self, sizes: dict[str, Size], width: int, deadline: float) -> None:
        self.width = width
        self._waiting = {name: size.seconds for name, size in sizes.items()}
        self._ends: dict[str, float] = {}
        self._deadline = deadline
        self._lock = threading.Lock()

    @property
    def order(self) -> list[str]:
        """The short ones first: what they leave over is then of use to the long ones."""
        return sorted(self._waiting, key=self._waiting.__getitem__)

    def take(self, name: str, now: float) -> float:
        """The seconds that the method may run from now on: its part of what the running ones do not need."""
        with self._lock:
            left = max(0.0, self._deadline - now)
            taken = sum(max(0.0, end - now) for end in self._ends.values())
            free = max(0.0, self.width * left - taken)
            part = self._waiting[name] / (sum(self._waiting.values()) or 1.0)
            seconds = min(left, free * part)
            del self._waiting[name]
            self._ends[name] = now + seconds
            return seconds

    def done(self, name: str) -> None:
        with self._lock:
            del self._ends[name]


def lanes(methods: Iterable[Method], sizes: dict[str, Size], jobs: int, deadline: float) -> list[Lane]:
    """The lanes of the methods that may run beside others: `jobs` at a time, and one more of those that mostly wait."""
    together = [method for method in methods if not method.alone]
    waiting = [method.name for method in together if method.waits and jobs > 1]
    busy = [method.name for method in together if method.name not in waiting]
    made = [(busy, jobs), (waiting, 1)]
    return [Lane({name: sizes[name] for name in names}, width, deadline) for names, width in made if names]


def alone(methods: Iterable[Method], sizes: dict[str, Size], jobs: int, seconds: float) -> dict[str, float]:
    """What each of those gets that nothing may run beside: all it wants and needs, if the run is long enough for
    everything. Otherwise what it needs, and its part of the rest; in a short run only its part."""
    methods = list(methods)
    least = {method.name: method.least_s for method in methods if method.alone}
    if sum(least.values()) > RESERVED_PART * seconds:
        least = dict.fromkeys(least, 0.0)
    more = {
        method.name: max(sizes[method.name].seconds, method.least_s) - least[method.name]
        for method in methods
        if method.alone
    }
    others = sum(sizes[method.name].seconds for method in methods if not method.alone) / jobs
    scale = min(1.0, (seconds - sum(least.values())) / (sum(more.values()) + others or 1.0))
    return {name: least_s + more[name] * scale for name, least_s in least.items()}
