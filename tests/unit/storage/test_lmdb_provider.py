import os
import shutil
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until
from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageLocked, StoreVersionError
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import (
    DeadFacts,
    DeadLettered,
    DeadRemoved,
    GroupCreated,
    HandedOut,
    MessagesAdded,
    QueueCreated,
    QueueDeleted,
    Reason,
    Record,
    Settled,
    TransactionDecided,
    TransactionsForgotten,
)
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import DeadPageWanted, Slice
from vibemq.storage.kvstore import block_cache
from vibemq.storage.kvstore.blocks import BLOCK_BYTES, BlockInfo, BlockParts, load_block, load_large_block
from vibemq.storage.kvstore.store import KV
from vibemq.storage.lmdb import provider as provider_module
from vibemq.storage.lmdb.backup import restore
from vibemq.storage.lmdb.checkpoint import schedule
from vibemq.storage.lmdb.checkpoint.checkpointer_process import THRIFTY
from vibemq.storage.lmdb.checkpoint.schedule import portion
from vibemq.storage.lmdb.compaction import copying_folder
from vibemq.storage.lmdb.environment.pairs import read_pairs
from vibemq.storage.lmdb.environment.tables import LmdbKV
from vibemq.storage.lmdb.journal.journal import SealedSegment
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.repair import repair
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.local.ballast import BALLAST_FILE
from vibemq.storage.reading import read_piece
from vibemq.storage.state.picking import pick_in_turns

SMALL = LmdbSettings(segment_bytes=64 << 10, buffer_bytes=100_000, ballast_bytes=0, checkpoint_lag_bytes=0)


def a_queue(queue_id: int = 1, durability: Durability = Durability.STRONG) -> list[Record]:
    options = QueueOptions(durability=durability)
    return [
        QueueCreated(queue_id, f"q{queue_id}", options, 1000, "abc"),
        GroupCreated(queue_id, 0, "", True, 1),
    ]


def messages(first: int, count: int, *, queue_id: int = 1, size: int = 100) -> MessagesAdded:
    rows = Rows.of([pack_row(f"m{first + i}", b"%d" % (first + i) * (size // 8)) for i in range(count)])
    return MessagesAdded(queue_id, first, 2000, rows)


def sequences(provider: LmdbProvider, first: int = 1, last: int = 10**9, queue_id: int = 1) -> list[int]:
    """Every stored sequence of the range, read a piece at a time; the row's id must agree."""
    found: list[int] = []
    while parts := provider.read(queue_id, first, last, 5000):
        for part in parts:
            for index, row in enumerate(part.rows):
                sequence = part.first_sequence + index
                assert row[2:].startswith(b"m%d" % sequence)
                found.append(sequence)
        first = found[-1] + 1
    return found


def dead(dead_id: int, sequence: int) -> DeadLettered:
    return DeadLettered(1, 0, [DeadFacts(dead_id, sequence, Reason.MAX_ATTEMPTS, "boom", 3, 3, 5, 9)])


@pytest.fixture
def provider(tmp_path: Path, quick_checkpointers: None) -> Iterator[LmdbProvider]:
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    yield provider
    provider.close()


def reopened(provider: LmdbProvider, tmp_path: Path) -> LmdbProvider:
    provider.close()
    again = LmdbProvider(tmp_path / "data", SMALL)
    again.open()
    return again


def test_rows_are_readable_before_and_after_eviction_and_checkpoint(provider: LmdbProvider) -> None:
    provider.append(a_queue())
    for first in range(1, 5001, 100):
        provider.append([messages(first, 100)])
    everything = list(range(1, 5001))
    assert provider.stats().buffered_bytes <= 200_000
    assert sequences(provider) == everything
    provider.sync()
    provider.checkpoint()
    assert provider.stats().buffered_bytes == 0
    assert sequences(provider) == everything
    provider.append([messages(5001, 50)])
    assert sequences(provider, 4990) == list(range(4990, 5051))
    assert list(provider.check()) == []


def test_a_restart_knows_everything_with_and_without_a_checkpoint(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append(a_queue())
    provider.append([messages(1, 100)])
    provider.checkpoint()
    provider.append([messages(101, 100), HandedOut(1, 0, [(1, 10)]), Settled(1, 0, [(1, 5)])])
    provider.close()
    again = LmdbProvider(tmp_path / "data", SMALL)
    state = again.open()
    group = state.queues[1].groups[0]
    assert (group.head, group.pending.runs()) == (11, [(6, 10)])
    assert state.queues[1].next_sequence == 201
    assert sequences(again, 6) == list(range(6, 201))
    again.close()


def test_what_is_settled_before_a_checkpoint_never_reaches_the_store(provider: LmdbProvider) -> None:
    provider.append(a_queue())
    before = provider.stats().store_bytes
    for first in range(1, 20_001, 1000):
        provider.append([messages(first, 1000, size=1000), HandedOut(1, 0, [(first, first + 999)])])
        provider.append([Settled(1, 0, [(first, first + 999)])])
    provider.checkpoint()
    assert provider.stats().store_bytes - before < 200_000
    assert sequences(provider) == []


def test_settled_blocks_leave_the_store(provider: LmdbProvider) -> None:
    provider.append(a_queue())
    provider.append([messages(1, 3000, size=1000)])
    provider.checkpoint()
    used = provider.stats().store_bytes - provider.stats().reclaimable_bytes
    provider.append([HandedOut(1, 0, [(1, 3000)]), Settled(1, 0, [(1, 2990)])])
    provider.checkpoint()
    assert provider.stats().store_bytes - provider.stats().reclaimable_bytes < used / 5
    assert set(range(2991, 3001)) <= set(sequences(provider))
    assert list(provider.check()) == []


def test_transient_messages_are_served_and_forgotten(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(durability=Durability.TRANSIENT), messages(1, 10)])
    lsn = provider.append([messages(11, 10)])
    assert lsn == 1
    assert sequences(provider) == list(range(1, 21))
    again = reopened(provider, tmp_path)
    assert sequences(again) == []
    again.close()


def test_dead_letters_from_journal_and_store(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 10), HandedOut(1, 0, [(1, 10)])])
    provider.append([dead(1, 3), dead(2, 4)])
    assert [letter.facts.dead_id for letter in provider.dead_letters()] == [1, 2]
    provider.checkpoint()
    provider.append([dead(3, 5), DeadRemoved([1])])
    provider.append([Settled(1, 0, [(1, 10)])])
    letters = provider.dead_letters(queue="q1")
    assert [(letter.facts.dead_id, letter.facts.sequence) for letter in letters] == [(2, 4), (3, 5)]
    assert letters[0].row[2:].startswith(b"m4")
    provider.checkpoint()
    assert [letter.facts.dead_id for letter in provider.dead_letters(after=2)] == [3]
    assert (provider.dead_letter(1), provider.dead_letters(queue="other")) == (None, [])
    again = reopened(provider, tmp_path)
    assert [letter.facts.dead_id for letter in again.dead_letters()] == [2, 3]
    assert list(again.check()) == []
    again.close()


def test_a_deleted_queue_leaves_nothing(provider: LmdbProvider) -> None:
    provider.append([*a_queue(), messages(1, 1000)])
    provider.checkpoint()
    provider.append([messages(1001, 100), QueueDeleted(1)])
    provider.checkpoint()
    assert sequences(provider) == []


def test_a_second_broker_is_refused_with_the_first_ones_pid(provider: LmdbProvider, tmp_path: Path) -> None:
    import os

    with pytest.raises(StorageLocked, match=str(os.getpid())):
        LmdbProvider(tmp_path / "data", SMALL).open()


def test_housekeeping_finds_that_the_directory_was_moved_away(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.maintain()
    (tmp_path / "data").rename(tmp_path / "aside")
    (tmp_path / "data").mkdir()
    with pytest.raises(StorageFailed, match=r"moved, replaced or deleted"):
        provider.maintain()
    provider.abandon()


def test_a_directory_that_was_moved_away_is_not_closed_in_order(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append(a_queue())
    provider.append([messages(1, 10)])
    provider.sync()
    (tmp_path / "data").rename(tmp_path / "aside")
    (tmp_path / "data").mkdir()
    with pytest.raises(StorageFailed, match=r"moved, replaced or deleted"):
        provider.close()
    assert not any((tmp_path / "data").iterdir())
    moved = LmdbProvider(tmp_path / "aside", SMALL)
    moved.open()
    assert sequences(moved) == list(range(1, 11))
    moved.close()


def test_a_start_that_fails_late_leaves_nothing_open_and_the_next_one_serves(
    provider: LmdbProvider, tmp_path: Path
) -> None:
    provider.append(a_queue())
    provider.append([messages(1, 100)])
    provider.close()
    data_dir = tmp_path / "data"
    in_the_way = data_dir / BALLAST_FILE
    in_the_way.mkdir()
    failed = LmdbProvider(data_dir, SMALL.model_copy(update={"ballast_bytes": 64 << 10}))
    with pytest.raises(IsADirectoryError):
        failed.open()
    assert open_files(data_dir) == []
    in_the_way.rmdir()
    again = LmdbProvider(data_dir, SMALL)
    again.open()
    assert sequences(again) == list(range(1, 101))
    again.close()


def open_files(folder: Path) -> list[str]:
    """Of this process, below the folder."""
    descriptors = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
    targets = [os.readlink(path) for path in descriptors if path.is_symlink()]
    return sorted(target for target in targets if target.startswith(f"{folder}/"))


def test_a_newer_or_foreign_store_is_refused(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.close()
    for text in ('{"provider": "lmdb", "version": 99}', '{"provider": "sqlite", "version": 1}'):
        (tmp_path / "data" / "store.json").write_text(text)
        with pytest.raises(StoreVersionError):
            LmdbProvider(tmp_path / "data", SMALL).open()


def test_a_backup_opens_as_a_store(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 3000)])
    provider.backup(tmp_path / "copy")
    provider.append([messages(3001, 10)])
    with pytest.raises(StorageError):
        provider.backup(tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored")
    for folder in ("copy", "restored"):
        other = LmdbProvider(tmp_path / folder, SMALL)
        other.open()
        assert sequences(other) == list(range(1, 3001))
        assert list(other.check()) == []
        other.close()


def test_of_two_backups_into_one_folder_the_one_that_came_first_stays(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 100)])
    meanwhile = iter([provider.backup])

    def another(done: int, total: int) -> None:
        for back_up in meanwhile:
            back_up(tmp_path / "copy")

    with pytest.raises(StorageError, match="not empty"):
        provider.backup(tmp_path / "copy", another)
    other = LmdbProvider(tmp_path / "copy", SMALL)
    other.open()
    assert sequences(other) == list(range(1, 101))
    other.close()


def test_a_folder_that_takes_no_copy_does_not_end_the_checkpointer(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 100)])
    provider.backup(tmp_path / "first")
    process = provider._driver._link.pid
    with pytest.raises(StorageError, match=r"the copy was not finished: .*No such file"):
        provider._driver.copy_store(tmp_path / "missing")
    provider.backup(tmp_path / "second")
    assert provider._driver._link.pid == process is not None


def test_the_end_of_the_store_does_not_wait_for_a_backup(tmp_path: Path) -> None:
    provider = LmdbProvider(tmp_path / "data", SMALL.model_copy(update={"checkpointer_silence_ms": 600_000}))
    provider.open()
    provider.append(a_queue())
    provider.append([messages(1, 100)])
    provider.checkpoint()
    os.kill(provider.stats().details["checkpointer_pid"], signal.SIGSTOP)
    begun = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        backup = pool.submit(provider.backup, tmp_path / "backup", lambda done, total: begun.set())
        begun.wait()
        wait_until((tmp_path / "backup" / "store").exists)
        provider.close()
        with pytest.raises(StorageError, match="the broker stops"):
            backup.result()
    assert list((tmp_path / "backup").iterdir()) == []
    again = LmdbProvider(tmp_path / "data", SMALL)
    again.open()
    assert sequences(again) == list(range(1, 101))
    again.close()


def test_compacting_gives_space_back(provider: LmdbProvider) -> None:
    provider.append([*a_queue(), messages(1, 5000, size=1000)])
    provider.checkpoint()
    provider.append([HandedOut(1, 0, [(1, 4000)]), Settled(1, 0, [(1, 4000)])])
    assert provider.compact() > 3_000_000
    assert sequences(provider, 4001) == list(range(4001, 5001))
    provider.append([messages(5001, 10)])
    provider.checkpoint()
    assert sequences(provider, 4990) == list(range(4990, 5011))


def test_a_killed_checkpointer_is_restarted_and_nothing_is_lost(provider: LmdbProvider) -> None:
    import os
    import signal

    provider.append([*a_queue(), messages(1, 100)])
    provider.checkpoint()
    pid = provider.stats().details["checkpointer_pid"]
    os.kill(pid, signal.SIGKILL)
    provider.append([messages(101, 100)])
    provider.checkpoint()
    assert provider.stats().details["checkpointer_restarts"] == 1
    assert sequences(provider) == list(range(1, 201))


def test_maintain_checkpoints_by_itself(provider: LmdbProvider) -> None:
    provider.append([*a_queue(), messages(1, 1000)])

    def applied() -> int:
        provider.maintain()
        return provider.stats().applied_lsn

    wait_until(applied)
    assert provider.stats().applied_lsn == 1
    assert provider.stats().details["journal_spares"] >= 1


def flip(path: Path, needle: bytes) -> None:
    data = path.read_bytes()
    at = data.index(needle)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([data[at] ^ 1]))


def test_a_repair_leaves_no_unfinished_copy_of_a_compaction(provider: LmdbProvider, tmp_path: Path) -> None:
    """It takes room in the folder of the damaged store, where nobody looks for it."""
    provider.append([*a_queue(), messages(1, 3)])
    provider.close()
    unfinished = copying_folder(Layout(tmp_path / "data"))
    unfinished.mkdir()
    (unfinished / "data.mdb").write_bytes(b"half a copy")
    repair(tmp_path / "data", SMALL)
    [damaged] = (tmp_path / "data").glob("store.damaged-*")
    assert not (damaged / unfinished.name).exists()


def test_rot_in_the_store_is_found_and_repaired(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 3000)])
    provider.append([dead(1, 3000)])
    provider.checkpoint()
    provider.close()
    flip(tmp_path / "data" / "store" / "data.mdb", b"1500" * 12)
    again = LmdbProvider(tmp_path / "data", SMALL)
    again.open()
    with pytest.raises(StorageDamaged, match="queue q1"):
        again.read(1, 1500, 1500, 1)
    problem, *_ = again.check()
    assert problem.first_sequence <= 1500 <= problem.last_sequence
    again.close()
    assert repair(tmp_path / "data", SMALL)
    again.open()
    assert list(again.check()) == []
    lost = set(range(problem.first_sequence, problem.last_sequence + 1))
    assert set(sequences(again)) == set(range(1, 3001)) - lost
    again.close()


def test_a_damaged_block_is_read_once_for_all_of_its_messages(
    provider: LmdbProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.append([*a_queue(), messages(1, 3000)])
    provider.checkpoint()
    provider.close()
    flip(tmp_path / "data" / "store" / "data.mdb", b"1500" * 12)
    again = reopened(provider, tmp_path)
    loaded: list[int] = []

    def counted(kv: KV, queue_id: int, info: BlockInfo, name: str = "") -> BlockParts:
        loaded.append(info.first)
        return load_block(kv, queue_id, info, name)

    monkeypatch.setattr(block_cache, "load_block", counted)
    piece = read_piece(again, 1, [(1, 3000)], 1 << 30)
    ((first, last),) = piece.damaged
    assert first <= 1500 <= last
    assert piece.count + last - first + 1 == 3000
    # What stands before it is read again, from what is at hand, and it itself when that is done.
    assert len(loaded) <= len(set(loaded)) + 1
    again.close()


def test_damage_in_the_journal_is_refused_and_repaired(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append(a_queue())
    for number in range(1, 11):
        provider.append([messages(number, 1)])
        provider.sync()
    # A segment that is being made would be renamed in the middle of the copying.
    shutil.copytree(tmp_path / "data", tmp_path / "crashed", ignore=shutil.ignore_patterns("*.new"))
    (segment,) = (p for p in (tmp_path / "crashed" / "journal").iterdir() if b"m5" in p.read_bytes())
    flip(segment, b"m5")
    again = LmdbProvider(tmp_path / "crashed", SMALL)
    with pytest.raises(StorageDamaged, match="repair"):
        again.open()
    assert any("records 6 to 6" in problem.what for problem in repair(tmp_path / "crashed", SMALL))
    again.open()
    assert sequences(again, 1, 4) == [1, 2, 3, 4]
    assert sequences(again, 6) == [6, 7, 8, 9, 10]
    again.close()


def test_a_store_file_cut_short_is_refused_before_it_is_mapped(provider: LmdbProvider, tmp_path: Path) -> None:
    provider.append([*a_queue(), messages(1, 3000)])
    provider.checkpoint()
    provider.close()
    path = tmp_path / "data" / "store" / "data.mdb"
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size // 2)
    with pytest.raises(StorageDamaged, match="header"):
        LmdbProvider(tmp_path / "data", SMALL).open()


def test_a_limit_reached_in_the_store_is_not_filled_up_from_the_journal(provider: LmdbProvider) -> None:
    provider.append([*a_queue(), messages(1, 2, size=1000)])
    provider.checkpoint()
    provider.append([messages(3, 5, size=10)])
    (part,) = provider.read(1, 1, 7, 200)
    assert (part.first_sequence, part.rows.count) == (1, 1)


@pytest.mark.parametrize(("size", "taken"), [(0, 1), (10, 1), (11, 2), (30, 3), (31, 0)])
def test_a_burst_is_applied_in_portions(size: int, taken: int) -> None:
    sealed = [SealedSegment(serial, f"s{serial}", serial, serial, 10) for serial in (1, 2, 3)]
    assert portion(sealed, size) == sealed[:taken]


def test_a_burst_is_applied_without_waiting_for_the_next_round(tmp_path: Path) -> None:
    settings = LmdbSettings(segment_bytes=65_536, checkpoint_lag_bytes=131_072, ballast_bytes=0)
    provider = LmdbProvider(tmp_path / "data", settings)
    provider.open()
    provider.append(a_queue())
    for first in range(1, 1001, 20):
        provider.append([messages(first, 20, size=1_000)])
    provider.maintain()
    # Each answer brings the next order; nobody calls `maintain` again.
    wait_until(lambda: provider.stats().details["journal_bytes_unreleased"] < 131_072)
    provider.close()


def test_the_checkpointer_takes_blocks_from_its_heap() -> None:
    """Above the threshold glibc maps and unmaps memory for each copy, which made checkpoints five times as dear."""
    assert int(THRIFTY["MALLOC_MMAP_THRESHOLD_"]) > 2 * BLOCK_BYTES


class SpyLock:
    """Says when somebody has to wait for it."""

    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.waited_for = threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.waited_for.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_the_end_waits_for_a_large_row_that_is_being_read(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go = threading.Event(), threading.Event()
    lock = SpyLock(provider._store.large_lock)
    monkeypatch.setattr(provider._store, "large_lock", lock)

    def slow(kv: LmdbKV, queue_id: int, first: int, last: int) -> Iterator[BlockInfo]:
        reading.set()
        assert go.wait(30)
        assert kv.get(b"nothing") is None
        yield from ()

    monkeypatch.setattr("vibemq.storage.lmdb.reading.rows.block_infos", slow)
    with ThreadPoolExecutor(2) as threads:
        read = threads.submit(provider.read_large, 1, 1)
        assert reading.wait(30)
        closed = threads.submit(provider.close)
        wait_until(lambda: lock.waited_for.is_set() or closed.done())
        assert not closed.done(), "closed while somebody reads"
        go.set()
        closed.result(30)
        assert isinstance(read.exception(30), StorageFailed | None)
    for ask in (
        lambda: provider.read(1, 1, 1, 1),
        lambda: provider.read_large(1, 1),
        lambda: provider.pick(1, [1], 1),
        lambda: provider.dead_letter(1),
        lambda: provider.dead_letters(),
        lambda: provider.dead_page(DeadPageWanted()),
        lambda: provider.stats(),
        lambda: list(provider.check()),
    ):
        with pytest.raises(StorageFailed, match="not open"):
            ask()


class CountingLock:
    def __init__(self, lock: threading.Lock) -> None:
        self._lock = lock
        self.taken = 0

    def __enter__(self) -> None:
        self.taken += 1
        self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


@pytest.mark.parametrize("durability", [Durability.STRONG, Durability.TRANSIENT])
def test_scattered_rows_that_stand_one_by_one_are_read_many_under_one_lock(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch, durability: Durability
) -> None:
    """Behind each pause the thread may wait milliseconds for its next turn."""
    provider.append(a_queue(durability=durability))
    for sequence in range(1, 501):
        provider.append([messages(sequence, 1)])
    wanted = range(1, 501, 2)
    held_s = 0.0
    now_s = 0.0

    def elapsed_s() -> float:
        nonlocal now_s
        now_s += held_s
        return now_s

    timed = partial(pick_in_turns, elapsed_s=elapsed_s)
    monkeypatch.setattr("vibemq.storage.lmdb.reading.rows.pick_in_turns", timed)
    for held_s, times in ((0.0, 1), (0.000_12, 50), (1.0, 250)):
        lock = CountingLock(provider._store.lock)
        with monkeypatch.context() as patched:
            patched.setattr(provider._store, "lock", lock)
            found, looked_at = provider.pick(1, wanted, 1 << 20)
        assert [part.first_sequence for part in found] == list(wanted)
        assert looked_at == len(wanted)
        assert lock.taken == times, f"reads of {held_s} s each"


def test_a_large_dead_letter_is_read_without_the_lock_that_appends_take(
    provider: LmdbProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = messages(2, 1, size=10 << 20)
    provider.append([*a_queue(), messages(1, 1), large, messages(3, 1)])
    provider.append([dead(1, 1), dead(2, 2), dead(3, 3)])
    provider.sync()
    again = reopened(provider, tmp_path)
    lock = again._store.lock
    free: list[bool] = []

    def in_between(*arguments: Any) -> list[Slice]:
        with ThreadPoolExecutor(1) as thread:
            free.append(thread.submit(lambda: lock.acquire(blocking=False) and not lock.release()).result())
        return load_large_block(*arguments)

    monkeypatch.setattr("vibemq.storage.lmdb.reading.rows.load_large_block", in_between)
    rows: list[bytes] = []
    after = 0
    while not (page := again.dead_page(DeadPageWanted(after=after))).done or page.letters:
        assert not page.damaged
        rows += [letter.row for letter in page.letters]
        after = page.last
    assert rows == [messages(1, 1).rows[0], large.rows[0], messages(3, 1).rows[0]]
    assert free
    assert all(free)
    again.close()


def test_files_of_the_working_directory_do_not_stand_for_modules_of_the_checkpointer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "queue.py").write_text("raise SystemExit('imported')")
    monkeypatch.chdir(tmp_path)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, 10)])
    provider.checkpoint()
    assert provider.stats().details["checkpointer_restarts"] == 0
    assert len(list(read_pairs(tmp_path / "data" / "store", backward=False))) > 3
    provider.close()


def test_appends_have_their_turn_while_what_was_checkpointed_is_let_go_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_module, "STRETCHES_AT_ONCE", 10)
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    provider.append(a_queue())
    for number in range(1, 101):
        provider.append([messages(number, 1)])
    held: list[tuple[int, list[int]]] = []
    release = provider._recent.release

    def watched(lsn: int, most: int) -> bool:
        held.append((provider._recent.bytes_held, sequences(provider)))
        return release(lsn, most)

    monkeypatch.setattr(provider._recent, "release", watched)
    provider.checkpoint()
    assert len({size for size, _ in held}) >= 10
    assert all(found == list(range(1, 101)) for _, found in held)
    assert provider._recent.bytes_held == 0
    provider.close()


def test_a_final_checkpoint_that_was_given_up_is_left_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A supervisor waits for the end, and the journal may hold gigabytes."""
    applied: list[object] = []
    monkeypatch.setattr(schedule, "FINAL_CHECKPOINT_TIMEOUT_S", -1.0)
    monkeypatch.setattr(provider_module, "apply_offline", lambda *args: applied.append(args))
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    provider.maintain()
    provider.append([*a_queue(), messages(1, 10)])
    provider.close()
    assert not applied
    provider.open()
    assert sequences(provider) == list(range(1, 11))
    provider.abandon()


def test_an_application_whose_name_is_longer_than_a_key_holds_up_no_checkpoint(tmp_path: Path) -> None:
    """As earlier versions have journaled it."""
    long = "a" * 511
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    provider.append([*a_queue(), *(TransactionDecided(app, 1, 1_000, []) for app in (long, long[1:])), messages(1, 10)])
    provider.append([TransactionsForgotten([long])])
    provider.checkpoint()
    provider.close()
    assert list(provider.open().transactions) == [long[1:]]
    assert sequences(provider) == list(range(1, 11))
    assert list(provider.check()) == []
    provider.close()
