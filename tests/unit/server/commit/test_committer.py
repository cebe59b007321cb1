"""Who is told when. The loop is real, the disk is scripted; nothing here waits for a clock."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
import pytest

from tests.unit.server.fakes import FakeEngine, FakeStorage
from tests.waiting import until
from vibemq.errors import StorageFailed, VibeMQError
from vibemq.model.effects import Deliver, Effect, Incomplete, Outcome, Payment, Published, Reply
from vibemq.model.options import Durability
from vibemq.model.records import MessagesAdded, Record, Settled
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow, Rows
from vibemq.server.clock import Clock
from vibemq.server.commit.commit_step import LIGHT_RUNS_MAX
from vibemq.server.commit.committer import LIGHT_MAX, Committer
from vibemq.server.commit.flush_place import SHORT_MIN
from vibemq.server.commit.flushes import WAITING_MAX, WEAK_FLUSH_BYTES
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.commit.teller import SHARE_S
from vibemq.server.monitoring.metrics import Metrics

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


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


class Bench:
    """A committer with everything around it in reach."""

    def __init__(self, storage: FakeStorage, *, weak_flush_ms: int = 60_000) -> None:
        self.storage = storage
        self.engine = FakeEngine()
        self.told: list[Any] = []
        self.failures: list[BaseException] = []
        self.store = Store(storage)
        effect_router = self.effect_router = EffectRouter()
        effect_router.connect(1, self._hear)
        loop_cycle = self.loop_cycle = LoopCycle()
        self.committer = Committer(
            store=self.store,
            engine=self.engine,
            effect_router=effect_router,
            clock=Clock(),
            metrics=Metrics(),
            weak_flush_ms=weak_flush_ms,
            wake=loop_cycle.wake,
            behind=loop_cycle.behind,
            fatal=self.failures.append,
        )
        loop_cycle.before.append(self.committer.run_cycle)

    def _hear(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                refused = isinstance(effect.result, VibeMQError)
                self.told.append(f"refused {effect.token}" if refused else effect.token)
            else:
                self.told.append((type(effect).__name__, len(self.storage.appends)))

    def submit(self, token: str, durability: Durability, *, count: int = 1, ticket: int = 0) -> None:
        self.engine.waiting[ticket] = [Reply(1, token, None)]
        self.committer.submit(
            Outcome(records=[added(count)], gated=self.engine.waiting[ticket], durability=durability, ticket=ticket)
        )

    def submit_confirmed_at_once(self, token: str, durability: Durability, *, count: int = 1, ticket: int = 0) -> None:
        """A publish whose confirm waits for no flush."""
        replies: list[Effect] = [Reply(1, token, Published("q", 1, count))]
        outcome = Outcome([added(count)], durability=durability, ticket=ticket)
        if durability is Durability.TRANSIENT:
            outcome.effects = replies
        else:
            outcome.after_append = self.engine.waiting[ticket] = replies
        self.committer.submit(outcome)

    async def settled(self) -> list[Any]:
        with anyio.fail_after(60):
            await self.committer.settled()
        return self.told


def added(count: int = 1) -> Record:
    return MessagesAdded(1, 1, 1000, Rows.of([b"\0\1x\0\0\0\0\0\0"] * count))


@pytest.fixture(params=[False, True], ids=["on-the-loop", "in-a-thread"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    bench = Bench(FakeStorage(blocking_append=request.param))
    yield bench
    bench.storage.gate.set()
    await bench.store.close()


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await anyio.sleep(0)


async def test_nothing_is_told_before_the_append(bench: Bench) -> None:
    bench.submit("weak", Durability.WEAK)
    assert bench.told == []
    assert await bench.settled() == ["weak"]


async def test_an_async_confirm_waits_for_its_append_too(bench: Bench) -> None:
    bench.submit_confirmed_at_once("async", Durability.ASYNC)
    assert bench.told == []
    assert await bench.settled() == ["async"]


async def test_a_full_disk_takes_back_no_confirm_of_an_async_message(bench: Bench) -> None:
    bench.storage.full_above = 5
    bench.submit_confirmed_at_once("async", Durability.ASYNC, count=9, ticket=1)
    assert await bench.settled() == ["refused async"]


async def test_an_answer_that_keeps_nothing_waits_for_what_it_speaks_of(bench: Bench) -> None:
    bench.submit("weak", Durability.WEAK)
    bench.committer.submit(Outcome(after_append=[Reply(1, "known", None)]))
    assert bench.told == []
    assert await bench.settled() == ["weak", "known"]


async def test_a_full_disk_answers_what_speaks_of_refused_facts(bench: Bench) -> None:
    bench.storage.full_above = 5
    bench.submit_confirmed_at_once("async", Durability.ASYNC, count=9, ticket=1)
    bench.committer.submit(Outcome(after_append=[Reply(1, "known", None)]))
    bench.committer.submit(Outcome(gated=[Reply(1, "known too", None)], durability=Durability.STRONG))
    assert await bench.settled() == ["refused async", "refused known", "refused known too"]


async def test_answers_that_stand_wait_for_what_is_owed(bench: Bench) -> None:
    bench.storage.full_above = 5
    bench.submit("first", Durability.STRONG, count=9, ticket=1)
    bench.engine.waiting[1] = []
    bench.engine.paying = [Payment([added()], durability=Durability.STRONG, ticket=2)]
    bench.committer.submit(Outcome(effects=[Reply(1, "behind", None)]))
    bench.storage.gate.clear()
    await until(lambda: bool(bench.storage.appends))
    await turns()
    assert bench.told == []
    bench.storage.gate.set()
    assert await bench.settled() == ["first", "behind"]
    assert bench.engine.committed_tickets == [2]


async def test_answers_that_stand_are_refused_when_what_is_owed_does_not_fit_either(bench: Bench) -> None:
    bench.storage.full_above = 0
    first = Reply(1, "first", None)
    bench.engine.paying = [Payment([added()], durability=Durability.STRONG, ticket=2)]
    bench.engine.waiting[2] = [first]
    bench.committer.submit(Outcome([added()], gated=[first], durability=Durability.STRONG, ticket=1))
    assert await bench.settled() == ["refused first"]
    assert bench.engine.failed_tickets == [(1, "STORAGE_FULL"), (2, "STORAGE_FULL")]
    assert bench.committer.backlog_bytes == 0


async def test_a_transient_confirm_waits_for_nothing(bench: Bench) -> None:
    bench.submit_confirmed_at_once("transient", Durability.TRANSIENT)
    assert bench.told == ["transient"]
    await bench.settled()


async def test_what_was_written_ahead_and_is_no_record_is_let_go(bench: Bench) -> None:
    row = LargeRow(bytes(LARGE_ROW_BYTES + 1))
    row.prepared = object()
    bench.committer.submit(Outcome([MessagesAdded(1, 1, 1_000, row)], durability=Durability.TRANSIENT))
    await bench.committer.settled()
    assert bench.storage.appends
    assert row.prepared is None, "its file stays as long as the message"


async def test_one_turn_is_one_append(bench: Bench) -> None:
    for token in "abc":
        bench.submit(token, Durability.WEAK)
    assert await bench.settled() == ["a", "b", "c"]
    assert [len(batch) for batch in bench.storage.appends] == [3]


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


async def test_the_engine_hears_of_what_is_kept_and_its_answer_goes_the_same_way(bench: Bench) -> None:
    bench.engine.after[7] = Outcome(records=[Settled(1, 0, [(1, 1)])], effects=[Reply(1, "followed", None)])
    bench.submit("published", Durability.STRONG, ticket=7)
    assert await bench.settled() == ["published", "followed"]
    assert bench.engine.committed_tickets == [7]
    assert len(bench.storage.appends) == 2


async def test_outcomes_are_told_for_a_share_of_each_turn_of_the_loop(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes half of it, and so does each part of the one that is told in three."""
    clock, turn, turns_of = [0.0], [0], dict[int, list[int]]()
    parts = iter([Incomplete(), Incomplete(), Outcome()])

    def committed(ticket: int, now: int) -> Outcome:
        clock[0] += SHARE_S * 0.51
        turns_of.setdefault(turn[0], []).append(ticket)
        return next(parts) if ticket == 4 else Outcome()

    def next_turn() -> None:
        turn[0] += 1
        asyncio.get_running_loop().call_soon(next_turn)

    monkeypatch.setattr(bench.committer._teller, "_monotonic", lambda: clock[0])
    monkeypatch.setattr(bench.engine, "committed", committed)
    next_turn()
    for ticket in range(1, 8):
        bench.submit(f"{ticket}", Durability.STRONG, ticket=ticket)
    assert await bench.settled() == [f"{ticket}" for ticket in range(1, 8)]
    assert list(turns_of.values()) == [[1, 2], [3, 4], [4, 4], [5, 6], [7]]


async def test_a_full_disk_refuses_who_does_not_fit_and_what_may_build_on_it(bench: Bench) -> None:
    bench.storage.full_above = 5
    for ticket, (token, count) in enumerate((("small", 1), ("big", 9), ("behind", 2)), start=1):
        bench.submit(token, Durability.STRONG, count=count, ticket=ticket)
    assert await bench.settled() == ["small", "refused big", "refused behind"]
    assert bench.engine.failed_tickets == [(2, "STORAGE_FULL"), (3, "STORAGE_FULL")]
    assert bench.engine.committed_tickets == [1]
    assert bench.committer.backlog_bytes == 0
    bench.submit("next", Durability.STRONG, ticket=4)
    assert (await bench.settled())[-1] == "next", "the broker works on"


async def test_what_the_engine_has_promised_is_appended_next_and_its_hand_outs_and_reads_wait_for_it(
    bench: Bench,
) -> None:
    """A full disk refuses a strong message, and with it a transient one behind it, which was confirmed."""
    bench.storage.full_above = 5
    promised = MessagesAdded(2, 1, 1000, Rows.of([b"\0\1x\0\0\0\0\0\0"] * 2))
    bench.engine.after[2] = Outcome([promised], ticket=3)
    shown: list[Record] = []
    bench.committer.taps.add(2, shown.append)
    bench.submit("strong", Durability.STRONG, count=9, ticket=1)
    bench.effect_router.connect(2, bench._hear)
    confirm, deliver = Reply(2, "transient", Published("t", 1, 2)), Deliver(2, 1, "t", 2, 0, [(1, 2)])
    bench.committer.submit(Outcome([promised], [confirm], ticket=2))
    bench.committer.submit(Outcome(effects=[deliver]))
    assert bench.told == ["transient"]

    def read() -> int:
        return len(bench.storage.appends)

    appends_before_the_read: list[int] = []

    async def look() -> None:
        appends_before_the_read.append(await bench.store.read_rows(lambda *_: read(), 2, [(1, 2)]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await turns()
        told = await bench.settled()
    assert told == ["transient", "refused strong", ("Deliver", 1)]
    assert bench.storage.appends == [[promised]]
    assert appends_before_the_read == [1]
    assert bench.engine.committed_tickets == [3]
    assert shown.count(promised) == 1
    assert bench.committer.backlog_bytes == 0


async def test_after_a_failed_append_nobody_hears_anything(bench: Bench) -> None:
    bench.storage.broken = True
    bench.submit("lost", Durability.WEAK)
    assert await bench.settled() == []
    assert [type(error) for error in bench.failures] == [StorageFailed]
    bench.submit("later", Durability.TRANSIENT)
    await turns()
    assert bench.told == []


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


async def test_an_append_that_was_under_way_at_a_failure_tells_nobody() -> None:
    class SlowAppends(FakeStorage):
        began, go = threading.Event(), threading.Event()

        def append(self, records: Sequence[Record]) -> int:
            self.began.set()
            assert self.go.wait(60)
            return super().append(records)

    storage = SlowAppends(blocking_append=True)
    bench = Bench(storage)
    bench.submit_confirmed_at_once("async", Durability.ASYNC)
    bench.committer.submit(Outcome(effects=[Deliver(1, 1, "q", 1, 0, [(1, 1)])]))
    await until(storage.began.is_set)
    bench.committer.fail(StorageFailed("a flush failed meanwhile"))
    storage.go.set()
    await until(lambda: len(storage.appends) == 1)
    await turns()
    assert bench.told == []
    assert [str(error) for error in bench.failures] == ["a flush failed meanwhile"]
    await bench.store.close()


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


async def test_a_hand_out_is_not_told_before_its_rows_can_be_read(bench: Bench) -> None:
    """Transient and async messages are handed out in the outcome that adds them; their rows exist once appended."""
    outcome = Outcome(records=[added()], effects=[Deliver(1, 1, "q", 1, 0, [(1, 1)])], durability=Durability.ASYNC)
    bench.committer.submit(outcome)
    assert bench.told == []
    assert await bench.settled() == [("Deliver", 1)]


async def test_a_hand_out_that_keeps_nothing_waits_for_the_rows_of_an_outcome_before_it(bench: Bench) -> None:
    """A hand-out that is its own settlement has no records, and names rows that may still be on their way."""
    bench.committer.submit(Outcome(records=[added()], durability=Durability.ASYNC))
    bench.committer.submit(Outcome(effects=[Deliver(1, 1, "q", 1, 0, [(1, 1)], settled=True)]))
    bench.committer.run_cycle()
    bench.committer.submit(Outcome(effects=[Deliver(1, 1, "q", 1, 0, [(1, 1)], settled=True)]))
    assert bench.told == ([] if bench.store.blocking else [("Deliver", 1)] * 2), "an append aside is under way"
    assert await bench.settled() == [("Deliver", 1)] * 2


async def test_a_hand_out_of_rows_that_are_written_waits_for_no_append(bench: Bench) -> None:
    bench.committer.submit(Outcome(records=[MessagesAdded(1, 7, 1000, Rows.of([b"x"]))], durability=Durability.ASYNC))
    bench.committer.submit(Outcome(effects=[Deliver(1, 1, "q", 1, 0, [(1, 6)]), Deliver(1, 2, "p", 2, 0, [(9, 9)])]))
    assert bench.told == [("Deliver", 0)] * 2
    await bench.settled()


async def test_a_read_finds_what_was_decided_before_it(bench: Bench) -> None:
    bench.committer.submit(Outcome(records=[added()], durability=Durability.ASYNC))
    with anyio.fail_after(60):
        assert await bench.store.read(lambda: len(bench.storage.appends)) == 1
        bench.committer.submit(Outcome(records=[added()], durability=Durability.ASYNC))
        assert await bench.store.read_rows(lambda queue_id, runs: len(bench.storage.appends), 1, [(1, 1)]) == 2
        assert await bench.store.read(lambda: len(bench.storage.appends)) == 2, "nothing is on its way"


async def test_a_read_does_not_wait_for_what_was_refused(bench: Bench) -> None:
    bench.storage.full_above = 0
    bench.committer.submit(Outcome(records=[added()], durability=Durability.ASYNC, ticket=1))
    with anyio.fail_after(60):
        assert await bench.store.read(lambda: bench.engine.failed_tickets) == [(1, "STORAGE_FULL")]


async def test_a_read_does_not_wait_for_a_store_that_has_failed(bench: Bench) -> None:
    bench.storage.broken = True
    bench.committer.submit(Outcome(records=[added()], durability=Durability.ASYNC))
    with anyio.fail_after(60):
        assert await bench.store.read(lambda: len(bench.storage.appends)) == 0


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


def light() -> Outcome:
    return Outcome([Settled(1, 1, [(1, 1)])], durability=Durability.ASYNC, ticket=9)


async def test_settlements_ride_with_the_next_append(bench: Bench) -> None:
    bench.committer.submit(light())
    await turns()
    assert bench.storage.appends == []
    bench.submit("a", Durability.WEAK)
    assert await bench.settled() == ["a"]
    assert [[type(record).__name__ for record in batch] for batch in bench.storage.appends] == [
        ["Settled", "MessagesAdded"]
    ]


async def test_settlements_are_appended_by_themselves_soon(bench: Bench) -> None:
    bench.committer.submit(light())
    await bench.settled()
    assert len(bench.storage.appends) == 1


async def test_settlements_are_appended_when_somebody_is_to_hear_of_them(bench: Bench) -> None:
    generation = bench.committer.generation
    bench.committer.submit(light())
    await turns()
    assert bench.committer.generation == generation
    bench.committer.append_now()
    assert bench.committer.generation == generation + 1
    await bench.settled()
    assert len(bench.storage.appends) == 1


async def test_many_settlements_or_long_ones_wait_for_nobody(bench: Bench) -> None:
    for _ in range(LIGHT_MAX + 1):
        bench.committer.submit(light())
    await until(lambda: len(bench.storage.appends) == 1)
    assert len(bench.storage.appends[0]) == LIGHT_MAX + 1, "none has waited for the timer"
    runs = [(number, number) for number in range(0, 4 * LIGHT_RUNS_MAX, 2)]
    bench.committer.submit(Outcome([Settled(1, 1, runs)], durability=Durability.ASYNC, ticket=9))
    assert bench.committer._hurries
    await bench.settled()
    assert len(bench.storage.appends) == 2
