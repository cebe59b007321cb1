"""What was published, what arrived, and whether that is the same."""

from collections import Counter
from dataclasses import dataclass, field

from tests.spark.torture.driver import SINKS

EXACT = ("once", "files")
GOALS_A_MINUTE = {"driver": 3.0, "executor": 0.8, "worker": 1.5, "source": 0.3, "broker": 1.0}
"""Goals, of kills."""


_OUTPUT = 1 << 48


def place(output: int, sequence: int) -> int:
    """A query that has lost its checkpoint goes on with another output, and may have a message in both."""
    return output * _OUTPUT + sequence


@dataclass
class Account:
    published: dict[str, set[int]] = field(default_factory=lambda: {name: set() for name in SINKS})
    """What the broker has confirmed, by number."""
    arrived: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {name: [] for name in SINKS})
    """(place in its queue, number) of everything in a sink; see `place`."""
    left: dict[str, int] = field(default_factory=dict)
    """Messages that wait in a source queue at the end."""
    kills: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    """On what the kills were."""
    aimed: int = 0
    """Drivers that were killed when the target of the exact sink grew."""
    hits: int = 0
    """Those of them whose batch Spark had not noted yet: the broker had committed it."""
    hands: Counter[str] = field(default_factory=Counter)
    """What was done to checkpoints."""
    refused: Counter[str] = field(default_factory=Counter)
    """After which of it a query was refused."""
    drivers: int = 0
    failed_tasks: int = 0
    gone: int = 0
    """Queries that ended because they asked for what had been acknowledged (OFFSET_GONE)."""
    gaps: int = 0
    """Queries that ended because something was missing."""
    other: list[str] = field(default_factory=list)
    """Why else drivers ended by themselves."""
    too_slow: int = 0
    """Drivers that ended because a Python process of Spark's had not started within its ten seconds."""
    planners: int = 0
    """Drivers that ended because the Python process that was killed was one that plans or commits: Spark runs it once,
    and its error ends the query."""
    stalls: int = 0

    def ended(self, why: str) -> None:
        """A driver has ended by itself."""
        if "OFFSET_GONE" in why:
            self.gone += 1
        elif "are gone" in why:
            self.gaps += 1
        elif "failed to connect back" in why:
            self.too_slow += 1
        elif "Python worker exited unexpectedly" in why:
            self.planners += 1
        else:
            self.other.append(why)

    def lost(self, name: str) -> int:
        return len(self.published[name] - {number for _, number in self.arrived[name]})

    def duplicates(self, name: str) -> int:
        """Told by the place in the queue: what its publisher has sent twice counts for two."""
        return len(self.arrived[name]) - len({place for place, _ in self.arrived[name]})

    def copies(self, name: str) -> int:
        return max(Counter(place for place, _ in self.arrived[name]).values(), default=0)

    def stored_twice(self, name: str) -> int:
        places = {at % _OUTPUT: number for at, number in self.arrived[name]}
        return len(places) - len(set(places.values()))

    def problems(self) -> list[str]:
        found = []
        for name in SINKS:
            if lost := self.lost(name):
                found.append(f"sink {name}: {lost:,} messages lost")
            if name in EXACT and (twice := self.duplicates(name)):
                found.append(f"sink {name}: {twice:,} duplicates")
            if self.left.get(name):
                found.append(f"queue work.{name} keeps {self.left[name]:,} messages that were acknowledged")
            if not self.published[name]:
                found.append(f"nothing was published for sink {name}")
        if self.gone:
            found.append(f"Spark asked for what was acknowledged, {self.gone} times")
        if self.gaps:
            found.append(f"messages were missing for {self.gaps} queries")
        if self.stalls:
            found.append(f"{self.stalls} drivers made no progress")
        return found + [f"a driver ended by itself: {why}" for why in self.other]

    def table(self) -> str:
        head = f"{'sink':<6} {'published':>10} {'arrived':>9} {'lost':>5} {'duplicates':>11} {'most copies':>12}"
        rows = [
            f"{name:<6} {len(self.published[name]):>10,} {len(self.arrived[name]):>9,} {self.lost(name):>5,}"
            f" {self.duplicates(name):>11,} {self.copies(name):>12,}"
            for name in SINKS
        ]
        return "\n".join([head, *rows])

    def summary(self, minutes: float) -> str:
        kills = ", ".join(
            f"{self.kills[what]} {what}s (goal {rate * minutes:.0f})" for what, rate in GOALS_A_MINUTE.items()
        )
        seen = ", ".join(f"{what} {count}" for what, count in sorted(self.seen.items()))
        return (
            f"kill -9: {kills}; each on {seen}\n"
            f"drivers killed as the exact target grew: {self.aimed},"
            f" between the broker's commit and Spark's: {self.hits}\n"
            f"by hand: {_listed(self.hands)}; refused: {_listed(self.refused)}\n"
            f"{self.drivers} drivers started, {self.failed_tasks} tasks failed on purpose\n"
            f"asked for what was acknowledged: {self.gone}; gaps: {self.gaps}; stored twice by publishers:"
            f" {sum(map(self.stored_twice, SINKS))}\n"
            f"drivers that ended by themselves: {len(self.other)}; too slow for Spark: {self.too_slow};"
            f" with the process that plans or commits: {self.planners}; without progress: {self.stalls}"
        )


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{what} {count}" for what, count in sorted(counts.items())) or "nothing"
