"""Pictures of made-up queues."""

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vibemq.model.effects import QueueFigures
from vibemq.operations.monitoring.readings import QueuesReading

NAMES = QueueFigures._fields[1:-1]
NOW_MS = 1_000_000


@dataclass
class Cursor:
    queue: str
    group: str
    backlog: int


@dataclass
class Picture:
    names: list[str]
    columns: dict[str, Sequence[int]]
    cursors: list[Cursor] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    connections: dict[str, int] = field(default_factory=lambda: {"native": 2})


def picture(queues: Mapping[str, Mapping[str, int]], *cursors: Cursor) -> Picture:
    """Of queues with these figures, 0 otherwise; `queue_id` is the place in the mapping unless given."""
    columns = {
        name: array(
            "q", [of.get(name, number if name == "queue_id" else 0) for number, of in enumerate(queues.values())]
        )
        for name in NAMES
    }
    totals = Counter({name: sum(column) for name, column in columns.items()})
    return Picture(list(queues), columns, list(cursors), totals)


def reading(
    now: Picture,
    before: Picture | None = None,
    *,
    seconds: float = 10.0,
    still_ms: Mapping[int, int] | None = None,
    refused_all: bool = False,
) -> QueuesReading:
    by_name = sorted(range(len(now.names)), key=now.names.__getitem__)
    return QueuesReading(now, before, seconds, NOW_MS, still_ms or {}, by_name, refused_all)


class Shown:
    """Shows one reading until it is given another."""

    def __init__(self, reading: QueuesReading) -> None:
        self.now = reading

    async def reading(self, cursors_made: int = 0) -> QueuesReading:
        return self.now


class Whole:
    """A broker of which only deaths are told: it has neither alarms nor resources nor jobs."""

    def __init__(self, deaths: Mapping[str, int]) -> None:
        self._deaths = deaths

    def sentences(self) -> list[dict[str, Any]]:
        return []

    def resources(self) -> dict[str, Any]:
        return {}

    def latency(self) -> dict[str, float | None]:
        return {}

    def started_at_ms(self) -> int:
        return 0

    def jobs_running(self) -> int:
        return 0

    def deaths(self) -> Mapping[str, int]:
        return self._deaths
