from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from vibemq.engine.queue.plans import Plans
from vibemq.errors import StorageDamaged
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import JobStarted
from vibemq.model.records import (
    CursorChanged,
    CursorFacts,
    GroupCreated,
    Plan,
    PlanMade,
    QueueCreated,
    Record,
    tag_of,
)
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.audit import audit
from vibemq.storage.kvstore.block_cache import BlockCache
from vibemq.storage.kvstore.blocks import limit, store_blocks
from vibemq.storage.kvstore.encoding import seal
from vibemq.storage.kvstore.integrity import (
    NAMES,
    CountedKV,
    TableSums,
    TalliedKV,
    load_sound_state,
    load_tally,
    write_tally,
)
from vibemq.storage.kvstore.require_alive import all_alive, span
from vibemq.storage.kvstore.salvage import salvage
from vibemq.storage.kvstore.store import load_state, write_dirty, write_state
from vibemq.storage.sqlite.check import repair as repair_sqlite
from vibemq.storage.sqlite.connection import DATABASE, connect, transaction
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.reducer import DeadTable, Dirty, apply
from vibemq.testing.memory_kv import MemoryKV
from vibemq.testing.storage_conformance import added, queue
from vibemq.testing.storage_workload import STRONG


def tallied() -> tuple[MemoryKV, TalliedKV]:
    kv = MemoryKV()
    write_tally(kv, TableSums())
    return kv, TalliedKV(kv)


def recount(kv: MemoryKV) -> list[str]:
    counted = CountedKV(kv)
    for table in NAMES:
        list(counted.scan(table, keys.after(table)))
    return counted.differences(tuple(NAMES))


def small_store() -> tuple[MemoryKV, StoredState]:
    """Two blocks' worth of messages in one queue, written as a checkpoint writes."""
    kv, writer = tallied()
    state, dead, dirty = StoredState(), DeadTable(), Dirty()
    created: list[Record] = [QueueCreated(1, "q1", STRONG, 1, "aa"), GroupCreated(1, 0, "", True, 1)]
    for record in created:
        apply(state, record, dead, dirty)
    for first, size in ((1, 200_000), (2, 200_000), (3, 10)):
        message = added(first, 1, size=size)
        apply(state, message, dead, dirty)
        arrivals = Arrivals()
        arrivals.take(message)
        store_blocks(writer, state, arrivals, dirty.left)
    write_dirty(writer, state, dirty)
    writer.save()
    return kv, state


# -- the tally ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_written_the_tally_is_that_of_what_is_there(seed: int) -> None:
    random = Random(seed)
    kv, writer = tallied()
    for _ in range(200):
        table = random.choice([*NAMES, keys.BLOCK])
        key = table + bytes((random.randrange(6), random.randrange(6)))
        verb = random.randrange(5)
        if verb < 3:
            writer.put(key, seal(key, random.randbytes(random.randrange(9))))
        elif verb == 3:
            writer.delete(key)
        else:
            writer.delete_range(key, keys.after(key[:2]))
        if random.random() < 0.1:
            writer.save()
    writer.save()
    assert recount(kv) == []
    assert bytes(load_tally(kv).pack()) == bytes(TableSums.unpack(load_tally(kv).pack()).pack())


def test_every_table_but_the_blocks_is_counted() -> None:
    tables = {
        value for name, value in vars(keys).items() if name.isupper() and isinstance(value, bytes) and len(value) == 1
    }
    assert tables == {*NAMES, keys.BLOCK}


def test_what_was_undone_does_not_count() -> None:
    kv, writer = tallied()
    key = keys.queue_key(1)
    writer.put(key, seal(key, b"kept"))
    writer.save()
    before = dict(kv.scan(b"", b"\xff"))
    writer.put(key, seal(key, b"undone"))
    kv.fill(before)
    writer.forget()
    writer.save()
    assert recount(kv) == []


def test_without_a_tally_nothing_is_written() -> None:
    writer = TalliedKV(MemoryKV())
    writer.put(keys.queue_key(1), seal(keys.queue_key(1), b""))
    with pytest.raises(StorageDamaged, match="tally"):
        writer.save()


def drop(kv: MemoryKV, key: bytes) -> None:
    kv.delete(key)


def repeat(kv: MemoryKV, key: bytes) -> None:
    kv.put(key + b"\0", kv.get(key) or b"")


def age(kv: MemoryKV, key: bytes) -> None:
    kv.put(key, seal(key, b"an older body"))


@pytest.mark.parametrize("damage", [drop, repeat, age])
@pytest.mark.parametrize("table", sorted({*NAMES} - {keys.DEAD_BY_MESSAGE}))
def test_a_missing_a_doubled_and_an_older_value_are_noticed(
    damage: Callable[[MemoryKV, bytes], None], table: bytes
) -> None:
    kv, writer = tallied()
    key = keys.STATE_META if table == keys.META else table + bytes(12)
    for key_there in (key, table + b"\xff" * 12):
        writer.put(key_there, seal(key_there, b"body"))
    writer.save()
    assert recount(kv) == []
    damage(kv, key)
    (text,) = recount(kv)
    assert NAMES[table] in text


def test_keys_out_of_order_are_refused() -> None:
    class Shuffled(MemoryKV):
        def scan(self, start, stop):  # type: ignore[no-untyped-def]
            yield from reversed(list(super().scan(start, stop)))

    kv = Shuffled()
    for number in (1, 2):
        kv.put(keys.queue_key(number), b"")
    with pytest.raises(StorageDamaged, match="out of its order"):
        list(CountedKV(kv).scan(keys.QUEUE, keys.after(keys.QUEUE)))


def test_a_sound_store_loads_and_passes_the_audit() -> None:
    kv, state = small_store()
    assert load_sound_state(kv) == state
    assert list(audit(kv)) == []


@pytest.mark.parametrize("table", [keys.QUEUE, keys.GROUP, keys.CHUNK, keys.META])
def test_a_state_that_lacks_a_value_is_not_loaded(table: bytes) -> None:
    kv, _ = small_store()
    key = keys.STATE_META if table == keys.META else next(kv.scan(table, keys.after(table)))[0]
    kv.delete(key)
    with pytest.raises(StorageDamaged):
        load_sound_state(kv)
    assert list(audit(kv))


# -- messages that must be there ------------------------------------------------------------------------------------


def test_a_hole_in_what_is_alive_is_never_passed_over() -> None:
    kv, state = small_store()
    wanted = state.queues[1]

    def read(first: int, last: int, max_bytes: int = 1 << 30) -> list[int]:
        parts = all_alive(wanted, BlockCache().parts(kv, 1, first, last, "q1"), first, last, "memory")
        return [
            s
            for part in limit(parts, max_bytes)
            for s in range(part.first_sequence, part.first_sequence + part.rows.count)
        ]

    assert read(1, 99) == [1, 2, 3]
    second = keys.sequence_key(keys.BLOCK_INFO, 1, 2)
    assert kv.get(second) is not None, "it is all one block; the test proves nothing"
    kv.delete(second)
    for first, last in ((1, 3), (2, 2), (2, 99), (1, 99)):
        with pytest.raises(StorageDamaged, match="of queue q1 are missing"):
            read(first, last)
    assert read(1, 1) == [1]
    assert read(1, 99, max_bytes=1) == [1], "what is not read is not asked for"
    wanted.groups[0].head = 4
    assert read(1, 99) == [1, 3], "what nobody waits for may be missing"


def test_missing_messages_in_words() -> None:
    assert span([(1, 1), (3, 9)]) == "1, 3 to 9"
    assert span([(n, n) for n in range(1, 20, 2)]) == "1, 3, 5, 7, 9 and more"


def test_the_audit_says_which_messages_are_missing() -> None:
    kv, _ = small_store()
    kv.delete(keys.sequence_key(keys.BLOCK_INFO, 1, 2))
    problems = list(audit(kv))
    missing = next(problem for problem in problems if problem.first_sequence)
    assert (missing.queue, missing.first_sequence, missing.last_sequence) == ("q1", 2, 2)
    assert missing.repairable


def test_a_queue_without_groups_gets_one_back() -> None:
    """Without it a start would make one that begins behind all messages."""
    kv, _ = small_store()
    kv.delete(keys.group_key(1, 0))
    fresh = TalliedKV(MemoryKV())
    problems = salvage(list(kv.scan(b"", b"\xff")), fresh)
    fresh.save()
    assert load_sound_state(fresh).queues[1].groups[0].head == 1
    assert any("groups are found" in problem.what for problem in problems)
    assert list(audit(fresh)) == []
    assert sum(part.rows.count for part in BlockCache().parts(fresh, 1, 1, 99, "q1")) == 3


def planned_store(last: int) -> MemoryKV:
    """A cursor with plans 1 to `last`."""
    kv, writer = tallied()
    state, dead, dirty = StoredState(), DeadTable(), Dirty()
    facts = CursorFacts(1, 1, 0, 0, 0, False, 1, "", (), (), 1, True)
    made = [PlanMade(1, 1, number, Plan(f"tag {number}", f"end {number}")) for number in range(1, last + 1)]
    records: list[Record] = [QueueCreated(1, "q1", STRONG, 1, "aa"), GroupCreated(1, 0, "", True, 1)]
    for record in [*records, GroupCreated(1, 1, "etl", True, 1), CursorChanged(1, 1, facts), *made]:
        apply(state, record, dead, dirty)
    write_dirty(writer, state, dirty)
    writer.save()
    return kv


@pytest.mark.parametrize("gone", [1, 2, 3])
@pytest.mark.parametrize("damaged", [True, False])
def test_where_a_plan_is_lost_no_batch_follows(gone: int, damaged: bool) -> None:
    """The reader would cut its batches in another way, and its sink would take larger ones for a replay."""
    kv = planned_store(3)
    key = keys.plan_key(1, 1, gone)
    if damaged:
        kv.put(key, seal(key, b"?"))
    else:
        kv.delete(key)
    with pytest.raises(StorageDamaged):
        load_sound_state(kv)
    fresh = TalliedKV(MemoryKV())
    problems = salvage(list(kv.scan(b"", b"\xff")), fresh)
    fresh.save()
    assert any("lost how its batches were cut; seek it" in problem.what for problem in problems)
    group = load_sound_state(fresh).queues[1].groups[1]
    kept = Plans()
    for number, plan in group.plans.items():
        kept.add(number, plan)
    assert [kept.find(f"tag {number}") is None for number in (1, 2, 3)] == [number == gone for number in (1, 2, 3)]
    assert not any(kept.may_begin(tag_of(f"end {number}")) for number in (1, 2, 3))
    assert list(audit(fresh)) == []


# -- sqlite -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", [keys.GROUP, keys.BLOCK_INFO, keys.DEAD_BY_MESSAGE])
def test_a_row_that_is_gone_from_sqlite_is_missed(tmp_path: Path, table: bytes) -> None:
    store = SqliteStorage(tmp_path, SqliteSettings(ballast_bytes=0))
    store.open()
    store.append([*queue(), added(1, 5)])
    store.close()
    connection = connect(tmp_path / DATABASE)
    with transaction(connection):
        gone = connection.execute("DELETE FROM kv WHERE key >= ? AND key < ?", (table, keys.after(table))).rowcount
        if not gone:
            connection.execute("INSERT INTO kv VALUES (?, x'')", (keys.dead_by_message_key(1, 1, 1),))
    connection.close()
    if table == keys.GROUP:
        with pytest.raises(StorageDamaged, match="groups are found"):
            store.open()
    else:
        store.open()
        assert [problem for problem in store.check() if NAMES[table] in problem.what]
        store.close()
    assert repair_sqlite(tmp_path, SqliteSettings(ballast_bytes=0))
    store.open()
    assert list(store.check()) == []
    assert sum(part.rows.count for part in store.read(1, 1, 9, 1 << 20)) == 5
    store.close()


@pytest.mark.parametrize("value", ["text", 5, None, 1.5])
def test_a_row_of_another_type_is_damage(tmp_path: Path, value: object) -> None:
    store = SqliteStorage(tmp_path, SqliteSettings(ballast_bytes=0))
    store.open()
    store.append([*queue(), added(1, 5)])
    store.close()
    connection = connect(tmp_path / DATABASE)
    connection.execute("PRAGMA writable_schema = ON")
    connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '')")
    connection.close()
    connection = connect(tmp_path / DATABASE)
    connection.execute("UPDATE kv SET value = ? WHERE key = ?", (value, keys.group_key(1, 0)))
    connection.close()
    with pytest.raises(StorageDamaged, match="holds no bytes"):
        store.open()


def test_a_repair_gives_no_letter_an_id_that_a_job_has_chosen() -> None:
    kv, state = MemoryKV(), StoredState()
    plan = JobPlan(kind=JobKind.PURGE_DEAD, filter={}, last_id=500)
    apply(state, JobStarted(StoredJob(job_id=1, plan=plan, created_at=1, state=JobState.RUNNING)), DeadTable())
    write_state(kv, state)
    kv.put(keys.STATE_META, b"\xff" + (kv.get(keys.STATE_META) or b"")[1:])
    saved = MemoryKV()
    assert salvage(list(kv.scan(b"", b"\xff")), saved)
    assert load_state(saved).next_dead_id == 501


@pytest.mark.parametrize("table", [keys.RUN_PAGE, keys.VALUE_PAGE, keys.CHUNK, keys.DEDUP])
def test_a_damaged_key_is_named_with_its_store(table: bytes) -> None:
    kv = MemoryKV()
    key = table + b"short"
    kv.put(key, seal(key, bytes(24)))
    with pytest.raises(StorageDamaged) as found:
        load_state(kv)
    assert f"a key of 6 bytes stands in table {table.decode()}" in str(found.value)
    assert "memory" in str(found.value)
