"""The figures of the last minutes and hours, of the broker and of its queues."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from vibemq.auth.policy import Policy
from vibemq.errors import InvalidOptions, InvalidPayload, NotAuthorized
from vibemq.operations.arguments import Arguments, QueueName, Text
from vibemq.operations.contracts import EngineQuestions
from vibemq.operations.monitoring.readings import QueuesReading, Readings
from vibemq.operations.registry import Caller, Operation

BROKER_SERIES = (
    "ready",
    "in_flight",
    "delayed",
    "dead",
    "consumers",
    "connections",
    "queues",
    "in",
    "out",
    "ack",
    "redelivered",
    "died",
    "confirm_p99_ms",
    "fsync_p99_ms",
    "memory_bytes",
    "disk_free_bytes",
)
QUEUE_SERIES = ("ready", "in_flight", "dead", "in", "out", "ack")
SUPERUSER_SERIES = frozenset(("connections", "confirm_p99_ms", "fsync_p99_ms", "memory_bytes", "disk_free_bytes"))
"""Of the broker: what `broker.overview` tells superusers only."""
RANGES = ("15m", "6h", "48h")
"""Finest first."""
SERIES_MAX = len(BROKER_SERIES)


class HistoryArguments(Arguments):
    queue: QueueName | None = Field(None, description="Of this queue; left out: of the broker as a whole.")
    series: list[Text] | None = Field(
        None,
        max_length=SERIES_MAX,
        description=f"Which figures, of a queue {', '.join(QUEUE_SERIES)}; of the broker also others, of which "
        "those of connections, latencies, memory and disk are for superusers. Left out: all that the user may see.",
    )
    range: Literal["15m", "6h", "48h"] = Field("15m", description="How far back: 15m, 6h or 48h.")


@dataclass(frozen=True, slots=True)
class KeptFigures:
    step_ms: int
    from_at: int
    """When the first step begins."""
    series: dict[str, list[float | None]]
    restarts: list[int]


class HistoryKeeping(Protocol):
    async def look(self, reading: QueuesReading, queue: str | None, range_: str, /) -> KeptFigures: ...


class History:
    def __init__(
        self, keeping: HistoryKeeping | None, readings: Readings, engine: EngineQuestions, policy: Policy
    ) -> None:
        self._policy = policy
        self._keeping = keeping
        self._readings = readings
        self._engine = engine

    async def get(self, caller: Caller, wanted: HistoryArguments) -> dict[str, Any]:
        """Each series has one figure for each step, null where none was recorded.

        Raises:
            QueueNotFound, InvalidPayload
            NotAuthorized: it names a figure that is for superusers.
            InvalidOptions: the broker keeps no history.
        """
        if self._keeping is None:
            raise InvalidOptions("this broker keeps no history; set history_bytes and start it again")
        known = BROKER_SERIES if wanted.queue is None else QUEUE_SERIES
        names = known if wanted.series is None else wanted.series
        unknown = [name for name in names if name not in known]
        if unknown:
            raise InvalidPayload(f"argument series of history.get must name some of {', '.join(known)}")
        if wanted.queue is None and not self._sees_the_broker(caller):
            if wanted.series is not None and (hidden := SUPERUSER_SERIES.intersection(names)):
                raise NotAuthorized(f"the series {', '.join(sorted(hidden))} are for superusers; ask for others")
            names = [name for name in names if name not in SUPERUSER_SERIES]
        if wanted.queue is not None:
            self._engine.readers.queue(wanted.queue)
        kept = await self._keeping.look(await self._readings.reading(), wanted.queue, wanted.range)
        return {
            "step_ms": kept.step_ms,
            "from_at": kept.from_at,
            "series": {name: kept.series[name] for name in names},
            "restarts": kept.restarts,
        }

    def _sees_the_broker(self, caller: Caller) -> bool:
        return caller.principal is not None and self._policy.is_superuser(caller.principal)


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "history.get",
        "Figures of the last 15 minutes, 6 hours or 48 hours, of a queue or of the broker.",
        HistoryArguments,
        History,
        task=History.get,
    ),
]
