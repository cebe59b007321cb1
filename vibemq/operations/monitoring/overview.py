"""What an operator wants to know first: is all well, what waits longest, what moves, and what it costs.

Superusers are told of the whole broker. Others are told of the queues that they may inspect, and of nothing else: sums,
rates and sentences count these alone, and what concerns the broker as a whole is null.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from vibemq._version import __version__
from vibemq.auth.policy import Policy
from vibemq.operations.arguments import Arguments
from vibemq.operations.monitoring.death_errors import DeathErrors, Died
from vibemq.operations.monitoring.death_tolls import REMEDY, death_sentences
from vibemq.operations.monitoring.readings import CursorView, QueuesReading, Readings
from vibemq.operations.monitoring.states import QueueState, states_of_all
from vibemq.operations.monitoring.turns import Largest, in_slices
from vibemq.operations.monitoring.visible import KEPT_MAX, visible_rows
from vibemq.operations.registry import Caller, Operation

RECENT_MS = 900_000
"""As `WholeBroker.deaths` counts."""
NEARLY_FULL_PERCENT = 90
LISTED_MAX = 10
"""Queues and groups that are named for one reason."""
RATES = {
    "in": "published",
    "out": "delivered",
    "ack": "settled",
    "redelivered": "redelivered",
    "dead": "dead_lettered",
}
TOTALS = {name: name for name in ("ready", "in_flight", "delayed", "dead", "consumers")} | {"bytes": "size"}

_REMEDIES = {
    QueueState.FULL: "add consumers, or raise max_messages or max_bytes",
    QueueState.STUCK: "see whether each group's consumers work, and what they hold: vibemq-admin consumer ls QUEUE",
    QueueState.NO_CONSUMER: "start a consumer; purge only what nobody needs",
}
_TEXTS = {
    QueueState.FULL: "queue {name} is full with {ready}",
    QueueState.STUCK: "queue {name} is stuck with {ready}: {held}",
    QueueState.NO_CONSUMER: "queue {name} has {ready} and no consumer",
}
_STILL_CURSOR = "queue {name} is stuck: its cursor {group} has not moved for a minute and is {behind} behind"
_STILL_CURSOR_REMEDY = "see whether the job that reads with this cursor still runs"


class WholeBroker(Protocol):
    """What monitoring knows of the broker as a whole."""

    def sentences(self) -> list[dict[str, Any]]:
        """Alarms and warnings, each with `level`, `text`, `remedy` and `link`."""

    def resources(self) -> dict[str, Any]: ...

    def latency(self) -> dict[str, float | None]: ...

    def started_at_ms(self) -> int: ...

    def jobs_running(self) -> int: ...

    def deaths(self) -> Mapping[str, int]:
        """In the last 15 minutes, by queue."""


class Overview:
    def __init__(self, readings: Readings, broker: WholeBroker, errors: DeathErrors, policy: Policy) -> None:
        self._errors = errors
        self._readings = readings
        self._broker = broker
        self._policy = policy

    async def show(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        reading = await self._readings.reading()
        rows = await visible_rows(reading, self._policy, caller.principal)
        whole = caller.principal is not None and self._policy.is_superuser(caller.principal)
        found = await self._found(reading, caller, rows, whole=whole)
        sentences = (self._broker.sentences() if whole else []) + found.sentences(reading)
        return {
            "state": _worst(sentences),
            "sentences": sentences,
            "oldest": found.oldest(reading),
            "died_recent": sum(found.died.values()),
            "dead_recent": await self._dead_recent(reading, found.deaths.items()),
            "rates": {
                name: reading.total_rate(counter) if whole else reading.per_second(found.moved[counter])
                for name, counter in RATES.items()
            },
            "totals": {
                "queues": len(rows),
                **{
                    name: reading.now.totals[column] if whole else found.sums[column] for name, column in TOTALS.items()
                },
            },
            "no_consumer": found.no_consumer(reading),
            "latency": self._broker.latency() if whole else None,
            "resources": self._broker.resources() if whole else None,
            "connections": dict(reading.now.connections) if whole else None,
            "cursors_behind": [
                {"queue": cursor.queue, "group": cursor.group, "backlog": cursor.backlog}
                for cursor in found.cursors.items()
            ],
            "jobs_running": self._broker.jobs_running() if whole else None,
            "sampled_at": reading.at_ms,
            "started_at": self._broker.started_at_ms(),
            "version": __version__,
        }

    async def _dead_recent(self, reading: QueuesReading, deaths: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
        died = [Died(name, _queue_id(reading, name), count) for name, count in deaths]
        return (await self._errors.told(died, reading.at_ms - RECENT_MS))[:LISTED_MAX]

    async def _found(self, reading: QueuesReading, caller: Caller, rows: Sequence[int], *, whole: bool) -> "_Found":
        """One walk for all who may see the same."""
        principal = caller.principal
        key = ("overview", whole or (principal, None if principal is None else principal.rules, self._policy.version))
        found: _Found | None = reading.findings.get(key)
        if found is None:
            found = _Found()
            states = await states_of_all(reading)
            spent_s = await in_slices(found.look(reading, rows, states, sums=not whole))
            spent_s += await in_slices(found.look_behind(reading, self._broker.deaths(), None if whole else rows))
            found.death_sentences = _of_deaths(found.died)
            if whole:
                reading.spent_s += spent_s
            if len(reading.findings) < KEPT_MAX:
                reading.findings[key] = found
        return found


class _Found:
    """What one walk over the queues finds."""

    def __init__(self) -> None:
        self.moved = dict.fromkeys(RATES.values(), 0)
        self.sums = dict.fromkeys(TOTALS.values(), 0)
        self._oldest = -1
        self._rows: dict[QueueState, Largest[int]] = {state: Largest(LISTED_MAX) for state in _TEXTS}
        """Those with most messages."""
        self._nearly_full: Largest[int] = Largest(LISTED_MAX)
        """Those that are nearest to their limits, and not there yet."""
        self.cursors: Largest[CursorView] = Largest(LISTED_MAX)
        """Those furthest behind."""
        self.deaths: Largest[tuple[str, int]] = Largest(LISTED_MAX)
        self.died: dict[str, int] = {}
        """By queue."""
        self.death_sentences: list[dict[str, Any]] = []
        self._still: dict[str, CursorView] = {}
        """Of stuck queues that are named: the group that is furthest behind."""

    def look(
        self, reading: QueuesReading, rows: Sequence[int], states: Sequence[QueueState], *, sums: bool
    ) -> Iterator[None]:
        """`sums`: whether those of the picture would count too much."""
        columns = reading.now.columns
        oldest_at, ready, filled = columns["oldest_at"], columns["ready"], columns["filled"]
        for row in rows:
            at = oldest_at[row]
            if at and (self._oldest < 0 or at < oldest_at[self._oldest]):
                self._oldest = row
            if (named := self._rows.get(states[row])) is not None:
                named.add(ready[row], row)
            if filled[row] >= NEARLY_FULL_PERCENT and states[row] is not QueueState.FULL:
                self._nearly_full.add(filled[row], row)
            if sums:
                for column in self.sums:
                    self.sums[column] += columns[column][row]
                for counter in self.moved:
                    self.moved[counter] += reading.moved(counter, row)
            yield

    def look_behind(
        self, reading: QueuesReading, deaths: Mapping[str, int], rows: Sequence[int] | None
    ) -> Iterator[None]:
        """Groups, and queues in which messages have died. `rows`: of these queues; None: of all."""
        seen: set[str] = set()
        for row in rows or ():
            seen.add(reading.now.names[row])
            yield
        stuck = {reading.now.names[row] for row in self._rows[QueueState.STUCK].items()}
        for cursor in reading.now.cursors:
            if cursor.backlog and (rows is None or cursor.queue in seen):
                self.cursors.add(cursor.backlog, cursor)
                if cursor.queue in stuck:
                    known = self._still.get(cursor.queue)
                    self._still[cursor.queue] = cursor if known is None or cursor.backlog > known.backlog else known
            yield
        for name, count in deaths.items():
            if rows is None or name in seen:
                self.died[name] = count
                self.deaths.add(count, (name, count))
            yield

    def oldest(self, reading: QueuesReading) -> dict[str, Any] | None:
        row = self._oldest
        return None if row < 0 else {"queue": reading.now.names[row], "age_ms": reading.oldest_age_ms(row)}

    def no_consumer(self, reading: QueuesReading) -> list[dict[str, Any]]:
        ready = reading.now.columns["ready"]
        rows = self._rows[QueueState.NO_CONSUMER].items()
        return [{"queue": reading.now.names[row], "ready": ready[row]} for row in rows]

    def sentences(self, reading: QueuesReading) -> list[dict[str, Any]]:
        """One for each queue that needs a look, and one for the rest of each kind."""
        ready, told = reading.now.columns["ready"], list(self.death_sentences)
        for state, rows in self._rows.items():
            for row in rows.items():
                name = reading.now.names[row]
                if state is QueueState.STUCK and not reading.now.columns["consumers"][row] and name in self._still:
                    told.append(_of_cursor(self._still[name]))
                    continue
                held = reading.now.columns["in_flight"][row]
                text = _TEXTS[state].format(name=name, ready=counted_messages(ready[row]), held=_held(held))
                told.append(sentence("warning", text, _REMEDIES[state].replace("QUEUE", name), "queue", queue=name))
            told += _of_the_rest(rows, state.value.replace("_", " "), _REMEDIES[state].partition(":")[0])
            if state is QueueState.FULL:
                told += self._of_nearly_full(reading)
        return told

    def _of_nearly_full(self, reading: QueuesReading) -> list[dict[str, Any]]:
        names, filled, remedy = reading.now.names, reading.now.columns["filled"], _REMEDIES[QueueState.FULL]
        told = [
            sentence("warning", f"queue {names[row]} is {filled[row]}% full", remedy, "queue", queue=names[row])
            for row in self._nearly_full.items()
        ]
        return told + _of_the_rest(self._nearly_full, "nearly full", remedy)


def _held(count: int) -> str:
    if count == 0:
        return "no message is taken or settled"
    return f"consumers hold {counted_messages(count)} and {'settle none' if count > 1 else 'do not settle it'}"


def _of_the_rest(rows: Largest[int], word: str, remedy: str) -> list[dict[str, Any]]:
    more = rows.count - LISTED_MAX
    return [sentence("warning", f"{more:,} more queues: {word}", remedy, "queues")] if more > 0 else []


def _queue_id(reading: QueuesReading, name: str) -> int | None:
    """None: there is no such queue any more."""
    names, rows = reading.now.names, reading.by_name
    place = bisect_left(rows, name, key=names.__getitem__)
    if place == len(rows) or names[rows[place]] != name:
        return None
    return reading.now.columns["queue_id"][rows[place]]


def _of_cursor(cursor: CursorView) -> dict[str, Any]:
    """Of a queue without consumers that groups read by ranges."""
    text = _STILL_CURSOR.format(name=cursor.queue, group=cursor.group, behind=counted_messages(cursor.backlog))
    return sentence("warning", text, _STILL_CURSOR_REMEDY, "cursors", queue=cursor.queue)


def _of_deaths(deaths: Mapping[str, int]) -> list[dict[str, Any]]:
    return [
        sentence("alarm" if death.is_alarm else "warning", death.text, REMEDY, "dead-letters", queue=death.queue)
        for death in death_sentences(deaths)
    ]


def counted_messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def sentence(level: str, text: str, remedy: str, page: str, *, queue: str = "") -> dict[str, Any]:
    """`link`: the page of the console that shows more, and the queue that it is about."""
    return {"level": level, "text": text, "remedy": remedy, "link": {"page": page, "queue": queue or None}}


def _worst(sentences: Sequence[Mapping[str, Any]]) -> str:
    levels = {sentence["level"] for sentence in sentences}
    return next((level for level in ("alarm", "warning") if level in levels), "ok")


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "broker.overview",
        "Whether all is well, what waits, moves and dies, and how full memory and disk are; for users who are no "
        "superusers, of the queues that they may inspect.",
        Arguments,
        Overview,
        task=Overview.show,
    ),
]
