"""The latest pictures of all queues, for rates; and what is found out by comparing each with the one before.

`Trail.reading` gives the latest picture with one that is about WINDOW_S older; everybody who looks shares them. When
nobody looks, `Trail.run` takes one at least every SAMPLE_S, so that there always is an earlier one; with very many
queues less often, so that they cost at most 1/UNWATCHED_EFFORT of the time.
"""

import logging
import time
from array import array
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from math import inf

import anyio
import anyio.lowlevel

from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.turns import sort_steps
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.recent import LatencyWindow, RecentDeaths
from vibemq.server.monitoring.snapshot import AGE_S_MAX, EFFORT, SLICE_S, Snapshot, Snapshots

log = logging.getLogger("vibemq.monitoring")

WINDOW_S = 5.0
SAMPLE_S = 5.0
KEPT_EVERY_S = 0.9
"""Of the pictures of a window, so many apart are kept."""
UNWATCHED_EFFORT = 200
TOGETHER = 256
"""Queues that are looked at together, to see whether something is ready in any of them."""


class Trail:
    def __init__(
        self,
        snapshots: Snapshots,
        metrics: Metrics,
        *,
        refuses_all: Callable[[], bool],
        now: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
        pause: Callable[[], Awaitable[None]] = anyio.lowlevel.checkpoint,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        """
        Args:
            refuses_all: whether the broker is short of memory or disk, and takes no messages.
            now: of the clock that messages are dated by.
            work: seconds that this thread has worked.
            pause: lets everything run that is ready to.
        """
        self._snapshots = snapshots
        self._metrics = metrics
        self._refuses_all = refuses_all
        self._storage_full = 0
        """Outcomes that a full disk had refused at the latest picture."""
        self._refused_at = -inf
        """When the broker was last seen to refuse messages of all queues."""
        self._now = now
        self._monotonic = monotonic
        self._work = work
        self._pause = pause
        self._sleep = sleep
        self._started_at = monotonic()
        self._pictures: deque[Snapshot] = deque()
        self._reading: QueuesReading | None = None
        self._still_since: dict[int, float] = {}
        """queue_id -> since when nothing moves, of queues in which something waits."""
        self._names: list[str] = []
        self._by_name = array("I")
        self._turn = anyio.Lock()
        self.deaths = RecentDeaths()
        self.confirms = LatencyWindow()
        self.flushes = LatencyWindow()

    async def reading(self, cursors_made: int = 0) -> QueuesReading:
        """The latest, at most as old as `Snapshots.sampled` says."""
        while True:
            latest = self._reading
            spent_s = latest.spent_s if latest is not None else 0.0
            if latest is not None and self._pictures[-1].cursors_made < cursors_made:
                await self._rest(latest)
            snapshot = await self._snapshots.sampled(spent_s, cursors_made)
            async with self._turn:
                reading = self._reading
                if reading is None or reading.now is not snapshot:
                    reading = self._reading = await self._compare(snapshot)
                return reading

    async def _rest(self, latest: QueuesReading) -> None:
        """Before a picture that is taken for a new cursor: who makes one after the other has them at most 1/EFFORT of
        the time."""
        picture = self._pictures[-1]
        rest_s = min(AGE_S_MAX, EFFORT * (picture.cost_s + latest.spent_s)) - (self._monotonic() - picture.taken_at)
        if rest_s > 0:
            await self._sleep(rest_s)

    async def run(self, *taken: Callable[[QueuesReading], Awaitable[None]]) -> None:
        """The sampler, until it is cancelled; `taken` are given each picture."""
        while True:
            cost_s = 0.0
            try:
                reading = await self.reading()
                cost_s = self._pictures[-1].cost_s + reading.spent_s
                for take in taken:
                    await take(reading)
            except Exception:
                # The broker goes on without this picture, as it does without an answer to one connection.
                log.exception("the figures of all queues could not be sampled")
            await self._sleep(max(SAMPLE_S, UNWATCHED_EFFORT * cost_s))

    async def _compare(self, snapshot: Snapshot) -> QueuesReading:
        at_ms = self._now() - int(1000 * (self._monotonic() - snapshot.taken_at))
        last = self._pictures[-1] if self._pictures else None
        spent_s = await self._in_slices(self._steps(snapshot, last))
        self.confirms.note(snapshot.taken_at, self._metrics.publish_ack_seconds)
        self.flushes.note(snapshot.taken_at, self._metrics.fsync_seconds)
        pictures = self._pictures
        if len(pictures) > 1 and pictures[-1].taken_at - pictures[-2].taken_at < KEPT_EVERY_S:
            # Those that were taken for new cursors, between others.
            pictures.pop()
        pictures.append(snapshot)
        while len(pictures) > 2 and snapshot.taken_at - pictures[1].taken_at >= WINDOW_S:
            pictures.popleft()
        before = pictures[0] if len(pictures) > 1 else None
        if self._refuses_all() or self._metrics.storage_full != self._storage_full:
            self._storage_full, self._refused_at = self._metrics.storage_full, snapshot.taken_at
        reading = QueuesReading(
            now=snapshot,
            before=before,
            seconds=snapshot.taken_at - (self._started_at if before is None else before.taken_at),
            at_ms=at_ms,
            still_ms={queue_id: int(1000 * (snapshot.taken_at - at)) for queue_id, at in self._still_since.items()},
            by_name=self._by_name,
            refused_all=self._refused_at >= (self._started_at if before is None else before.taken_at),
        )
        reading.spent_s = spent_s + await self._in_slices(reading.prepare())
        return reading

    async def _in_slices(self, steps: Iterator[None]) -> float:
        """The processor time of it, in seconds."""
        monotonic, spent_s = self._monotonic, -self._work()
        slice_ends = monotonic() + SLICE_S
        for _ in steps:
            if monotonic() >= slice_ends:
                spent_s += self._work()
                await self._pause()
                spent_s -= self._work()
                slice_ends = monotonic() + SLICE_S
        return spent_s + self._work()

    def _steps(self, snapshot: Snapshot, last: Snapshot | None) -> Iterator[None]:
        if snapshot.names != self._names:
            ordered = array("I")
            yield from sort_steps(range(len(snapshot.names)), snapshot.names.__getitem__, ordered)
            self._names, self._by_name = snapshot.names, ordered
        yield from self._find_still(snapshot, last)
        if last is None or snapshot.totals["dead_lettered"] != last.totals["dead_lettered"]:
            yield from self.deaths.steps(snapshot, last)
        self.deaths.forget(snapshot.taken_at)

    def _find_still(self, snapshot: Snapshot, last: Snapshot | None) -> Iterator[None]:
        columns = snapshot.columns
        ids, delivered, settled = columns["queue_id"], columns["delivered"], columns["settled"]
        moved: dict[int, int] = {}
        if last is not None:
            before = last.columns
            for row in _waiting(before["ready"]):
                if row is not None:
                    moved[before["queue_id"][row]] = before["delivered"][row] + before["settled"][row]
                yield
        since: dict[int, float] = {}
        for row in _waiting(columns["ready"]):
            if row is not None:
                queue_id = ids[row]
                if moved.get(queue_id) == delivered[row] + settled[row]:
                    since[queue_id] = self._still_since.get(queue_id, snapshot.taken_at)
                else:
                    since[queue_id] = snapshot.taken_at
            yield
        self._still_since = since


def _waiting(ready: Sequence[int]) -> Iterator[int | None]:
    """Rows in which something is ready; now and then None, between which there is little to do."""
    for first in range(0, len(ready), TOGETHER):
        part = ready[first : first + TOGETHER]
        if any(part):
            for row, count in enumerate(part, first):
                if count:
                    yield row
        yield None
