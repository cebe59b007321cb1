"""The latest picture with an earlier one. The clock and the pauses are the test's own."""

from collections import Counter
from collections.abc import Generator, Iterator

import anyio.lowlevel
import pytest

from vibemq.model.effects import QueueDepth, QueueFigures
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.snapshot import EFFORT, SAMPLING_EFFORT, Snapshots
from vibemq.server.monitoring.trail import KEPT_EVERY_S, SAMPLE_S, TOGETHER, UNWATCHED_EFFORT, WINDOW_S, Trail

pytestmark = pytest.mark.anyio


class Watched:
    """A broker with some queues, and the clock."""

    def __init__(self) -> None:
        self.now = 100.0
        self.queues: dict[str, dict[str, int]] = {}
        self.step_s = 0.0
        self.slept: list[float] = []
        self.surveys = 0
        self.refuses_all = False
        self.cursors_made = 0
        self.metrics = Metrics()
        self.trail = Trail(
            Snapshots(self, monotonic=self.clock, work=self.clock, pause=self.pause),
            self.metrics,
            refuses_all=lambda: self.refuses_all,
            now=lambda: int(1000 * (self.now + 1_000)),
            monotonic=self.clock,
            work=self.clock,
            pause=self.pause,
            sleep=self.sleep,
        )

    def clock(self) -> float:
        return self.now

    async def pause(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        await anyio.sleep_forever()

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        return None

    def connections(self) -> dict[str, int]:
        return {}

    def survey(self) -> "Survey":
        self.surveys += 1
        return Survey(self)


class Survey:
    def __init__(self, watched: Watched) -> None:
        self.retired: Counter[str] = Counter()
        self.dead_count = 0
        self.unknown_settles = 0
        self.cursors_made = watched.cursors_made
        self._watched = watched

    def __iter__(self) -> Iterator[QueueFigures | None]:
        nothing = dict.fromkeys(QueueFigures._fields, 0)
        for number, (name, figures) in enumerate(self._watched.queues.items()):
            self._watched.now += self._watched.step_s
            yield QueueFigures(**{**nothing, "queue_id": number, **figures, "name": name, "cursors": []})  # type: ignore[arg-type]


async def test_the_earlier_picture_is_about_as_old_as_the_window() -> None:
    watched = Watched()
    watched.queues["jobs"] = {"published": 10}
    first = await watched.trail.reading()
    assert (first.before, first.rate("published", 0)) == (None, 0.0)
    for second in range(1, 9):
        watched.now += 1.001
        watched.queues["jobs"] = {"published": 10 + 10 * second}
        found = await watched.trail.reading()
        assert found.rate("published", 0) == pytest.approx(10, rel=0.01)
    assert WINDOW_S <= found.seconds < WINDOW_S + 1.1


async def test_everybody_shares_a_picture_for_a_second() -> None:
    watched = Watched()
    found = await watched.trail.reading()
    watched.now += 0.9
    assert await watched.trail.reading() is found
    watched.now += 0.2
    assert await watched.trail.reading() is not found
    assert watched.surveys == 2


async def test_who_makes_one_cursor_after_the_other_has_pictures_for_a_share_of_the_time() -> None:
    watched = Watched()
    watched.queues = {f"q{number}": {} for number in range(100)}
    watched.step_s = 0.0001

    async def sleep(seconds: float) -> None:
        watched.now += seconds

    watched.trail._sleep = sleep
    begun = watched.now
    for made in range(1, 200):
        watched.cursors_made = made
        assert (await watched.trail.reading(made)).now.cursors_made == made
    assert watched.surveys == 199, "each finds its cursor"
    assert watched.now - begun > 199 * EFFORT * 0.01
    assert len(watched.trail._pictures) <= WINDOW_S / KEPT_EVERY_S + 3


async def test_a_queue_is_still_since_nothing_moves_in_it() -> None:
    watched = Watched()
    watched.queues = {"still": {"ready": 3, "delivered": 1}, "busy": {"ready": 3}, "empty": {}}
    for second in range(5):
        watched.queues["busy"] = {"ready": 3, "settled": second}
        found = await watched.trail.reading()
        watched.now += 2
    assert found.still_ms == {0: 8_000, 1: 0}
    watched.queues["still"] = {"ready": 2, "delivered": 2}
    assert (await watched.trail.reading()).still_ms == {0: 0, 1: 2_000}


async def test_a_still_queue_is_found_among_many_that_are_empty() -> None:
    watched = Watched()
    watched.queues = {f"q{number}": {} for number in range(2 * TOGETHER + 2)}
    for number in (0, TOGETHER, 2 * TOGETHER + 1):
        watched.queues[f"q{number}"] = {"ready": 1}
    await watched.trail.reading()
    watched.now += 2
    assert (await watched.trail.reading()).still_ms == {0: 2_000, TOGETHER: 2_000, 2 * TOGETHER + 1: 2_000}


async def test_what_is_found_out_counts_for_how_often_a_picture_is_taken() -> None:
    watched = Watched()
    first = await watched.trail.reading()
    first.spent_s += 0.05
    watched.now += 0.05 * SAMPLING_EFFORT - 0.1
    assert await watched.trail.reading() is first
    watched.now += 0.2
    assert await watched.trail.reading() is not first


async def test_rows_by_name_follow_the_queues() -> None:
    watched = Watched()
    watched.queues = {"b": {}, "a": {}}
    assert list((await watched.trail.reading()).by_name) == [1, 0]
    watched.queues = {"b": {}, "a": {}, "c": {}}
    watched.now += 2
    assert list((await watched.trail.reading()).by_name) == [1, 0, 2]


@pytest.mark.parametrize(("step_s", "cost_s"), [(0.0, 0.0), (0.0001, 0.1)])
async def test_the_sampler_takes_less_than_its_share(step_s: float, cost_s: float) -> None:
    watched = Watched()
    watched.step_s = step_s
    watched.queues = {f"q{number}": {} for number in range(1_000)}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.trail.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert watched.slept == pytest.approx([max(SAMPLE_S, UNWATCHED_EFFORT * cost_s)], rel=0.01)


async def test_a_picture_that_fails_does_not_end_the_sampler(caplog: pytest.LogCaptureFixture) -> None:
    watched = Watched()
    watched.queues = {"jobs": {"unknown": 1}}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watched.trail.run)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert watched.slept == [SAMPLE_S]
    assert "could not be sampled" in caplog.text


@pytest.mark.anyio
async def test_refusals_for_want_of_room_are_the_brokers_until_no_picture_has_them() -> None:
    watched = Watched()

    async def looked() -> bool:
        watched.now += WINDOW_S
        return (await watched.trail.reading()).refused_all

    assert not await looked()
    watched.refuses_all = True
    assert await looked()
    watched.refuses_all = False
    assert await looked()
    assert not await looked()
    watched.metrics.storage_full = 1
    assert await looked()
    assert await looked()
    assert not await looked()
