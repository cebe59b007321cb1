"""A damaged write-ahead log: what SQLite would hide is refused, named and, where it can be, saved."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.storage.local.high_water import note_of
from vibemq.storage.sqlite.check import repair
from vibemq.storage.sqlite.connection import DATABASE, connect
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.recovery import log_of
from vibemq.storage.sqlite.room import LOG_BYTES_MIN, PAGE_BYTES
from vibemq.storage.sqlite.settings import SqliteSettings
from vibemq.storage.sqlite.wal import LogGauge
from vibemq.testing.storage_workload import rows

SETTINGS = SqliteSettings(ballast_bytes=0)
BATCHES = 16
PER_BATCH = 4
FRAME = 24 + 4096
SMEAR = 16
VOLATILE = shutil.ignore_patterns("lock", "owner.json", "*-shm")


def store_at(folder: Path) -> SqliteStorage:
    return SqliteStorage(folder, SETTINGS)


def killed(folder: Path, *, flushed: int = BATCHES) -> Path:
    """A store as `kill -9` leaves it: what the process wrote is there, the log is as long as it was."""
    live = folder / "live"
    live.mkdir()
    store = store_at(live)
    store.open()
    store.append([QueueCreated(1, "q", QueueOptions(), 1, "i"), GroupCreated(1, 0, "", True, 1)])
    for number in range(BATCHES):
        store.append([MessagesAdded(1, 1 + number * PER_BATCH, 5, rows(1 + number * PER_BATCH, PER_BATCH, 200))])
        if number < flushed:
            store.sync()
    left = folder / "left"
    shutil.copytree(live, left, ignore=VOLATILE)
    store.close()
    return left


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killed(tmp_path_factory.mktemp("store"))


@pytest.fixture
def copy(left: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(left, tmp_path / "data"))


def smear(path: Path, at: int, size: int = SMEAR) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + size] = bytes(byte ^ 0xA5 for byte in content[at : at + size])
    path.write_bytes(content)


def regions(size: int) -> Iterator[int]:
    """The header, and of every frame its header, the beginning, the middle and the end of its page."""
    yield from (0, 8, 16)
    for frame in range(32, size, FRAME):
        yield from (frame, frame + 8, frame + 24, frame + 2_000, frame + FRAME - SMEAR)


def messages(store: SqliteStorage) -> dict[int, bytes]:
    return {
        part.first_sequence + offset: row
        for part in store.read(1, 1, 1 << 40, 1 << 30)
        for offset, row in enumerate(part.rows)
    }


ALL = {sequence: rows(sequence, 1, 200)[0] for sequence in range(1, BATCHES * PER_BATCH + 1)}


def test_an_undamaged_log_is_read_whole(copy: Path) -> None:
    store = store_at(copy)
    store.open()
    assert messages(store) == ALL
    store.close()


def test_damage_anywhere_in_the_log_is_refused_and_named(copy: Path) -> None:
    log = log_of(copy / DATABASE)
    sound = {path: path.read_bytes() for path in copy.iterdir()}
    refused = 0
    for at in regions(len(sound[log])):
        smear(log, at)
        with pytest.raises(StorageDamaged, match="cannot be read") as damage:
            store_at(copy).open()
        assert damage.value.path == str(log)
        assert damage.value.offset is not None
        assert damage.value.offset <= at < damage.value.offset + FRAME + 32
        assert "repair" in str(damage.value)
        refused += 1
        # Nothing of the evidence is gone.
        assert (copy / DATABASE).read_bytes() == sound[copy / DATABASE]
        log.write_bytes(sound[log])
    assert refused > 50


def test_a_log_that_is_cut_or_gone_is_refused(copy: Path) -> None:
    log = log_of(copy / DATABASE)
    content = log.read_bytes()
    for size in (len(content) // 2, 40, 0):
        log.write_bytes(content[:size])
        with pytest.raises(StorageDamaged, match="was flushed"):
            store_at(copy).open()
    log.unlink()
    with pytest.raises(StorageDamaged, match="missing"):
        store_at(copy).open()


def test_a_repair_saves_what_stands_behind_the_damage(left: Path, tmp_path: Path) -> None:
    size = log_of(left / DATABASE).stat().st_size
    saved = []
    for number, at in enumerate(list(regions(size))[::7]):
        data = Path(shutil.copytree(left, tmp_path / str(number)))
        smear(log_of(data / DATABASE), at)
        problems = repair(data, SETTINGS)
        assert any("log" in problem.what and problem.path.endswith("-wal") for problem in problems)
        store = store_at(data)
        store.open()
        found = messages(store)
        assert list(store.check()) == []
        store.close()
        assert all(ALL[sequence] == row for sequence, row in found.items())
        saved.append(len(found))
        shutil.rmtree(data)
    # SQLite alone reads half of it on average.
    assert sum(saved) > 0.9 * len(saved) * len(ALL)


def test_a_repair_needs_no_second_name_for_a_file(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some file systems have none."""

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    log = log_of(copy / DATABASE)
    smear(log, log.stat().st_size // 2)
    monkeypatch.setattr(os, "link", refuse)
    repair(copy, SETTINGS)
    store = store_at(copy)
    store.open()
    assert len(messages(store)) > 1
    store.close()


def test_what_no_flush_covered_may_be_torn(tmp_path: Path) -> None:
    left = killed(tmp_path, flushed=BATCHES // 2)
    log = log_of(left / DATABASE)
    smear(log, log.stat().st_size - 100)
    store = store_at(left)
    store.open()
    assert BATCHES // 2 * PER_BATCH <= len(messages(store)) < len(ALL)
    store.close()


def test_a_damaged_note_costs_one_flush_or_its_protection_and_no_start(copy: Path) -> None:
    note = note_of(copy / DATABASE)
    smear(note, 0)
    smear(note, 512)
    store = store_at(copy)
    store.open()
    assert messages(store) == ALL
    store.close()


def test_the_note_is_never_ahead_of_the_log(tmp_path: Path) -> None:
    """Whatever is flushed at the moment of a copy, the copy opens."""
    live = tmp_path / "live"
    live.mkdir()
    store = store_at(live)
    store.open()
    store.append([QueueCreated(1, "q", QueueOptions(), 1, "i"), GroupCreated(1, 0, "", True, 1)])
    for number in range(12):
        store.append([MessagesAdded(1, 1 + number, 5, rows(1 + number, 1, 200))])
        if number % 3 == 0:
            store.sync()
        if number % 4 == 0:
            store.maintain()
        left = Path(
            shutil.copytree(live, tmp_path / "left", ignore=shutil.ignore_patterns("lock", "owner.json", "*-shm"))
        )
        again = store_at(left)
        again.open()
        assert len(messages(again)) == number + 1
        again.close()
        shutil.rmtree(left)
    store.close()


def test_the_note_is_for_its_owner_alone(copy: Path) -> None:
    assert note_of(copy / DATABASE).stat().st_mode & 0o777 == 0o600


# -- folding ---------------------------------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60_000), st.sampled_from(["", "", "", "PASSIVE", "TRUNCATE"])), max_size=12))
def test_the_gauge_counts_the_frames_that_sqlite_counts(steps: list[tuple[int, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        connection = connect(Path(folder) / DATABASE)
        connection.execute("CREATE TABLE t (b BLOB)")
        log = os.open(log_of(Path(folder) / DATABASE), os.O_RDONLY)
        gauge = LogGauge(log, PAGE_BYTES)
        for size, fold in steps:
            connection.execute("INSERT INTO t VALUES (zeroblob(?))", (size,))
            found = gauge.frames()
            assert gauge.end() <= os.fstat(log).st_size
            # Folds what there is; the next frame then overwrites the first.
            assert (
                found == connection.execute(f"PRAGMA wal_checkpoint({fold or 'PASSIVE'})").fetchone()[1]
                or fold == "TRUNCATE"
            )
        os.close(log)
        connection.close()


def test_a_log_is_folded_by_the_store_itself(tmp_path: Path) -> None:
    """SQLite would do it as well, but keep quiet about an error in doing so."""
    with closing(SqliteStorage(tmp_path, SqliteSettings(ballast_bytes=LOG_BYTES_MIN))) as store:
        store.open()
        assert store._open_connection().execute("PRAGMA wal_autocheckpoint").fetchone() == (0,)
        store.append([QueueCreated(1, "q", QueueOptions(), 1, "i"), GroupCreated(1, 0, "", True, 1)])
        longest = 0
        for number in range(40):
            store.append([MessagesAdded(1, 1 + number * 50, 5, rows(1 + number * 50, 50, 1_000))])
            longest = max(longest, log_of(tmp_path / DATABASE).stat().st_size)
        assert LOG_BYTES_MIN < longest < 3 * LOG_BYTES_MIN
        assert (tmp_path / DATABASE).stat().st_size > 40 * 50_000 - 2 * LOG_BYTES_MIN
