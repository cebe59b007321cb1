"""Who is told when. The loop is real, the disk is scripted; nothing here waits for a clock."""

import asyncio
import threading
from collections.abc import Sequence

import anyio
import pytest

from tests.unit.server.commit.committing import Bench, added, turns
from tests.unit.server.fakes import FakeStorage
from tests.waiting import until
from vibemq.errors import StorageFailed
from vibemq.model.effects import Deliver, Incomplete, Outcome, Payment, Published, Reply
from vibemq.model.options import Durability
from vibemq.model.records import MessagesAdded, Record, Settled
from vibemq.model.rows import LARGE_ROW_BYTES, LargeRow, Rows
from vibemq.server.commit import committer
from vibemq.server.commit.commit_step import LIGHT_RUNS_MAX
from vibemq.server.commit.committer import LIGHT_MAX
from vibemq.server.commit.teller import SHARE_S

pytestmark = pytest.mark.anyio


async def test_nothing_is_told_before_the_append(bench: Bench) -> None:
    bench.submit("weak", Durability.WEAK)
    assert bench.told == []
    assert await bench.settled() == ["weak"]


async def test_an_async_confirm_waits_for_its_append_too(bench: Bench) -> None:
    bench.submit_confirmed_at_once("async", Durability.ASYNC)
    assert bench.told == []
    assert await bench.settled() == ["async"]


async def test_every_outcome_that_a_full_disk_refuses_is_counted(bench: Bench) -> None:
    bench.storage.full_above = 5
    for ticket in (1, 2, 3):
        bench.submit(str(ticket), Durability.STRONG, count=9, ticket=ticket)
    assert await bench.settled() == ["refused 1", "refused 2", "refused 3"]
    assert bench.metrics.storage_full == 3


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
    shown: list[int] = []
    bench.committer.taps.add(1, lambda record: shown.append(record.rows.count))
    for ticket, (token, count) in enumerate((("small", 1), ("big", 9), ("behind", 2)), start=1):
        bench.submit(token, Durability.STRONG, count=count, ticket=ticket)
    assert await bench.settled() == ["small", "refused big", "refused behind"]
    assert bench.engine.failed_tickets == [(2, "STORAGE_FULL"), (3, "STORAGE_FULL")]
    assert bench.engine.committed_tickets == [1]
    assert bench.committer.backlog_bytes == 0
    bench.submit("next", Durability.STRONG, ticket=4)
    assert (await bench.settled())[-1] == "next", "the broker works on"
    assert shown == [1, 1], "who looks at new messages sees none that was refused"


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


def light() -> Outcome:
    return Outcome([Settled(1, 1, [(1, 1)])], durability=Durability.ASYNC, ticket=9)


@pytest.fixture
def light_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is light is never due by itself while the test runs, however busy the machine is."""
    monkeypatch.setattr(committer, "LIGHT_WAIT_S", 3_600.0)


@pytest.mark.usefixtures("light_waits")
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


@pytest.mark.usefixtures("light_waits")
async def test_settlements_are_appended_when_somebody_is_to_hear_of_them(bench: Bench) -> None:
    generation = bench.committer.generation
    bench.committer.submit(light())
    await turns()
    assert bench.committer.generation == generation
    bench.committer.append_now()
    assert bench.committer.generation == generation + 1
    await bench.settled()
    assert len(bench.storage.appends) == 1


@pytest.mark.usefixtures("light_waits")
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
