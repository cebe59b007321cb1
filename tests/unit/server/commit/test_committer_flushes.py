"""Which flush an outcome waits for, where it runs, and who is told behind it. Nothing here waits for a clock."""

import asyncio
import threading

import anyio
import pytest

from tests.unit.server.commit.committing import Bench, added, turns
from tests.unit.server.fakes import FakeStorage
from tests.waiting import until
from vibemq.errors import StorageFailed
from vibemq.model.effects import Outcome, Reply
from vibemq.model.options import Durability
from vibemq.model.records import MessagesAdded
from vibemq.model.rows import LargeRow
from vibemq.server.commit.flush_place import SHORT_MIN
from vibemq.server.commit.flushes import WAITING_MAX, WEAK_FLUSH_BYTES
from vibemq.server.commit.storage_threads import Told

pytestmark = pytest.mark.anyio


class SlowFlushes(FakeStorage):
    """Two flushes at a time, each of which ends when it is let go."""

    in_flight_max = 2

    def __init__(self) -> None:
        super().__init__()
        self.began: list[int] = []
        self.go = [threading.Event() for _ in range(4)]

    def sync(self) -> int:
        self.began.append(len(self.appends))
        assert self.go[len(self.began) - 1].wait(30)
        return self.began[-1]


async def test_the_time_of_a_flush_is_that_of_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """However late a busy loop hears of its end."""
    bench = Bench(FakeStorage())

    def flush(told: Told) -> None:
        asyncio.get_running_loop().call_soon(told, None, 0.25)

    monkeypatch.setattr(bench.store, "begin_sync", flush)
    bench.submit("strong", Durability.STRONG)
    assert await bench.settled() == ["strong"]
    assert (bench.metrics.fsync_seconds.count, bench.metrics.fsync_seconds.sum) == (1, 0.25)


async def test_several_flushes_are_under_way_where_the_provider_says_so() -> None:
    """The second ends first: it covers the first one's appends, too, and all is told in order."""
    storage = SlowFlushes()
    bench = Bench(storage)
    for token in ("first", "second", "third"):
        bench.submit(token, Durability.STRONG)
        with anyio.fail_after(60):
            while len(storage.appends) + len(storage.began) < {"first": 2, "second": 4, "third": 5}[token]:
                await anyio.sleep(0)
    assert len(storage.began) == 2
    storage.go[1].set()
    with anyio.fail_after(60):
        while bench.told != ["first", "second"]:
            await anyio.sleep(0)
        while len(storage.began) < 3:
            await anyio.sleep(0)
    storage.go[2].set()
    with anyio.fail_after(60):
        while len(bench.told) < 3:
            await anyio.sleep(0)
    storage.go[0].set()
    assert await bench.settled() == ["first", "second", "third"]
    assert bench.failures == []
    await bench.store.close()


@pytest.mark.parametrize("durability", [Durability.TRANSIENT, Durability.ASYNC, Durability.WEAK])
async def test_only_strong_asks_for_a_flush(bench: Bench, durability: Durability) -> None:
    bench.submit("quick", durability)
    await bench.settled()
    assert bench.storage.syncs == 0
    bench.submit("strong", Durability.STRONG)
    assert await bench.settled() == ["quick", "strong"]
    assert bench.storage.syncs == 1


async def test_strong_waits_for_a_flush_that_began_after_its_append(bench: Bench) -> None:
    bench.storage.gate.clear()
    bench.submit("first", Durability.STRONG)
    while bench.storage.syncs == 0:
        await anyio.sleep(0)
    for token in ("second", "third"):
        bench.submit(token, Durability.STRONG)
        await turns()
    while len(bench.committer._flushes._awaiting) < 2:
        await anyio.sleep(0)
    assert bench.told == []
    bench.storage.gate.set()
    assert await bench.settled() == ["first", "second", "third"]
    assert bench.storage.syncs == 2, "the second and the third came during the first flush and share the next"


async def test_weak_does_not_wait_for_the_flush_of_others(bench: Bench) -> None:
    bench.storage.gate.clear()
    bench.submit("strong", Durability.STRONG)
    while bench.storage.syncs == 0:
        await anyio.sleep(0)
    switched: list[str] = []
    bench.committer._effect_router.connect(2, lambda effects: switched.append("weak"))
    bench.committer.submit(Outcome(records=[added()], gated=[Reply(2, "weak", None)], durability=Durability.WEAK))
    with anyio.fail_after(60):
        while not switched:
            await anyio.sleep(0)
    assert bench.told == []
    bench.storage.gate.set()
    await bench.settled()


async def test_weak_data_is_flushed_by_its_timer_and_async_data_is_not() -> None:
    bench = Bench(FakeStorage(), weak_flush_ms=1)
    bench.submit("async", Durability.ASYNC)
    await bench.settled()
    assert bench.committer._flushes._weak_timer is None
    assert bench.storage.syncs == 0
    bench.submit("weak", Durability.WEAK)
    await until(lambda: bench.storage.syncs)
    await bench.settled()
    assert bench.committer._flushes._weak_timer is None, "the timer rests while nothing is unsynced"
    await bench.store.sync()
    assert bench.storage.syncs == 2, "nobody else has asked for one"
    await bench.store.close()


ROW_BYTES = added().rows.size  # type: ignore[union-attr]
MUCH = WEAK_FLUSH_BYTES // ROW_BYTES + 1


@pytest.mark.parametrize(("durability", "flushes"), [(Durability.WEAK, 1), (Durability.ASYNC, 0)])
async def test_much_weak_data_is_flushed_before_its_timer(durability: Durability, flushes: int) -> None:
    bench = Bench(FakeStorage())
    for token, count in (("much", MUCH // 2 - 1), ("more", MUCH // 2 - 1)):
        bench.submit(token, durability, count=count)
        await bench.settled()
        await turns()
        assert bench.storage.syncs == 0
    bench.submit("one more", durability, count=3)
    await until(lambda: bench.storage.syncs == flushes)
    bench.submit("and one", durability)
    await bench.settled()
    assert bench.told == ["much", "more", "one more", "and one"]
    assert bench.storage.syncs == flushes
    await bench.store.close()


async def test_a_large_row_is_much_weak_data_too() -> None:
    bench = Bench(FakeStorage())
    row = LargeRow(bytes(WEAK_FLUSH_BYTES))
    bench.committer.submit(Outcome([MessagesAdded(1, 1, 1000, row)], durability=Durability.WEAK))
    await until(lambda: bench.storage.syncs == 1)
    await bench.store.close()


async def test_a_strong_message_waits_for_one_flush_of_weak_data_and_for_its_own() -> None:
    """However much weak data comes meanwhile: it asks for no flush in between."""
    storage = FakeStorage()
    bench = Bench(storage)
    storage.gate.clear()
    bench.submit("much", Durability.WEAK, count=MUCH)
    await until(lambda: storage.syncs == 1)
    bench.submit("strong", Durability.STRONG)
    for _ in range(3):
        bench.submit("more", Durability.WEAK, count=MUCH)
        await turns()
    assert storage.syncs == 1
    storage.gate.set()
    await until(lambda: "strong" in bench.told)
    assert storage.syncs == 2
    await bench.settled()
    await bench.store.close()
    assert storage.syncs == 2, "it has covered all of them"


async def test_after_a_failed_flush_nobody_hears_anything(bench: Bench) -> None:
    bench.storage.gate.clear()
    bench.submit("strong", Durability.STRONG, ticket=1)
    while bench.storage.syncs == 0:
        await anyio.sleep(0)
    bench.storage.broken = True
    bench.storage.gate.set()
    assert await bench.settled() == []
    assert bench.engine.committed_tickets == []
    assert [type(error) for error in bench.failures] == [StorageFailed]
    assert bench.storage.syncs == 1, "a failed flush is never tried again"


async def test_an_answer_about_what_is_on_disk_already_needs_no_flush(bench: Bench) -> None:
    bench.submit("strong", Durability.STRONG)
    await bench.settled()
    bench.committer.submit(Outcome(gated=[Reply(1, "duplicate", None)], durability=Durability.STRONG))
    assert await bench.settled() == ["strong", "duplicate"]
    assert bench.storage.syncs == 1


async def test_the_end_flushes_what_is_left(bench: Bench) -> None:
    bench.submit("weak", Durability.WEAK)
    with anyio.fail_after(60):
        await bench.committer.finish()
    assert bench.storage.syncs == 1
    assert bench.told == ["weak"]


async def test_the_next_flush_begins_behind_what_those_publish_who_have_waited_for_the_last_one() -> None:
    """Else a publisher that waits with what it has would wait for two flushes more."""
    storage = FakeStorage()
    bench = Bench(storage)
    storage.gate.clear()
    bench.submit("first", Durability.STRONG)
    await until(lambda: bool(storage.appends))
    bench.submit("second", Durability.STRONG)
    await turns()
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon(bench.submit, "third", Durability.STRONG)

    assert bench.committer.after_flush(wake)
    assert bench.committer.after_flush(wake), "it waits already"
    storage.gate.set()
    assert await bench.settled() == ["first", "second", "third"]
    assert storage.syncs == 2
    await bench.store.close()


async def test_few_wait_for_a_flush_and_none_where_nothing_is_flushed() -> None:
    storage = FakeStorage()
    bench = Bench(storage)
    assert not bench.committer.after_flush(lambda: None), "nobody would wake it"
    storage.gate.clear()
    bench.submit("first", Durability.STRONG)
    await until(lambda: bool(storage.appends))
    woken: list[int] = []
    waiting = [bench.committer.after_flush(lambda number=number: woken.append(number)) for number in range(10)]
    assert waiting == [True] * WAITING_MAX + [False] * (10 - WAITING_MAX)
    storage.gate.set()
    await bench.settled()
    assert woken == list(range(WAITING_MAX))
    await bench.store.close()


class QuickDisk(FakeStorage):
    """Flushes on the loop, too; notes in which thread each flush ran, and how many answers had been told by then."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed_in: list[str] = []

    def sync(self) -> int:
        self.flushed_in.append("loop" if threading.current_thread() is threading.main_thread() else "thread")
        return super().sync()

    def try_sync(self) -> int | None:
        return self.sync()


class Publisher:
    """Notes what has been told, and what is shown to consumers, when it is flushed."""

    delivers = False

    def __init__(self, bench: Bench, order: list[str]) -> None:
        self._bench = bench
        self._order = order

    def flush(self) -> None:
        self._order.append(f"answered {self._bench.told}, shown {self._bench.engine.committed_tickets}")


async def quick(storage: FakeStorage) -> Bench:
    """A committer that has seen enough short flushes."""
    bench = Bench(storage)
    for _ in range(SHORT_MIN):
        bench.committer._flushes._place.note(0.0, on_loop=False)
    return bench


async def test_a_lone_publish_is_flushed_on_the_loop_where_that_is_quick() -> None:
    storage = QuickDisk()
    bench = await quick(storage)
    bench.submit("a", Durability.STRONG, ticket=1)
    assert bench.told == []
    await asyncio.sleep(0)
    assert (bench.told, storage.flushed_in) == (["a"], ["loop"]), "answered in one turn"
    assert bench.engine.committed_tickets == [1]
    await bench.settled()
    await bench.store.close()


async def test_many_publishers_are_flushed_in_the_thread() -> None:
    storage = QuickDisk()
    bench = await quick(storage)
    for token in "abc":
        bench.submit(token, Durability.STRONG)
    assert await bench.settled() == ["a", "b", "c"]
    assert storage.flushed_in == ["thread"]
    await bench.store.close()


async def test_a_provider_that_flushes_elsewhere_is_asked_for_the_thread() -> None:
    class Busy(QuickDisk):
        def try_sync(self) -> int | None:
            return None

    storage = Busy()
    bench = await quick(storage)
    bench.submit("a", Durability.STRONG)
    assert await bench.settled() == ["a"]
    assert storage.flushed_in == ["thread"]
    await bench.store.close()


async def test_the_answer_is_written_before_consumers_are_given_the_message() -> None:
    storage = QuickDisk()
    bench = await quick(storage)
    order: list[str] = []

    bench.loop_cycle.flush_later(Publisher(bench, order))
    bench.submit("a", Durability.STRONG, ticket=1)
    await asyncio.sleep(0)
    assert order == ["answered ['a'], shown []"]
    assert bench.engine.committed_tickets == [1], "in the same turn"
    await bench.store.close()


async def test_what_is_shown_in_steps_is_answered_behind_the_last_one() -> None:
    storage = QuickDisk()
    bench = await quick(storage)
    bench.engine.shows_in_steps = True
    order: list[str] = []

    bench.loop_cycle.flush_later(Publisher(bench, order))
    bench.submit("a", Durability.STRONG, ticket=1)
    await asyncio.sleep(0)
    assert order == ["answered ['a'], shown [1]"]
    await bench.store.close()


async def test_a_flush_on_the_loop_that_fails_tells_nobody() -> None:
    storage = QuickDisk()
    bench = await quick(storage)
    bench.submit("a", Durability.STRONG)

    def failing() -> int:
        raise StorageFailed("the flush failed")

    storage.sync = failing  # type: ignore[method-assign]
    await turns()
    assert bench.told == []
    assert [str(error) for error in bench.failures] == ["the flush failed"]
