"""One picture of all queues for everybody, in slices. The clock and the pause are the test's own."""

from collections import Counter
from collections.abc import Generator, Iterator

import anyio
import pytest

from vibemq.model.effects import CursorFigures, QueueDepth, QueueFigures
from vibemq.server.monitoring.snapshot import AGE_S_MAX, COLUMNS, EFFORT, SLICE_S, Snapshot, Snapshots, snapshot_steps

pytestmark = pytest.mark.anyio


def figures(number: int, *, published: int = 3, ready: int = 1) -> QueueFigures:
    cursors = [CursorFigures("readers", 5, 7, 1)] if number == 0 else []
    return QueueFigures(f"q{number}", number, ready, 10, 2, 0, 0, 1, 0, published, 2, 1, 0, 0, 0, 0, 0, 0, 2, cursors)


class Broker:
    """Every queue takes `step_s` to look at."""

    def __init__(self, count: int, step_s: float = 0.0) -> None:
        self.count = count
        self.step_s = step_s
        self.now = 100.0
        self.surveys = 0
        self.cursors_made = 0
        self.held: list[float] = []
        """How long the loop was held before each pause."""
        self._since = self.now
        self.let_in = anyio.Event()
        self.let_in.set()

    def depth(self, name: str) -> Generator[None, None, QueueDepth] | None:
        if name != "q0":
            return None
        self._since = self.now
        return self._depth()

    def _depth(self) -> Generator[None, None, QueueDepth]:
        for _ in range(self.count):
            self.now += self.step_s
            yield
        return QueueDepth(1, 2, 0, 0, 1, 0)

    def survey(self) -> "Survey":
        self.surveys += 1
        self._since = self.now
        return Survey(self)

    def connections(self) -> dict[str, int]:
        return {"native": 2}

    async def pause(self) -> None:
        self.held.append(self.now - self._since)
        await self.let_in.wait()
        self.now += 0.001
        self._since = self.now

    def snapshots(self) -> Snapshots:
        return Snapshots(self, monotonic=lambda: self.now, work=lambda: self.now, pause=self.pause)


class Survey:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.retired = Counter({"published": 100})
        self.dead_count = 13
        self.unknown_settles = 4
        self.cursors_made = broker.cursors_made

    def __iter__(self) -> Iterator[QueueFigures | None]:
        for number in range(self._broker.count):
            self._broker.now += self._broker.step_s
            yield None
            yield figures(number)


async def test_a_picture_has_every_queue_and_the_sums() -> None:
    snapshot = await Broker(3).snapshots().latest()
    assert snapshot.names == ["q0", "q1", "q2"]
    assert list(snapshot.columns["queue_id"]) == [0, 1, 2]
    assert list(snapshot.columns["in_flight"]) == [2, 2, 2]
    assert snapshot.totals["published"] == 109
    assert snapshot.totals["in_flight"] == 6
    assert snapshot.totals["dead"] == 13, "letters of deleted queues are among them"
    assert snapshot.connections == {"native": 2}
    assert snapshot.unknown_settles == 4
    assert [(row.queue, row.group, row.backlog) for row in snapshot.cursors] == [("q0", "readers", 5)]


async def test_no_slice_is_longer_than_it_may_be_by_more_than_one_step() -> None:
    broker = Broker(10_000, step_s=0.0001)
    await broker.snapshots().latest()
    assert len(broker.held) > 400
    assert max(broker.held) <= SLICE_S + 0.0001 + 1e-9


async def test_everybody_who_asks_at_once_shares_one() -> None:
    broker = Broker(1_000, step_s=0.0001)
    snapshots = broker.snapshots()
    found = []

    async def ask() -> None:
        found.append(await snapshots.latest())

    async with anyio.create_task_group() as tasks:
        for _ in range(5):
            tasks.start_soon(ask)
    assert broker.surveys == 1
    assert all(snapshot is found[0] for snapshot in found)


async def test_an_expensive_one_is_kept_for_a_second_and_a_cheap_one_for_less() -> None:
    broker = Broker(10_000, step_s=0.0001)
    snapshots = broker.snapshots()
    first = await snapshots.latest()
    broker.now += AGE_S_MAX
    assert await snapshots.latest() is first
    broker.now += 0.001
    second = await snapshots.latest()
    assert second is not first
    broker.count = 1
    broker.now += AGE_S_MAX + 1
    cheap = await snapshots.latest()
    assert 0 < cheap.duration_s < 0.001
    broker.now += EFFORT * cheap.duration_s + 0.0001
    assert await snapshots.latest() is not cheap


async def test_one_that_was_begun_before_a_cursor_was_made_is_too_old_for_who_has_made_it() -> None:
    broker = Broker(10, step_s=0.0001)
    snapshots = broker.snapshots()
    first = await snapshots.sampled()
    broker.cursors_made = 1
    assert await snapshots.sampled() is first
    second = await snapshots.sampled(cursors_made=1)
    assert (second.cursors_made, broker.surveys) == (1, 2)
    assert await snapshots.sampled(cursors_made=1) is second


async def test_who_gives_up_waiting_leaves_the_picture_to_the_others() -> None:
    broker = Broker(1_000, step_s=0.0001)
    broker.let_in = anyio.Event()
    snapshots = broker.snapshots()
    found = []

    async def ask() -> None:
        found.append(await snapshots.latest())

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as gives_up:
            async with anyio.create_task_group() as impatient:
                impatient.start_soon(snapshots.latest)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(ask)
                await anyio.wait_all_tasks_blocked()
                gives_up.cancel()
        broker.let_in.set()
    assert len(found) == 1
    assert found[0].queue_count == 1_000


async def test_before_the_recovery_there_is_nothing_and_then_everything() -> None:
    snapshots = Snapshots()
    assert (await snapshots.latest()).queue_count == 0
    snapshots.attach(Broker(2))
    assert (await snapshots.latest()).queue_count == 2


def test_in_one_piece_for_those_who_cannot_wait() -> None:
    broker = Broker(2)
    assert broker.snapshots().at_once().totals["published"] == 106


async def test_the_figures_of_one_queue_are_found_in_slices_too() -> None:
    broker = Broker(1_000, step_s=0.0001)
    assert await broker.snapshots().depth("q0") == QueueDepth(1, 2, 0, 0, 1, 0)
    assert len(broker.held) > 40
    assert max(broker.held) <= SLICE_S + 0.0001 + 1e-9
    assert await broker.snapshots().depth("q1") is None


async def test_a_picture_of_idle_queues_is_small_and_one_of_large_figures_exact() -> None:
    """Of a hundred thousand queues several pictures are kept."""
    broker = Broker(1_000)
    idle = await broker.snapshots().latest()
    assert sum(len(bytes(column)) for column in idle.columns.values()) < 1_000 * (len(COLUMNS) + 10)
    sizes = [255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**62]
    found = Snapshot()
    for _ in snapshot_steps(Sized([*[7] * 300, *sizes, 3]), found):
        pass
    assert list(found.columns["size"]) == [*[7] * 300, *sizes, 3]
    assert found.totals["size"] == 2_100 + sum(sizes) + 3
    assert list(found.columns["queue_id"]) == list(range(len(sizes) + 301))


class Sized(Broker):
    """Its queues have these sizes."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(len(sizes))
        self.sizes = sizes

    def survey(self) -> "Survey":
        return SizedSurvey(self)


class SizedSurvey(Survey):
    def __init__(self, broker: Sized) -> None:
        super().__init__(broker)
        self._sizes = broker.sizes

    def __iter__(self) -> Iterator[QueueFigures | None]:
        for number, size in enumerate(self._sizes):
            yield figures(number)._replace(size=size)
