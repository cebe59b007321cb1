"""One snapshot of all queues, shared by scrapes, health, JSON metrics and lists.

Ten thousand queues cannot be looked at in one piece without holding up the event loop, so the picture is taken in
slices of at most SLICE_S, between which the loop serves its sockets. What a reader gets:

one queue     figures of one instant (of a few neighbouring ones when it has many groups)
all queues    figures that are at most as far apart as the picture took, `duration_s`
age           at most AGE_S_MAX, and less where a picture is cheap: a share of 1/EFFORT of the time is spent on them.
              Who looks again and again (`sampled`) shares one that is at most AGE_S_MAX old, or older where that, with
              what is found out from it, took more than 1/SAMPLING_EFFORT of the time
deleted       a queue that is deleted while the picture is taken is left out; sums "since the start" keep its counters
              and never fall
created       a queue that is created meanwhile is in the next picture
"""

import time
from array import array
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

import anyio
import anyio.lowlevel

from vibemq.model.effects import COUNTERS, QueueDepth, QueueFigures

SLICE_S = 0.002
"""How long the loop is held at a time."""
AGE_S_MAX = 1.0
EFFORT = 20
SAMPLING_EFFORT = 100

COLUMNS = QueueFigures._fields[1:-1]
"""Every figure that is a number."""
_ROWS_TOGETHER = 128
_WIDENED_TOGETHER = 20_000
_WIDER = {"B": "H", "H": "I", "I": "q"}
"""Types of an array's figures. Of very many queues most are idle, and most of their figures small."""


class SurveyView(Protocol):
    """`Engine.survey()`: the figures of one queue after the other; None where it may pause within one queue."""

    retired: Counter[str]
    dead_count: int
    unknown_settles: int
    cursors_made: int

    def __iter__(self) -> Iterator[QueueFigures | None]: ...


class Observed(Protocol):
    """What is looked at: a running broker, or nothing before it has been recovered."""

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        """Of one queue, with steps between which it may be paused; None for a missing queue."""

    def survey(self) -> SurveyView: ...

    def connections(self) -> dict[str, int]:
        """Open connections by protocol."""


class EmptySurvey:
    def __init__(self) -> None:
        self.retired: Counter[str] = Counter()
        self.dead_count = 0
        self.unknown_settles = 0
        self.cursors_made = 0

    def __iter__(self) -> Iterator[QueueFigures | None]:
        return iter(())


class NothingYet:
    """A broker that has not been recovered: the probes must answer before that."""

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        return None

    def survey(self) -> SurveyView:
        return EmptySurvey()

    def connections(self) -> dict[str, int]:
        return {}


@dataclass(frozen=True, slots=True)
class CursorRow:
    queue: str
    group: str
    backlog: int
    committed: int
    epoch: int


@dataclass(slots=True)
class Snapshot:
    """Row i of `names` and of every column is one queue. Not changed once it has been taken; any thread may read it.

    Columns are arrays, not objects per queue: they cost a few bytes a figure, one where all are small, and nothing of
    the garbage collector's time.
    """

    names: list[str] = field(default_factory=list)
    columns: dict[str, Sequence[int]] = field(default_factory=dict)
    """By name, see COLUMNS."""
    cursors: list[CursorRow] = field(default_factory=list)
    totals: Counter[str] = field(default_factory=Counter)
    """Sums of all columns; those of COUNTERS, and of dead letters, with the queues that are gone."""
    connections: dict[str, int] = field(default_factory=dict)
    unknown_settles: int = 0
    cursors_made: int = 0
    """Since the start of the broker, until the picture was begun."""
    taken_at: float = 0.0
    """Monotonic seconds."""
    duration_s: float = 0.0
    cost_s: float = 0.0
    """Processor time of the loop for it, all slices together: on a busy machine that is less than it was held."""

    @property
    def queue_count(self) -> int:
        return len(self.names)


def snapshot_steps(observed: Observed, into: Snapshot) -> Iterator[None]:
    """Fill the snapshot, a little with each step; its columns are complete after the last one."""
    into.connections = observed.connections()
    survey = observed.survey()
    into.cursors_made = survey.cursors_made
    yield
    columns = {name: array("B") for name in COLUMNS}
    sums: Counter[str] = Counter()
    flat: list[int] = []
    for figures in survey:
        if figures is not None:
            into.names.append(figures[0])
            flat += figures[1:-1]
            for cursor in figures[-1]:
                into.cursors.append(CursorRow(figures[0], *cursor))
            if len(flat) >= _ROWS_TOGETHER * len(COLUMNS):
                yield from _move(flat, columns, sums)
        yield
    yield from _move(flat, columns, sums)
    into.columns.update(columns)
    sums.update({name: survey.retired[name] for name in COUNTERS})
    sums["dead"] = survey.dead_count
    into.totals = sums
    into.unknown_settles = survey.unknown_settles


def _move(flat: list[int], columns: dict[str, "array[int]"], sums: Counter[str]) -> Iterator[None]:
    """Rows, one behind the other, into the columns."""
    for index, name in enumerate(COLUMNS):
        part = flat[index :: len(COLUMNS)]
        while True:
            try:
                columns[name].fromlist(part)
                break
            except OverflowError:
                columns[name] = yield from _wider(columns[name])
        sums[name] += sum(part)
    flat.clear()
    yield


def _wider(column: "array[int]") -> Generator[None, None, "array[int]"]:
    wide = array(_WIDER[column.typecode])
    for start in range(0, len(column), _WIDENED_TOGETHER):
        wide.extend(iter(column[start : start + _WIDENED_TOGETHER]))
        yield
    return wide


class Snapshots:
    """The latest picture, taken anew when somebody asks and the last one is too old; never by two at once."""

    def __init__(
        self,
        observed: Observed | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
        pause: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
    ) -> None:
        """`work`: seconds that this thread has worked. `pause` lets everything run that is ready to."""
        self._observed = observed or NothingYet()
        self._monotonic = monotonic
        self._work = work
        self._pause = pause
        self._latest: Snapshot | None = None
        self._loop_cycle = anyio.Lock()

    def attach(self, observed: Observed) -> None:
        """Look at this from now on."""
        self._observed, self._latest = observed, None

    async def latest(self) -> Snapshot:
        """A picture that is fresh enough, see the module."""
        return await self._one(lambda picture: min(AGE_S_MAX, EFFORT * picture.duration_s))

    async def sampled(self, spent_s: float = 0.0, cursors_made: int = 0) -> Snapshot:
        """A picture for those who look again and again, see the module.

        Args:
            spent_s: processor time for what was found out from the latest picture.
            cursors_made: a picture that was begun when there were fewer is too old.
        """

        def age_s_max(picture: Snapshot) -> float:
            if picture.cursors_made < cursors_made:
                return -1.0
            return max(AGE_S_MAX, SAMPLING_EFFORT * (picture.cost_s + spent_s))

        return await self._one(age_s_max)

    async def _one(self, age_s_max: Callable[[Snapshot], float]) -> Snapshot:
        while (latest := self._fresh(age_s_max)) is None:
            # Who waits here takes the picture himself when he who was at it has been cancelled.
            async with self._loop_cycle:
                if self._fresh(age_s_max) is None:
                    await self._take()
        return latest

    async def depth(self, name: str) -> QueueDepth | None:
        """The figures of one queue as they are now; None when it is missing. Costs a few µs, and a slice at a time of a
        queue with very many groups."""
        steps = self._observed.depth(name)
        if steps is None:
            return None
        slice_ends = self._monotonic() + SLICE_S
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return cast(QueueDepth, done.value)
            if self._monotonic() >= slice_ends:
                await self._pause()
                slice_ends = self._monotonic() + SLICE_S

    def at_once(self) -> Snapshot:
        """A new one in one piece, for callers that cannot wait: takes about 10 µs for each queue."""
        snapshot, begun = Snapshot(), self._monotonic()
        for _ in snapshot_steps(self._observed, snapshot):
            pass
        snapshot.taken_at = self._monotonic()
        snapshot.duration_s = snapshot.cost_s = snapshot.taken_at - begun
        return snapshot

    def _fresh(self, age_s_max: Callable[[Snapshot], float]) -> Snapshot | None:
        latest = self._latest
        if latest is None or self._monotonic() - latest.taken_at > age_s_max(latest):
            return None
        return latest

    async def _take(self) -> None:
        monotonic, observed = self._monotonic, self._observed
        snapshot, begun = Snapshot(), monotonic()
        snapshot.cost_s = -self._work()
        slice_ends = begun + SLICE_S
        for _ in snapshot_steps(observed, snapshot):
            if monotonic() >= slice_ends:
                snapshot.cost_s += self._work()
                await self._pause()
                snapshot.cost_s -= self._work()
                slice_ends = monotonic() + SLICE_S
        snapshot.taken_at = monotonic()
        snapshot.cost_s += self._work()
        snapshot.duration_s = snapshot.taken_at - begun
        if observed is self._observed:
            self._latest = snapshot
