"""The crash explorer's own parts: clock and threads, LMDB, models; and that it finds, shrinks and repeats."""

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.proof.sim_explore import Failure, Plan, Run
from tests.proof.sim_files import Machine, seams
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import Book, SimEnv, snapshot_number
from tests.proof.sim_loop import Crew, CrewLock, VirtualLoop
from tests.proof.sim_naive import Broken, Naive
from tests.proof.sim_shrink import fails, shrink
from tests.proof.sim_world import World
from vibemq.engine.step import Asked, Step
from vibemq.errors import StorageDamaged
from vibemq.model.effects import CursorInfo
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import (
    CursorChanged,
    CursorFacts,
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    GroupMoved,
    MessagesAdded,
    QueueCreated,
    Reason,
    Record,
    Settled,
)
from vibemq.storage.kvstore.encoding import encode_batch
from vibemq.storage.lmdb.environment.tables import LmdbKV
from vibemq.storage.lmdb.journal import recovery
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.segment import SUFFIX, SegmentReader, serial_of
from vibemq.testing.memory_kv import MemoryKV
from vibemq.testing.sim_disk import PowerCut, SimDisk
from vibemq.testing.storage_workload import rows

SMALL = Plan(seed=7, lives=2, steps=25, images=3)


@pytest.fixture
def machine() -> Iterator[Machine]:
    machine = Machine()
    with seams(machine):
        yield machine


# -- clock and threads --------------------------------------------------------------------------------------------


def test_callbacks_run_in_the_order_of_their_instants_and_cancelled_ones_do_not() -> None:
    loop, heard = VirtualLoop(), list[str]()
    loop.call_later(2.0, heard.append, "late")
    loop.call_later(1.0, heard.append, "soon")
    loop.call_later(1.5, heard.append, "never").cancel()
    loop.run_until(1.7)
    assert (heard, loop.now) == (["soon"], 1.7)
    assert loop.run_one()
    assert (heard, loop.now) == (["soon", "late"], 2.0)
    assert not loop.run_one()


def test_a_worker_stops_in_the_middle_and_goes_on_when_it_is_told() -> None:
    crew, heard = Crew(), list[str]()

    def work() -> int:
        heard.append("begun")
        crew.park()
        heard.append("done")
        return 5

    worker = crew.start(work)
    assert (heard, worker.ended()) == (["begun"], False)
    worker.resume()
    assert (heard, worker.result, crew.parked) == (["begun", "done"], 5, {})


def test_an_abandoned_worker_never_goes_on_and_a_power_cut_comes_out() -> None:
    crew, heard = Crew(), list[str]()

    def work() -> None:
        crew.park()
        heard.append("went on")

    def cut() -> None:
        raise PowerCut

    crew.start(work)
    crew.abandon()
    assert heard == []
    with pytest.raises(PowerCut):
        crew.start(cut)


def test_who_wants_a_lock_lets_its_holder_finish() -> None:
    crew, heard = Crew(), list[str]()
    lock = CrewLock(crew)

    def hold() -> None:
        with lock:
            crew.park()
            heard.append("holder")

    crew.start(hold)
    with lock:
        heard.append("next")
    assert heard == ["holder", "next"]


# -- LMDB ---------------------------------------------------------------------------------------------------------


def env_on(disk: SimDisk, book: Book) -> SimEnv:
    disk.mkdir("/store")
    return SimEnv(disk, "/store", book, create=True)


def test_a_commit_happens_wholly_or_not_at_all_and_is_durable_when_it_returns() -> None:
    disk, book = SimDisk(), Book()
    env = env_on(disk, book)
    seen: set[int] = set()
    with env.begin(write=True) as transaction:
        transaction.put(b"a", b"1")
    disk.fsync_dir("/")
    disk.fsync_dir("/store")
    first = env.number

    def look(operation: str) -> None:
        for seed in range(20):
            image = disk.crash(random.Random(seed))
            seen.add(snapshot_number(image.content("/store/data.mdb"), ""))

    disk.watch = look
    with env.begin(write=True) as transaction:
        transaction.put(b"a", b"2")
    disk.watch = None
    assert seen == {first, env.number}
    assert snapshot_number(disk.crash(random.Random(0)).content("/store/data.mdb"), "") == env.number
    with env.begin() as transaction:
        assert transaction.get(b"a") == b"2"


def test_an_exception_undoes_a_transaction_and_a_blank_file_is_damage() -> None:
    disk = SimDisk()
    env = env_on(disk, Book())
    with suppress(ZeroDivisionError), env.begin(write=True) as transaction:
        transaction.put(b"a", b"1")
        raise ZeroDivisionError
    with env.begin() as transaction:
        assert transaction.get(b"a") is None
    disk.put("/store/data.mdb", bytes(100))
    with pytest.raises(StorageDamaged):
        _ = env.number


def test_its_transactions_are_the_key_value_store_that_others_are() -> None:
    env, plain, rng = env_on(SimDisk(), Book()), MemoryKV(), random.Random(1)
    with env.begin(write=True) as transaction:
        kv = LmdbKV(transaction, "sim")  # type: ignore[arg-type]
        for _ in range(400):
            key, other = (bytes([rng.randrange(40)]) for _ in range(2))
            match rng.randrange(4):
                case 0 | 1:
                    kv.put(key, other)
                    plain.put(key, other)
                case 2:
                    kv.delete(key)
                    plain.delete(key)
                case 3 if rng.random() < 0.2:
                    kv.delete_range(min(key, other), max(key, other))
                    plain.delete_range(min(key, other), max(key, other))
            assert list(kv.scan(b"", b"\xff")) == list(plain.scan(b"", b"\xff"))
            assert kv.floor(b"\x05", key) == plain.floor(b"\x05", key)
            assert kv.get(other) == plain.get(other)


# -- the naive model ----------------------------------------------------------------------------------------------


def queue_of_three() -> list[Record]:
    queue = QueueCreated(1, "q", QueueOptions(), 1, "i")
    return [queue, GroupCreated(1, 0, "", True, 1), MessagesAdded(1, 1, 1, rows(1, 3))]


def test_every_message_is_in_one_place() -> None:
    naive = Naive()
    letter = DeadFacts(1, 2, Reason.REJECTED, "", 1, 1, 1, 1)
    naive.apply([*queue_of_three(), Settled(1, 0, [(1, 1)]), DeadLettered(1, 0, [letter])])
    naive.check_law()
    group = naive.queues[1].groups[0]
    assert (group.unsettled, group.settled, group.dead) == ({3}, {1}, {2})
    assert naive.alive(1) == {2, 3}
    group.settled.add(3)
    with pytest.raises(Broken):
        naive.check_law()


def test_a_replayed_letter_must_come_with_its_message_and_no_sequence_comes_twice() -> None:
    naive = Naive()
    letter = DeadFacts(1, 2, Reason.REJECTED, "", 1, 1, 1, 1)
    naive.apply([*queue_of_three(), DeadLettered(1, 0, [letter])])
    with pytest.raises(Broken, match="adds 0"):
        naive.copy().apply([DeadRemoved([1], replayed=True)])
    naive.copy().apply([DeadRemoved([1], replayed=True), MessagesAdded(1, 4, 1, rows(4, 1))])
    with pytest.raises(Broken, match="given again"):
        naive.apply([MessagesAdded(1, 3, 1, rows(3, 1))])


# -- the explorer -------------------------------------------------------------------------------------------------


def test_a_sound_broker_keeps_every_promise_and_a_seed_repeats(machine: Machine) -> None:
    first, second = Run(SMALL, machine), Run(SMALL, machine)
    first.go()
    second.go()
    assert first.images == second.images > 100
    assert first.ledger.bodies == second.ledger.bodies
    assert first.ledger.counts.confirmed > 0
    assert first.losing_images > 0


def test_a_run_whose_time_is_up_ends_at_the_next_operation(machine: Machine) -> None:
    run = Run(replace(SMALL, ending="close"), machine, ends_at=0.0)
    run.go()
    assert (run.life, run.ledger.counts.confirmed) == (0, 0)
    assert 0 < run.images <= SMALL.images


def test_a_broker_that_does_not_flush_is_found_and_the_failure_shrinks(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sync(journal: Journal) -> int:
        journal._durable_lsn = journal.last_lsn
        return journal.last_lsn

    monkeypatch.setattr(Journal, "sync", sync)
    failure = fails(SMALL, machine)
    assert failure is not None
    smallest = shrink(failure, machine, seconds=5)
    assert "the power cut lost" in str(smallest)
    again = fails(smallest.plan, machine)
    assert again is not None
    assert str(again) == str(smallest)


def test_a_life_ends_as_it_is_told_to(machine: Machine) -> None:
    killed, cut = (Run(replace(SMALL, ending=ending), machine) for ending in ("kill", "cut"))
    killed.go()
    cut.go()
    assert "ending='kill'" in str(killed.plan)
    assert killed.ledger.bodies != cut.ledger.bodies


ASIDE = Plan(seed=1_000_000, lives=2, steps=25, images=1, aside=True)


def test_a_broker_that_appends_beside_the_loop_answers_behind_its_appends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(ASIDE, machine)
    run.go()
    assert run.ledger.counts.positions
    answer = Step.answer_standing

    def at_once(step: Step, command: Asked, result: object, need: Durability, *, unchanged: bool = False) -> None:
        answer(step, command, result, Durability.TRANSIENT, unchanged=unchanged)

    monkeypatch.setattr(Step, "answer_standing", at_once)
    monkeypatch.setattr(Step, "confirm_after_append", lambda step, told: None)
    failure = fails(ASIDE, machine)
    assert failure is not None
    assert "was answered, and its" in str(failure)


def test_a_failure_that_only_the_log_was_told_of_is_raised_all_the_same(machine: Machine) -> None:
    world = World(SimDisk(), Book(), Ledger(), machine, seed="1", now_s=0.0, sizes=ASIDE.sizes)
    with world.inside():
        world.pass_time(1)
        with suppress(Broken):
            world._fatal(Broken("a promise"))
        with pytest.raises(Broken, match="a promise"):
            world.pass_time(1)


def test_a_kill_undoes_no_position_that_was_confirmed() -> None:
    ledger = Ledger()
    group, facts = GroupCreated(1, 7, "g", True, 1), CursorFacts(1, 5, 0, 0, 0, False, 0, "")
    batches: list[list[Record]] = [
        [QueueCreated(1, "q", QueueOptions(), 1, "a" * 32), group],
        [CursorChanged(1, 7, facts)],
        [GroupMoved(1, 7, 2, 2)],
    ]
    for lsn, batch in enumerate(batches[:2], 1):
        ledger.writing(b"".join(encode_batch(batch)), lsn)
    ledger._heard_position(CursorInfo("g", 1, "a" * 32, committed=5))
    assert ledger.position_lost(2) == ""
    assert "was confirmed at 5, and is at 0" in ledger.position_lost(1)
    ledger.writing(b"".join(encode_batch(batches[2])), 3)
    assert ledger.position_lost(1) == ""


def test_what_is_remembered_of_a_segment_is_what_stands_in_it(machine: Machine) -> None:
    disk = SimDisk()
    journal, _ = Journal.open(disk, "/j", segment_bytes=4096)
    journal.append([b"first"])
    journal.append([b"second"])
    journal.sync()
    [path] = [path for path in disk._entries if path.endswith(SUFFIX)]
    serial = serial_of(path.rpartition("/")[2])
    assert serial is not None
    for content, found in ((disk.content(path), 2), (disk.content(path).replace(b"second", b"s3cond"), 1)):
        for _ in range(2):
            again = SimDisk()
            again.mkdir("/j")
            again.put(path, content)
            file = again.open(path)
            assert len(list(recovery.SegmentReader(again, file, serial).records())) == found
            assert len(list(SegmentReader(again, file, serial).records())) == found


def test_steps_that_are_left_out_are_not_done(machine: Machine) -> None:
    nothing = replace(SMALL, left_out=frozenset((life, step) for life in range(2) for step in range(SMALL.steps)))
    run = Run(nothing, machine)
    run.go()
    assert run.ledger.counts.confirmed == 0
    assert isinstance(Failure(run, "now", Broken("x"), []), Exception)
