"""What only the sqlite provider does: one flush per sync, rollback on a full disk, fail-stop, repair."""

import errno
import gc
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest

from tests.unit.storage.test_lmdb_provider import open_files
from vibemq.errors import ConfigInvalid, StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import (
    CursorChanged,
    CursorFacts,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    GroupFiltered,
    GroupMoved,
    GroupOwned,
    HandedOut,
    MessagesAdded,
    Plan,
    PlanMade,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Record,
    Settled,
)
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.blocks import block_infos
from vibemq.storage.local.ballast import BALLAST_FILE
from vibemq.storage.local.file_limit import limit_sentence
from vibemq.storage.local.mounts import file_system_of
from vibemq.storage.sqlite import PLUGIN, copying
from vibemq.storage.sqlite.check import repair
from vibemq.storage.sqlite.connection import DATABASE, SqliteKV
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.testing.storage_conformance import ALL, NO_LIMIT, added, assert_rows, letter, queue, sequences
from vibemq.testing.storage_workload import TRANSIENT, comparable


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def storage(data_dir: Path) -> Iterator[SqliteStorage]:
    store = SqliteStorage(data_dir, SqliteSettings())
    store.open()
    yield store
    store.close()


def limit_pages(storage: SqliteStorage, more: int) -> None:
    """Let the database grow by so many pages, then be full."""
    connection = storage._open_connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + more}")


def test_a_second_backup_into_a_folder_leaves_the_first_as_it_is(
    storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.backup(tmp_path / "copy")
    first = (tmp_path / "copy" / DATABASE).read_bytes()
    storage.append(queue())
    # As both of two that begin together see the folder.
    monkeypatch.setattr(copying, "any", lambda entries: False, raising=False)
    with pytest.raises(StorageError, match="not empty"):
        storage.backup(tmp_path / "copy")
    assert (tmp_path / "copy" / DATABASE).read_bytes() == first


def test_the_end_of_the_store_does_not_wait_for_a_backup(storage: SqliteStorage, tmp_path: Path) -> None:
    storage.append([*queue(), added(1, 10, size=1_000_000)])
    begun, ended = threading.Event(), threading.Event()

    def progress(done: int, total: int) -> None:
        begun.set()
        ended.wait()

    with ThreadPoolExecutor(1) as pool:
        backup = pool.submit(storage.backup, tmp_path / "copy", progress)
        begun.wait()
        storage.close()
        ended.set()
        with pytest.raises(StorageError, match="the backup was not finished: the broker stops"):
            backup.result()
    assert list((tmp_path / "copy").iterdir()) == []
    storage.open()
    storage.backup(tmp_path / "copy")


@pytest.mark.parametrize("failing", ["fsync_file", "write_store_info"])
def test_a_backup_that_fails_leaves_an_empty_folder(
    storage: SqliteStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fails(*arguments: object) -> None:
        raise OSError(errno.EIO, "no more")

    storage.append(queue())
    with monkeypatch.context() as patched:
        patched.setattr(copying, failing, fails)
        with pytest.raises(StorageError, match="no more"):
            storage.backup(tmp_path / "copy")
    assert list((tmp_path / "copy").iterdir()) == []
    storage.backup(tmp_path / "copy")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (sqlite3.SQLITE_FULL, StorageFull),
        (sqlite3.SQLITE_IOERR_WRITE, StorageError),
        (sqlite3.SQLITE_ERROR, StorageDamaged),
    ],
)
def test_what_the_disk_of_a_backup_does_not_take_does_not_end_the_store(
    storage: SqliteStorage,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: int,
    expected: type[StorageError],
) -> None:
    def fails(*arguments: object) -> None:
        error = sqlite3.OperationalError("so it was told")
        error.sqlite_errorcode = code
        raise error

    storage.append(queue())
    with monkeypatch.context() as patched:
        patched.setattr(copying, "_copy", fails)
        with pytest.raises(StorageError, match="so it was told") as refusal:
            storage.backup(tmp_path / "copy")
    assert type(refusal.value) is expected
    storage.append([added(1, 1)])
    storage.backup(tmp_path / "copy")


def test_a_start_that_fails_late_leaves_nothing_open_and_the_next_one_serves(
    storage: SqliteStorage, data_dir: Path
) -> None:
    storage.append(queue())
    storage.close()
    in_the_way = data_dir / BALLAST_FILE
    in_the_way.unlink(missing_ok=True)
    in_the_way.mkdir()
    failed = SqliteStorage(data_dir, SqliteSettings(ballast_bytes=64 << 10))
    with pytest.raises(IsADirectoryError):
        failed.open()
    assert open_files(data_dir) == []
    in_the_way.rmdir()
    assert set(storage.open().queues) == {1}


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_a_sync_is_one_flush_however_many_batches(tmp_path: Path) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from vibemq.storage.sqlite.provider import SqliteStorage\n"
        "from vibemq.storage.sqlite.settings import SqliteSettings\n"
        "from vibemq.testing.storage_conformance import added, queue\n"
        "storage = SqliteStorage(Path(sys.argv[1]), SqliteSettings())\n"
        "storage.open()\n"
        "os.write(1, b'begin')\n"
        "storage.append(queue())\n"
        "for n in range(20):\n"
        "    storage.append([added(1 + 10 * n, 10)])\n"
        "os.write(1, b'sync')\n"
        "storage.sync()\n"
        "storage.sync()\n"
        "os.write(1, b'end')\n"
        "storage.close()\n"
    )
    trace = tmp_path / "trace"
    calls = "trace=fsync,fdatasync,sync_file_range,write"
    subprocess.run(
        ["strace", "-f", "-e", calls, "-o", str(trace), sys.executable, "-c", program, str(tmp_path / "data")],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    lines = trace.read_text().splitlines()
    begin, sync, end = (
        next(i for i, line in enumerate(lines) if f'"{word}"' in line) for word in ("begin", "sync", "end")
    )
    assert not [line for line in lines[begin:sync] if "sync(" in line], "an append must not flush"
    assert len([line for line in lines[sync:end] if "sync(" in line]) == 1


def test_a_flush_covers_no_batch_that_is_still_being_committed(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flushes run beside appends: one that came just before the commit must not make the next one superfluous."""
    flushes: list[int] = []
    monkeypatch.setattr(os, "fdatasync", flushes.append)
    storage.append(queue())
    storage.sync()

    def between(statement: str) -> None:
        if statement == "COMMIT":
            storage.sync()

    storage._open_connection().set_trace_callback(between)
    lsn = storage.append([added(1, 3)])
    storage._open_connection().set_trace_callback(None)
    flushes.clear()
    assert storage.sync() == lsn
    assert len(flushes) == 1


LIMITED = """
import resource, sys
from pathlib import Path
from vibemq.errors import StorageFull
from vibemq.storage.kvstore import keys
from vibemq.storage.sqlite.check import repair
from vibemq.storage.sqlite.connection import DATABASE
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.testing.storage_conformance import added, queue

storage = SqliteStorage(Path(sys.argv[1]), SqliteSettings(ballast_bytes=0))
storage.open()
storage.append(queue())
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
accepted = 0
try:
    while True:
        storage.append([added(accepted + 1, 1, size=10_000)])
        accepted += 1
except StorageFull as error:
    print(error)
try:
    storage.append([added(accepted + 1, 1, size=10_000)])
except StorageFull:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    storage.append([added(accepted + 1, 1, size=10_000)])
print(accepted + 1)
storage.close()
"""


def test_a_limit_of_file_size_is_a_full_disk_and_no_broken_one(data_dir: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED, str(data_dir)], capture_output=True, text=True, check=True)
    sentence, count = done.stdout.splitlines()
    assert f"{limit_sentence(1 << 20)}; raise that limit" in sentence
    assert "1048576 bytes in this process (`ulimit -f`" in sentence
    store = SqliteStorage(data_dir, SqliteSettings())
    assert store.open().queues[1].next_sequence == int(count) + 1
    assert list(store.check()) == []
    store.close()


def test_a_full_disk_refuses_the_batch_and_changes_nothing(storage: SqliteStorage, data_dir: Path) -> None:
    storage.append([*queue(), *queue(2, TRANSIENT), added(1, 10)])
    storage.append([added(1, 3, queue_id=2), DeadLettered(2, 0, [letter(1, 1)])])
    before, lsn = comparable(storage._store.state), storage._store.state.lsn
    limit_pages(storage, 4)
    changed = TRANSIENT.with_changes(max_attempts=7)
    with pytest.raises(StorageFull, match="free space on its disk"):
        storage.append(
            [QueueChanged(2, changed), DeadRemoved([1]), HandedOut(1, 0, [(1, 5)]), added(11, 100, size=1_000)]
        )
    assert comparable(storage._store.state) == before
    assert storage._store.state.lsn == lsn
    assert_rows(storage.read(1, 1, ALL, NO_LIMIT), range(1, 11))
    assert_rows(storage.read(2, 1, ALL, NO_LIMIT), [1, 2, 3])
    assert [dead.facts.dead_id for dead in storage.dead_letters()] == [1]
    # The store goes on, and what it then says survives.
    storage._open_connection().execute("PRAGMA max_page_count = 1000000")
    assert storage.append([HandedOut(1, 0, [(1, 5)]), Settled(1, 0, [(1, 3)]), added(11, 2)]) == lsn + 1
    storage.close()
    again = SqliteStorage(data_dir, SqliteSettings())
    state = again.open()
    assert state.queues[1].groups[0].pending.runs() == [(4, 5)]
    assert state.queues[1].next_sequence == 13
    assert list(again.check()) == []
    again.close()


def transient_batches() -> list[list[Record]]:
    """Each changes a transient queue of eight messages with the letter 1, by what is written and what is not."""
    return [
        [added(9, 2), Settled(1, 0, [(2, 4)]), DeadLettered(1, 0, [letter(2, 5)]), QueueDeleted(1)],
        [DeadRemoved([1]), DeadLettered(1, 0, [letter(2, 5), letter(3, 6)]), DeadRemoved([2])],
        [Settled(1, 0, [(1, 8)]), DeadLettered(1, 0, [letter(2, 5)]), QueueDeleted(1), DeadRemoved([1, 2])],
        [Settled(1, 0, [(2, 3)]), GroupMoved(1, 0, 4, 2), HandedOut(1, 0, [(4, 5)])],
        [*queue(2, TRANSIENT), added(1, 3, 2), DeadLettered(2, 0, [letter(2, 1)]), QueueDeleted(2)],
    ]


@pytest.mark.parametrize("batch", transient_batches(), ids=range(5))
def test_a_full_disk_undoes_what_a_batch_did_to_transient_queues(
    storage: SqliteStorage, tmp_path: Path, batch: list[Record]
) -> None:
    storage.append([*queue(1, TRANSIENT), *queue(9)])
    storage.append([*(added(sequence, 1) for sequence in range(1, 9)), HandedOut(1, 0, [(1, 8)])])
    storage.append([DeadLettered(1, 0, [letter(1, 1)])])

    def everything(store: SqliteStorage) -> object:
        state = store._store.state
        return deepcopy(state.queues), state.dead_count, store.dead_letters(), store.read(1, 1, ALL, NO_LIMIT)

    before, held = everything(storage), storage.stats().buffered_bytes
    limit_pages(storage, 0)
    with pytest.raises(StorageFull):
        storage.append([*batch, added(1, 100, 9, size=2_000)])
    assert everything(storage) == before
    assert storage.stats().buffered_bytes == held
    limit_pages(storage, 100)
    storage.append(batch)

    other = SqliteStorage(tmp_path / "other", SqliteSettings())
    other.open()
    other.append([*queue(1, TRANSIENT), *queue(9)])
    other.append([*(added(sequence, 1) for sequence in range(1, 9)), HandedOut(1, 0, [(1, 8)])])
    other.append([DeadLettered(1, 0, [letter(1, 1)])])
    for record in batch:
        other.append([record])
    assert everything(storage) == everything(other)
    assert storage.stats().buffered_bytes == other.stats().buffered_bytes
    other.close()


def test_a_full_disk_does_not_stop_upkeep(storage: SqliteStorage) -> None:
    storage.append(queue())
    for index in range(8):
        storage.append([added(1 + index, 1, size=4_000)])
    limit_pages(storage, 0)
    storage.maintain()
    assert_rows(storage.read(1, 1, ALL, NO_LIMIT), range(1, 9), size=4_000)


def test_any_other_error_is_final(storage: SqliteStorage) -> None:
    storage.append(queue())
    storage._open_connection().execute("DROP TABLE kv")
    with pytest.raises(StorageFailed):
        storage.append([added(1, 1)])
    for verb in (storage.sync, storage.maintain, storage.stats, lambda: storage.append([])):
        with pytest.raises(StorageFailed):
            verb()


def test_nothing_is_confirmed_once_the_directory_was_moved_away(storage: SqliteStorage, data_dir: Path) -> None:
    storage.append(queue())
    storage.maintain()
    data_dir.rename(data_dir.with_name("aside"))
    data_dir.mkdir()
    for verb in (storage.maintain, storage.sync, partial(storage.append, [added(1, 3)])):
        with pytest.raises(StorageFailed, match="moved, replaced or deleted"):
            verb()


def test_a_directory_that_was_moved_away_is_not_closed_in_order(storage: SqliteStorage, data_dir: Path) -> None:
    storage.append(queue())
    data_dir.rename(data_dir.with_name("aside"))
    data_dir.mkdir()
    with pytest.raises(StorageFailed, match="moved, replaced or deleted"):
        storage.close()
    assert not any(data_dir.iterdir())


def test_a_database_that_another_program_keeps_locked_is_told(storage: SqliteStorage, data_dir: Path) -> None:
    storage.append(queue())
    assert storage._connection is not None
    storage._connection.execute("PRAGMA busy_timeout = 0")
    with closing(sqlite3.connect(data_dir / DATABASE, isolation_level=None)) as shell:
        shell.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageFailed, match=rf"another program keeps .*fuser {data_dir / DATABASE}. names it"):
            storage.append([added(1, 3)])
        shell.execute("ROLLBACK")


def refuse_to_flush(_file: int) -> None:
    raise OSError(5, "Input/output error")


def test_a_failed_flush_is_final(storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    storage.append(queue())

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse_to_flush)
        with pytest.raises(StorageFailed, match="Input/output"):
            storage.sync()
    with pytest.raises(StorageFailed):
        storage.sync()
    with pytest.raises(StorageFailed):
        storage.append([added(1, 1)])


@pytest.mark.parametrize("let_go", [SqliteStorage.close, lambda _: None])
def test_a_log_that_could_not_be_flushed_is_not_folded_by_letting_go_of_it(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch, let_go: Callable[[SqliteStorage], None]
) -> None:
    storage = SqliteStorage(data_dir, SqliteSettings())
    storage.open()
    storage.append([*queue(), added(1, 10)])
    log = data_dir / "vibemq.sqlite-wal"
    before = log.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse_to_flush)
        with pytest.raises(StorageFailed):
            storage.sync()
    let_go(storage)
    storage._directory.release()
    del storage
    gc.collect()
    assert log.read_bytes() == before
    again = SqliteStorage(data_dir, SqliteSettings())
    again.open()
    assert_rows(again.read(1, 1, ALL, NO_LIMIT), range(1, 11))
    again.close()


@pytest.fixture
def killed(data_dir: Path) -> Path:
    """A store with ten messages, as a killed broker leaves it: with a log that nobody has flushed."""
    storage = SqliteStorage(data_dir, SqliteSettings())
    storage.open()
    storage.append([*queue(), added(1, 10)])
    left = data_dir.with_name("killed")
    shutil.copytree(data_dir, left)
    storage.close()
    return left


def test_a_start_that_cannot_flush_the_log_leaves_it_and_says_so(killed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", refuse_to_flush)
        with pytest.raises(StorageFailed, match="Input/output"):
            SqliteStorage(killed, SqliteSettings()).open()
    gc.collect()
    assert (killed / "vibemq.sqlite-wal").stat().st_size > 1000
    again = SqliteStorage(killed, SqliteSettings())
    again.open()
    assert_rows(again.read(1, 1, ALL, NO_LIMIT), range(1, 11))
    again.close()


def test_a_start_writes_the_log_that_it_believes_once_more_before_it_flushes_it(
    killed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a flush has failed for the system counts as written, and flushes it no more."""
    left = (killed / "vibemq.sqlite-wal").read_bytes()
    calls: list[bytes | None] = []
    write, flush = os.pwritev, os.fdatasync

    def watched_write(file: int, buffers: list[bytes], offset: int) -> int:
        calls.append(b"".join(buffers))
        return write(file, buffers, offset)

    def watched_flush(file: int) -> None:
        calls.append(None)
        flush(file)

    monkeypatch.setattr(os, "pwritev", watched_write)
    monkeypatch.setattr(os, "fdatasync", watched_flush)
    again = SqliteStorage(killed, SqliteSettings())
    again.open()
    assert calls[0] is not None
    assert calls[0].startswith(left)
    assert calls[1] is None
    again.close()


def test_upkeep_joins_small_blocks(storage: SqliteStorage, data_dir: Path) -> None:
    storage.append(queue())
    for index in range(300):
        storage.append([added(1 + index, 1, size=2_000)])

    def blocks() -> list[int]:
        return [info.rows for info in block_infos(SqliteKV(storage._open_connection(), "x"), 1)]

    assert len(blocks()) == 300
    storage.maintain()
    assert len(blocks()) <= 4
    storage.append([added(301, 1, size=2_000)])
    storage.maintain()
    assert len(blocks()) <= 4
    assert sum(blocks()) == 301
    assert_rows(storage.read(1, 1, ALL, NO_LIMIT), range(1, 302), size=2_000)


def transactions_of(storage: SqliteStorage, work: Callable[[], object]) -> int:
    """How many write transactions `work` makes."""
    statements: list[str] = []
    connection = storage._open_connection()
    connection.set_trace_callback(statements.append)
    work()
    connection.set_trace_callback(None)
    return sum(statement.startswith("BEGIN") for statement in statements)


def test_upkeep_writes_nothing_for_queues_whose_blocks_are_joined(storage: SqliteStorage) -> None:
    for queue_id in range(1, 21):
        storage.append([*queue(queue_id), added(1, 1, queue_id)])
    whole_round(storage)
    assert transactions_of(storage, lambda: whole_round(storage)) == 0
    storage.append([added(2, 1, 7)])
    assert transactions_of(storage, lambda: whole_round(storage)) == 1
    assert transactions_of(storage, lambda: whole_round(storage)) == 0


def whole_round(storage: SqliteStorage) -> None:
    storage.maintain()
    while storage.maintain_on():
        pass


def test_a_message_in_each_round_of_upkeep_joins_the_block_of_those_before(storage: SqliteStorage) -> None:
    storage.append(queue())
    for index in range(30):
        storage.append([added(1 + index, 1)])
        whole_round(storage)
    assert [info.rows for info in block_infos(SqliteKV(storage._open_connection(), "x"), 1)] == [30]


def test_a_block_that_is_large_by_itself_is_joined_to_none(storage: SqliteStorage) -> None:
    storage.append(queue())
    for index, size in enumerate((300_000, 10, 2_000_000, 10, 10)):
        storage.append([added(1 + index, 1, size=size)])
        whole_round(storage)
    assert [info.rows for info in block_infos(SqliteKV(storage._open_connection(), "x"), 1)] == [1, 1, 1, 2]
    assert transactions_of(storage, lambda: whole_round(storage)) == 0


def test_a_round_of_upkeep_is_in_parts_and_appends_come_in_between(data_dir: Path) -> None:
    minutes = iter(range(0, 1_000_000, 60))
    storage = SqliteStorage(data_dir, SqliteSettings(), monotonic=lambda: float(next(minutes)))
    storage.open()
    for queue_id in (1, 2, 3):
        storage.append([*queue(queue_id), added(1, 1, queue_id)])
        storage.append([added(2, 1, queue_id)])

    def blocks(queue_id: int) -> int:
        return len(list(block_infos(SqliteKV(storage._open_connection(), "x"), queue_id)))

    storage.maintain()
    assert [blocks(queue_id) for queue_id in (1, 2, 3)] == [1, 2, 2]
    storage.append([added(3, 1, 1)])
    assert storage.maintain_on()
    assert not storage.maintain_on()
    assert [blocks(queue_id) for queue_id in (1, 2, 3)] == [2, 1, 1], "what comes meanwhile is for the next round"
    storage.maintain()
    assert blocks(1) == 1
    storage.close()


def test_a_block_with_little_left_is_rewritten(storage: SqliteStorage) -> None:
    storage.append([*queue(), added(1, 100, size=1_000), HandedOut(1, 0, [(1, 100)])])
    storage.append([Settled(1, 0, [(1, 70)])])
    assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == list(range(1, 101)), "not worth a rewrite yet"
    storage.append([Settled(1, 0, [(71, 79), (81, 99)])])
    assert sequences(storage.read(1, 1, ALL, NO_LIMIT)) == [80, 100]
    storage.append([Settled(1, 0, [(80, 80), (100, 100)])])
    kv = SqliteKV(storage._open_connection(), "x")
    assert list(kv.scan(keys.BLOCK, keys.after(keys.BLOCK))) == []


def test_a_transient_only_batch_writes_nothing(storage: SqliteStorage) -> None:
    storage.append([*queue(1, TRANSIENT)])
    changes = storage._open_connection().total_changes
    first = storage._store.state.queues[1].next_sequence
    storage.append([added(first, 50), HandedOut(1, 0, [(first, first + 49)]), Settled(1, 0, [(first, first + 49)])])
    assert storage._open_connection().total_changes == changes
    assert storage.stats().buffered_bytes == 0, "settled rows are let go"


def stored_keys(storage: SqliteStorage, queue_id: int) -> list[bytes]:
    tables = (keys.QUEUE, keys.GROUP, keys.RUN_PAGE, keys.VALUE_PAGE, keys.PLAN, keys.CHUNK, keys.DEDUP)
    kv = SqliteKV(storage._open_connection(), "x")
    prefixes = [keys.queue_prefix(table, queue_id) for table in tables]
    return [key for prefix in prefixes for key, _ in kv.scan(prefix, keys.after(prefix))]


def leave_queues_behind(storage: SqliteStorage, count: int) -> None:
    """Transient queues 1 to `count` are deleted, and letters keep them until the restart."""
    for queue_id in range(1, count + 1):
        storage.append(queue(queue_id, TRANSIENT))
        storage.append([added(1, 2, queue_id), HandedOut(queue_id, 0, [(1, 2)])])
        storage.append([DeadLettered(queue_id, 0, [letter(queue_id, 1)])])
        storage.append([QueueDeleted(queue_id)])


def test_nothing_is_left_of_a_deleted_transient_queue_whose_letters_the_restart_has_ended(
    storage: SqliteStorage, data_dir: Path
) -> None:
    leave_queues_behind(storage, 60)
    assert len(storage.dead_letters()) == 60
    storage.append([*queue(61, TRANSIENT), *queue(62), added(1, 3, 62), DeadLettered(62, 0, [letter(61, 1)])])
    storage.append([QueueDeleted(62)])
    storage.close()
    again = SqliteStorage(data_dir, SqliteSettings())
    assert again.open().queues.keys() == {61, 62}
    whole_round(again)
    assert [queue_id for queue_id in range(1, 61) if stored_keys(again, queue_id)] == []
    assert stored_keys(again, 61)
    assert [dead.facts.dead_id for dead in again.dead_letters()] == [61]
    assert transactions_of(again, lambda: whole_round(again)) == 0
    assert list(again.check()) == []
    again.close()
    assert again.open().queues.keys() == {61, 62}
    again.close()


def test_a_batch_that_is_undone_before_the_first_upkeep_brings_no_queue_back(
    storage: SqliteStorage, data_dir: Path
) -> None:
    leave_queues_behind(storage, 1)
    storage.append(queue(2))
    storage.close()
    again = SqliteStorage(data_dir, SqliteSettings())
    again.open()
    limit_pages(again, 0)
    with pytest.raises(StorageFull):
        again.append([added(1, 100, 2, size=2_000)])
    assert again._store.state.queues.keys() == {2}
    again.close()


def test_not_a_database_is_damage(data_dir: Path, storage: SqliteStorage) -> None:
    storage.append(queue())
    storage.close()
    (data_dir / "vibemq.sqlite").write_bytes(b"no database at all" * 1000)
    with pytest.raises(StorageDamaged, match=r"vibemq\.sqlite"):
        SqliteStorage(data_dir, SqliteSettings()).open()


def test_a_change_that_meets_a_damaged_page_says_that_a_restart_does_not_help(
    storage: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.append(queue())

    def damaged(*_: object) -> None:
        error = sqlite3.DatabaseError("database disk image is malformed")
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error

    monkeypatch.setattr(storage._store, "write", damaged)
    with pytest.raises(StorageFailed, match="check --repair") as failed:
        storage.append([added(1, 1)])
    assert "restart" not in str(failed.value)


def test_a_damaged_state_value_refuses_to_open_and_is_repaired(data_dir: Path, storage: SqliteStorage) -> None:
    storage.append([*queue(), *queue(2), added(1, 20), added(1, 20, queue_id=2)])
    storage.append([HandedOut(1, 0, [(1, 10)]), Settled(1, 0, [(1, 4)]), DeadLettered(2, 0, [letter(1, 5)])])
    storage.append([HandedOut(2, 0, [(1, 4)]), Settled(2, 0, [(1, 4)])])
    storage.close()
    with sqlite3.connect(data_dir / "vibemq.sqlite") as connection:
        connection.execute("UPDATE kv SET value = zeroblob(40) WHERE key = ?", (keys.group_key(1, 0),))
        connection.execute("UPDATE kv SET value = zeroblob(40) WHERE key = ?", (keys.queue_key(2),))
    connection.close()
    with pytest.raises(StorageDamaged):
        SqliteStorage(data_dir, SqliteSettings()).open()
    assert PLUGIN.repair is not None
    problems = PLUGIN.repair(data_dir, SqliteSettings())
    assert {"recovered-2", "starts over"} <= {
        w for p in problems for w in ("recovered-2", "starts over") if w in p.what
    }
    again = SqliteStorage(data_dir, SqliteSettings())
    state = again.open()
    # Rather again than never: nothing that was stored is skipped.
    assert state.queues[1].groups[0].head == 1
    assert (state.queues[2].name, state.queues[2].groups[0].head) == ("recovered-2", 1)
    assert state.queues[2].next_sequence == 21
    assert [dead.facts.sequence for dead in again.dead_letters()] == [5]
    assert_rows(again.read(1, 1, ALL, NO_LIMIT), range(1, 21))
    assert list(again.check()) == []
    again.append([QueueCreated(state.next_queue_id, "new", QueueOptions(), 1, "")])
    again.close()
    assert [path for path in data_dir.iterdir() if ".damaged-" in path.name]


def test_a_group_whose_progress_is_lost_stays_what_it_was(data_dir: Path, storage: SqliteStorage) -> None:
    facts = CursorFacts(3, 8, 60_000, 0, 0, False, 1, "reader", head=4)
    storage.append(
        [
            *queue(),
            GroupCreated(1, 1, "billing", True, 1),
            GroupOwned(1, 1, "alice"),
            GroupFiltered(1, 1, "region = 'eu'"),
            GroupCreated(1, 2, "stream", True, 1),
            CursorChanged(1, 2, facts),
            PlanMade(1, 2, 1, Plan("tag", "end")),
            added(1, 20),
            *(Settled(1, group_id, [(2, 3), (6, 6)]) for group_id in (1, 2)),
        ]
    )
    storage.close()
    with sqlite3.connect(data_dir / "vibemq.sqlite") as connection:
        broken = connection.execute(
            "UPDATE kv SET value = zeroblob(40) WHERE key >= ? AND key < ?",
            (keys.RUN_PAGE, keys.after(keys.RUN_PAGE)),
        )
        assert broken.rowcount == 2
    connection.close()
    assert {problem.what for problem in repair(data_dir, SqliteSettings())} >= {
        "group 'billing' of queue queue-1 starts over with its oldest stored message",
        "group 'stream' of queue queue-1 reads on from 8",
    }
    again = SqliteStorage(data_dir, SqliteSettings())
    groups = again.open().queues[1].groups
    assert (groups[1].owner, groups[1].where, groups[1].head) == ("alice", "region = 'eu'", 1)
    assert (groups[2].cursor, groups[2].plans) == (facts._replace(head=0), {1: Plan("tag", "end")})
    again.close()


def test_broken_pages_are_survived_by_repair(data_dir: Path, storage: SqliteStorage) -> None:
    storage.append(queue())
    for index in range(60):
        storage.append([added(1 + 50 * index, 50, size=500)])
    storage.close()
    path = data_dir / "vibemq.sqlite"
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 8192] = os.urandom(8192)
    path.write_bytes(data)
    assert PLUGIN.repair is not None
    assert PLUGIN.repair(data_dir, SqliteSettings())
    again = SqliteStorage(data_dir, SqliteSettings())
    again.open()
    saved = sequences(again.read(1, 1, ALL, NO_LIMIT))
    assert len(saved) >= 1_000
    assert list(again.check()) == []
    again.close()


def test_a_remote_directory_is_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibemq.storage.local.mounts.REMOTE_TYPES", frozenset({_kind_of_here(data_dir)}))
    with pytest.raises(ConfigInvalid, match="allow_remote"):
        SqliteStorage(data_dir, SqliteSettings()).open()
    store = SqliteStorage(data_dir, SqliteSettings(allow_remote=True))
    store.open()
    store.close()


def _kind_of_here(path: Path) -> str:
    return file_system_of(path).type


def test_files_are_private(data_dir: Path, storage: SqliteStorage) -> None:
    storage.append([*queue(), MessagesAdded(1, 1, 5, added(1, 1).rows)])
    assert data_dir.stat().st_mode & 0o077 == 0
    assert (data_dir / "vibemq.sqlite").stat().st_mode & 0o077 == 0


def test_groups_of_a_transient_queue_keep_their_names_and_epochs(data_dir: Path, storage: SqliteStorage) -> None:
    options = QueueOptions(durability=Durability.TRANSIENT)
    storage.append([*queue(1, options), GroupCreated(1, 1, "spark", True, 1)])
    storage.close()
    again = SqliteStorage(data_dir, SqliteSettings(), now=lambda: 1_700_000_000_000)
    state = again.open()
    assert state.queues[1].groups[1].name == "spark"
    assert state.queues[1].next_sequence == 1_700_000_000_000_000
    assert {group.head for group in state.queues[1].groups.values()} == {1_700_000_000_000_000}
    again.close()


def test_an_emptied_database_is_damage(data_dir: Path, storage: SqliteStorage) -> None:
    storage.close()
    os.truncate(data_dir / "vibemq.sqlite", 0)
    with pytest.raises(StorageDamaged, match="no such table"):
        SqliteStorage(data_dir, SqliteSettings()).open()


@pytest.mark.parametrize("offset", [5, 9, 11])
def test_a_schema_that_is_no_text_is_damage_and_the_rest_is_saved(data_dir: Path, offset: int) -> None:
    """SQLite quotes it in its message, which its module then cannot decode."""
    with closing(SqliteStorage(data_dir, SqliteSettings())) as store:
        store.open()
        store.append([*queue(), added(1, 3)])
        store.sync()
    path = data_dir / "vibemq.sqlite"
    content = bytearray(path.read_bytes())
    content[content.index(b"tablekvkv") + offset] = 0xD5
    path.write_bytes(content)
    store = SqliteStorage(data_dir, SqliteSettings())
    with pytest.raises(StorageDamaged, match="malformed database schema"):
        store.open()
    store.close()
    assert PLUGIN.repair is not None
    assert PLUGIN.repair(data_dir, SqliteSettings())
    with closing(SqliteStorage(data_dir, SqliteSettings())) as store:
        store.open()
        assert list(store.check()) == []


def test_a_key_that_is_no_key_is_passed_over_by_a_repair(data_dir: Path) -> None:
    """Met from behind, where reading from the front has stopped at a broken page."""
    store = SqliteStorage(data_dir, SqliteSettings(ballast_bytes=0))
    store.open()
    store.append(queue())
    for first in range(1, 1001):
        store.append([added(first, 1, size=50)])
    store.close()
    path = data_dir / DATABASE
    content = bytearray(path.read_bytes())
    early, late = (content.rindex(keys.sequence_key(keys.BLOCK, 1, first)) for first in (100, 900))
    start = early - early % 4096
    content[start : start + 4096] = bytes(4096)
    # The key's type in its record's header: 38 is a blob of 13 bytes, 0 is NULL; the value has as many bytes more then.
    content[content.rindex(38, late - 5, late)] = 0
    content[late - 1] += 2 * 13
    path.write_bytes(content)
    problems = repair(data_dir, SqliteSettings())
    assert any("900" in problem.what for problem in problems), problems
    again = SqliteStorage(data_dir, SqliteSettings())
    again.open()
    assert list(again.check()) == []
    assert again.read(1, 990, 1000, 1 << 20)
    again.close()
