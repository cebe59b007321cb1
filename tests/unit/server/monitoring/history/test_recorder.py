"""Who has a place in the history, and what becomes of it over restarts."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest
from anyio import to_thread

from tests.unit.operations.monitoring.pictures import picture
from vibemq.operations.monitoring.history import BROKER_SERIES, QUEUE_SERIES
from vibemq.operations.monitoring.readings import QueuesReading
from vibemq.server.monitoring.history.recorder import IDLE_S, OVERHEAD_BYTES, SAVE_S, HistoryRecorder
from vibemq.server.monitoring.history.rings import ring_bytes

pytestmark = pytest.mark.anyio


ONE = ring_bytes(len(QUEUE_SERIES)) + OVERHEAD_BYTES
STEP_S = 5.0


class World:
    """Queues that move, and the clock."""

    def __init__(self, folder: Path | None = None, *, places: int = 100) -> None:
        self.now_s = 1_000.0
        self.path = None if folder is None else folder / "history"
        self.places = places
        self.incarnations: dict[str, str] = {}
        self._before = picture({})
        self.begin()

    def begin(self) -> None:
        """A broker starts."""
        self.recorder = HistoryRecorder(
            self.path,
            ring_bytes(len(BROKER_SERIES)) + self.places * ONE,
            whole=lambda reading: [float(reading.now.totals["ready"])] * len(BROKER_SERIES),
            incarnation_of=self.incarnations.get,
            monotonic=lambda: self.now_s,
            now=lambda: int(1000 * (self.now_s + 1_700_000_000)),
        )

    async def take(self, queues: Mapping[str, Mapping[str, int]]) -> QueuesReading:
        """A picture of these queues, STEP_S after the last one."""
        self.now_s += STEP_S
        for name in queues:
            self.incarnations.setdefault(name, f"of {name}")
        now = picture(queues)
        at_ms = int(1000 * (self.now_s + 1_700_000_000))
        reading = QueuesReading(now, self._before, STEP_S, at_ms, {}, range(len(queues)))
        self._before = now
        await self.recorder.take(reading)
        self.last = reading
        return reading

    async def points(self, queue: str | None, series: str, range_: str = "15m") -> list[float | None]:
        return (await self.recorder.look(self.last, queue, range_)).series[series]


async def test_figures_and_rates_of_the_broker_and_of_queues_are_recorded() -> None:
    world = World()
    for second in range(4):
        await world.take({"jobs": {"ready": second, "published": 10 * second, "settled": 5 * second}})
    assert (await world.points("jobs", "ready"))[-3:] == [1, 2, 3]
    assert (await world.points("jobs", "in"))[-3:] == [2, 2, 2]
    assert (await world.points("jobs", "ack"))[-1] == 1
    assert (await world.points(None, "ready"))[-3:] == [1, 2, 3]


async def test_queues_that_move_have_places_and_idle_ones_make_way() -> None:
    world = World(places=2)
    await world.take({"a": {"published": 1}, "b": {"published": 1}, "c": {"published": 1}})
    assert world.recorder.places_max == 2
    assert {place.name for place in world.recorder._places.values()} == {"a", "b"}
    world.now_s += IDLE_S
    # The one that moves keeps its place, the other one gives it to the one that moves.
    await world.take({"a": {"published": 1}, "b": {"published": 2}, "c": {"published": 2}})
    assert {place.name for place in world.recorder._places.values()} == {"b", "c"}


async def test_who_is_looked_at_has_a_free_place_from_then_on() -> None:
    world = World(places=2)
    await world.take({"busy": {"published": 1}, "quiet": {}})
    assert set(await world.points("quiet", "ready")) == {None}
    await world.take({"busy": {"published": 2}, "quiet": {}})
    assert (await world.points("quiet", "ready"))[-1] == 0


async def test_a_look_takes_no_place_of_a_queue_that_is_in_use() -> None:
    world = World(places=1)
    await world.take({"busy": {"ready": 7, "published": 1}, "quiet": {}})
    assert set(await world.points("quiet", "ready")) == {None}
    assert (await world.points("busy", "ready"))[-1] == 7
    world.now_s += IDLE_S
    # Now nobody has used it for long enough.
    assert set(await world.points("quiet", "ready")) == {None}
    await world.take({"busy": {"ready": 7, "published": 1}, "quiet": {}})
    assert (await world.points("quiet", "ready"))[-1] == 0


async def test_a_queue_that_is_gone_or_made_anew_begins_anew() -> None:
    world = World()
    await world.take({"jobs": {"queue_id": 1, "ready": 7}})
    await world.take({})
    await world.take({"jobs": {"queue_id": 2, "ready": 1}})
    assert (await world.points("jobs", "ready"))[-3:] == [None, None, 1]


async def test_it_goes_on_after_a_restart_which_is_marked(tmp_path: Path) -> None:
    world = World(tmp_path)
    queues = {"jobs": {"ready": 7}, "anew": {"ready": 8}, "gone": {"ready": 9}}
    await world.take(queues)
    await world.recorder.save()
    began_s = world.now_s
    world.now_s += 60
    world.incarnations["anew"] = "another"
    world.begin()
    restarted_at = int(1000 * (world.now_s + 1_700_000_000))
    del queues["gone"]
    await world.take(queues)
    points = await world.points("jobs", "ready")
    assert [point for point in points if point is not None] == [7, 7]
    assert points[-1] == 7
    assert [point for point in await world.points("anew", "ready") if point is not None] == [8]
    kept = await world.recorder.look(world.last, None, "15m")
    assert kept.restarts[-1] == restarted_at
    assert kept.from_at <= int(1000 * (began_s + 1_700_000_000))


async def test_a_run_under_a_clock_that_was_ahead_is_none_of_the_last_hours(tmp_path: Path) -> None:
    year_s = 365 * 86_400
    world = World(tmp_path)
    world.now_s += year_s
    world.begin()
    await world.take({"jobs": {"ready": 7}})
    await world.recorder.save()
    world.now_s -= year_s
    world.begin()
    await world.take({"jobs": {"ready": 8}})
    kept = await world.recorder.look(world.last, None, "15m")
    assert kept.restarts == [int(1000 * (world.now_s - STEP_S + 1_700_000_000))]
    assert [point for point in await world.points("jobs", "ready") if point is not None] == [8]


async def test_a_stop_while_the_file_is_read_keeps_what_it_holds(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.take({"jobs": {"ready": 7}})
    await world.recorder.save()
    world.begin()
    starting = asyncio.create_task(world.take({"jobs": {"ready": 8}}))
    await asyncio.sleep(0)
    await world.recorder.save()
    await starting
    assert [point for point in await world.points("jobs", "ready") if point is not None] == [7, 8]
    world.begin()
    await world.take({"jobs": {"ready": 9}})
    # The second run has saved nothing, and the third has read what the first one saved.
    assert [point for point in await world.points("jobs", "ready") if point is not None] == [7, 9]


async def test_it_is_saved_now_and_then(tmp_path: Path) -> None:
    world = World(tmp_path)
    await world.take({"jobs": {"ready": 7}})
    assert not list(tmp_path.iterdir())
    world.now_s += SAVE_S
    await world.take({"jobs": {"ready": 7}})
    assert [path.name for path in tmp_path.iterdir()] == ["history"]


async def test_an_unreadable_file_and_a_full_disk_are_told_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "history").write_bytes(b"rubbish")
    world = World(tmp_path)
    await world.take({"jobs": {"ready": 7}})
    assert "began anew" in world.recorder.trouble
    assert (await world.points("jobs", "ready"))[-1] == 7
    (tmp_path / "history").unlink()
    (tmp_path / "history").mkdir()
    await world.recorder.save()
    assert "cannot be saved" in world.recorder.trouble
    (tmp_path / "history").rmdir()
    await world.recorder.save()
    assert world.recorder.trouble == ""


async def test_without_a_thread_the_history_is_not_saved_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that ends saves it before it closes its store."""
    world = World(tmp_path)
    await world.take({"jobs": {"ready": 7}})

    async def no_thread(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(to_thread, "run_sync", no_thread)
        await world.recorder.save()
    assert world.recorder.trouble == f"the history cannot be saved in {tmp_path / 'history'}: can't start new thread"
    await world.recorder.save()
    assert world.recorder.trouble == ""


async def test_ten_thousand_queues_stay_within_the_bytes(tmp_path: Path) -> None:
    world = World(tmp_path, places=50)
    await world.take({f"q{number}": {"published": 1} for number in range(10_000)})
    await world.recorder.save()
    assert len(world.recorder._places) == 50
    assert (tmp_path / "history").stat().st_size <= ring_bytes(len(BROKER_SERIES)) + 50 * ONE
