"""Records the figures of the broker and of some of its queues, saves them now and then, and answers what was when.

There is room for the rings of so many queues (`history_bytes`). One that has not moved, and that nobody has looked at,
for IDLE_S gives its place to one that moves or that is looked at. So a broker with more busy queues than places keeps
the history of those that had one first, instead of a little of each, and a look at one costs no other its history.

Nobody else writes the rings, and everything here runs on the event loop; the file is written and read in a thread.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from anyio import Lock, to_thread

from vibemq.operations.monitoring.history import BROKER_SERIES, QUEUE_SERIES, RANGES, KeptFigures
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.operations.monitoring.turns import in_slices
from vibemq.server.monitoring.history.history_file import Saved, UnreadableHistory, load, save
from vibemq.server.monitoring.history.rings import TIERS, Ring, ring_bytes

log = logging.getLogger("vibemq.history")

IDLE_S = 900.0
SAVE_S = 300.0
RESTARTS_MAX = 200
OVERHEAD_BYTES = 1_024
"""Of a queue beside its ring."""

WholeFigures = Callable[[QueuesReading], Sequence[float]]
"""Those of BROKER_SERIES."""
IncarnationOf = Callable[[str], str | None]
"""Of a queue by name; None when there is none."""


@dataclass(slots=True)
class _Place:
    name: str
    incarnation: str
    ring: Ring
    used_at: float
    """When it moved or was looked at last."""


class HistoryRecorder:
    """Args:
    path: of the file; None = nothing is saved.
    whole: the figures of the broker as a whole.
    now: of the clock by which the pictures are dated.
    """

    def __init__(
        self,
        path: Path | None,
        bytes_max: int,
        *,
        whole: WholeFigures,
        incarnation_of: IncarnationOf,
        monotonic: Callable[[], float],
        now: Callable[[], int],
    ) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._whole = whole
        self._incarnation_of = incarnation_of
        self._monotonic = monotonic
        self._now = now
        self._broker = Ring(len(BROKER_SERIES))
        one = ring_bytes(len(QUEUE_SERIES)) + OVERHEAD_BYTES
        self.places_max = max(0, bytes_max - ring_bytes(len(BROKER_SERIES))) // one
        self._places: dict[int, _Place] = {}
        """By queue_id."""
        self._restarts = [now()]
        self._loaded = path is None
        """Before that nothing is saved: it would replace the history of the last run."""
        self._saved_at = monotonic()
        self._saving = Lock()
        self.trouble = ""
        """Why the history of the last run could not be read, or this one's cannot be saved."""

    # -- recording ------------------------------------------------------------------------------------------------

    async def take(self, reading: QueuesReading) -> None:
        """Record a picture, and save what there is when it is time to."""
        if not self._loaded:
            await self._load(reading)
        self._broker.record(reading.at_ms, self._whole(reading))
        await in_slices(self._record(reading))
        if self._monotonic() - self._saved_at >= SAVE_S:
            await self.save()

    def _record(self, reading: QueuesReading) -> Iterator[None]:
        now_s = self._monotonic()
        rows: dict[int, int] = {}
        for row, queue_id in enumerate(reading.now.columns["queue_id"]):
            if queue_id in self._places:
                rows[queue_id] = row
            yield
        for queue_id in [queue_id for queue_id in self._places if queue_id not in rows]:
            self._places.pop(queue_id, None)
            yield
        yield from self._give_places(reading, now_s, rows)
        for queue_id, place in list(self._places.items()):
            if queue_id in rows:
                row = rows[queue_id]
                if reading.is_moving(row):
                    place.used_at = now_s
                place.ring.record(reading.at_ms, _figures(reading, row))
            yield

    def _give_places(self, reading: QueuesReading, now_s: float, rows: dict[int, int]) -> Iterator[None]:
        """To queues that move and have none, while there is room. `rows`: those of the queues that have a place."""
        idle = self._idle(now_s)
        ready = reading.now.columns["ready"]
        for row, queue_id in enumerate(reading.now.columns["queue_id"]):
            if len(self._places) >= self.places_max and not idle:
                return
            yield
            if queue_id in self._places or not (ready[row] or reading.is_moving(row)):
                continue
            if len(self._places) >= self.places_max and idle:
                self._places.pop(idle.pop(), None)
            if len(self._places) < self.places_max:
                self._add(reading, row, now_s)
                rows[queue_id] = row

    def _add(self, reading: QueuesReading, row: int, now_s: float) -> None:
        """It may have been deleted since the picture was taken."""
        name = reading.now.names[row]
        incarnation = self._incarnation_of(name)
        if incarnation is not None:
            ring = Ring(len(QUEUE_SERIES))
            self._places[reading.now.columns["queue_id"][row]] = _Place(name, incarnation, ring, now_s)

    # -- looking --------------------------------------------------------------------------------------------------

    async def look(self, reading: QueuesReading, queue: str | None, range_: str) -> KeptFigures:
        """What there is of a queue, or of the broker: one list for each series."""
        number = RANGES.index(range_)
        tier, at_ms = TIERS[number], self._now()
        ring = self._broker if queue is None else self._ring_of(reading, queue)
        names = BROKER_SERIES if queue is None else QUEUE_SERIES
        nothing: list[float | None] = [None] * tier.points
        series = {
            name: nothing if ring is None else ring.points(number, index, at_ms) for index, name in enumerate(names)
        }
        from_at = (at_ms // tier.step_ms - tier.points + 1) * tier.step_ms
        return KeptFigures(tier.step_ms, from_at, series, [at for at in self._restarts if from_at <= at <= at_ms])

    def _ring_of(self, reading: QueuesReading, queue: str) -> Ring | None:
        """None: it has none yet. It has one from now on if a place is free or idle."""
        now_s = self._monotonic()
        for place in self._places.values():
            if place.name == queue and place.incarnation == self._incarnation_of(queue):
                place.used_at = now_s
                return place.ring
        if self._loaded and queue in reading.now.names:
            if len(self._places) >= self.places_max and (idle := self._idle(now_s)):
                del self._places[idle[-1]]
            if len(self._places) < self.places_max:
                self._add(reading, reading.now.names.index(queue), now_s)
        return None

    def _idle(self, now_s: float) -> list[int]:
        """Queues that have to make way for others; the one that was used longest ago is the last."""
        idle = [queue_id for queue_id, place in self._places.items() if now_s - place.used_at >= IDLE_S]
        return sorted(idle, key=lambda queue_id: (self._places[queue_id].used_at, queue_id), reverse=True)

    # -- the file -------------------------------------------------------------------------------------------------

    async def _load(self, reading: QueuesReading) -> None:
        assert self._path is not None
        # Room for names and for a file that was larger before.
        most = 2 * self._bytes_max + (1 << 20)
        work = partial(load, self._path, len(BROKER_SERIES), len(QUEUE_SERIES), bytes_max=most)
        try:
            saved = await to_thread.run_sync(work)
        except UnreadableHistory as error:
            self.trouble = f"{error}; the history began anew"
            log.warning("the history begins anew: %s", error, extra={"event": "history.unreadable"})
            saved = None
        if saved is not None:
            await in_slices(self._adopt(reading, saved))
            self._broker = saved.broker
            self._restarts = [*saved.restarts, *self._restarts][-RESTARTS_MAX:]
        self._loaded = True

    def _adopt(self, reading: QueuesReading, saved: Saved) -> Iterator[None]:
        """A queue that was made anew begins anew."""
        kept = {name: (incarnation, ring) for (name, incarnation), ring in saved.queues.items()}
        for row, name in enumerate(reading.now.names):
            if name in kept and len(self._places) < self.places_max:
                incarnation, ring = kept[name]
                if self._incarnation_of(name) == incarnation:
                    queue_id = reading.now.columns["queue_id"][row]
                    self._places[queue_id] = _Place(name, incarnation, ring, self._monotonic())
            yield

    async def save(self) -> None:
        """Harmless when nothing has been recorded, or what there was is not read yet. Trouble is told, not raised."""
        if self._path is None or not self._loaded:
            return
        async with self._saving:
            self._saved_at = self._monotonic()
            queues = {(place.name, place.incarnation): place.ring for place in self._places.values()}
            saved = Saved(self._broker, queues, list(self._restarts), self._now())
            try:
                await to_thread.run_sync(save, self._path, saved)
            except Exception as error:
                # Also that there is no thread for it: the broker goes on, or ends in order.
                why = getattr(error, "strerror", None) or error
                self.trouble = f"the history cannot be saved in {self._path}: {why}"
                log.warning("%s", self.trouble, extra={"event": "history.unsaved"})
            else:
                if self.trouble.startswith("the history cannot be saved"):
                    self.trouble = ""


def _figures(reading: QueuesReading, row: int) -> tuple[float, ...]:
    """Those of QUEUE_SERIES."""
    columns = reading.now.columns
    return (
        columns["ready"][row],
        columns["in_flight"][row],
        columns["dead"][row],
        reading.rate("published", row),
        reading.rate("delivered", row),
        reading.rate("settled", row),
    )
