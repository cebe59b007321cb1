"""What only looks at a data directory changes no file of it, whatever a broker has left there."""

import ctypes
import json
import os
import shutil
import signal
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.proof.forked import ChildDied, in_fork
from vibemq import plugins
from vibemq.cli.admin import main
from vibemq.cli.entry import run_app
from vibemq.errors import StorageLocked
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.lmdb.environment.writer_lock import wait_for_writer

Run = Callable[..., tuple[int, Any]]
CAPABILITY_VERSION_3 = 0x20080522
OVERRIDE_OF_MODES = 0b110
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH."""
DOTNET = """
CREATE TABLE queues (name TEXT PRIMARY KEY, options_json TEXT, created_at TEXT);
CREATE TABLE messages (id TEXT PRIMARY KEY, queue_name TEXT, payload_json TEXT, timestamp TEXT,
    headers_json TEXT, version INTEGER, priority INTEGER, delivery_attempts INTEGER);
CREATE TABLE dead_letters (id TEXT PRIMARY KEY, message_id TEXT, message_json TEXT, reason INTEGER, failed_at TEXT);
INSERT INTO queues VALUES ('invoices', '{}', '2026-01-02T03:04:05.0000000Z');
INSERT INTO messages VALUES ('a', 'invoices', '{"n":1}', '2026-01-02T03:04:06Z', '{"k":"v"}', 1, 1, 0);
"""
MESSAGES = 500

SMALL = {"lmdb": {"segment_bytes": 1 << 20, "ballast_bytes": 1 << 20}, "sqlite": {"ballast_bytes": 1 << 20}}
"""Settings of stores of which every byte is looked at, again and again."""

LOOKING = """
import sys
from pathlib import Path
from vibemq.cli.admin.offline import looked_at

with looked_at(Path(sys.argv[1]), None):
    print("looking", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def admin(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `vibemq-admin … --json`; (exit code, the object on stdout or else on stderr)."""

    def run(*words: object) -> tuple[int, Any]:
        code = run_app(main.app, "vibemq-admin", [*map(str, words), "--json"])
        captured = capsys.readouterr()
        return code, json.loads(captured.out or captured.err)

    return run


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may enter; those of pytest are for their owner alone."""
    folder = Path(tempfile.mkdtemp(prefix="vibemq-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def data_dir(place: Path, provider: str) -> Path:
    return furnished(place / "data", provider, SMALL[provider])


def furnished(folder: Path, provider: str, settings: dict[str, int]) -> Path:
    store = opened(folder, provider, settings)
    now = 1_000
    rows = Rows.of([pack_row(f"m{n}", b"%d" % n) for n in range(MESSAGES)])
    store.append([QueueCreated(1, "orders", QueueOptions(), now, "ab" * 16), GroupCreated(1, 0, "", True, 1)])
    store.append([MessagesAdded(1, 1, now, rows)])
    store.sync()
    store.close()
    return folder


def opened(folder: Path, provider: str, settings: dict[str, int] | None = None) -> IStorageProvider:
    plugin = plugins.find("storage", provider)
    store: IStorageProvider = plugin.create(
        folder, plugin.settings(**SMALL[provider] if settings is None else settings)
    )
    store.open()
    return store


def kill_a_broker(folder: Path, provider: str, settings: dict[str, int] | None = None) -> None:
    def life() -> None:
        store = opened(folder, provider, settings)
        rows = Rows.of([pack_row(f"n{n}", b"x" * 100) for n in range(MESSAGES)])
        store.append([MessagesAdded(1, MESSAGES + 1, 1, rows)])
        store.sync()
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(ChildDied) as died:
        in_fork(life)
    assert died.value.code == -signal.SIGKILL
    if provider == "lmdb":
        # Its checkpointer ends by itself, and changes nothing after that.
        wait_for_writer(folder / "store", wait_s=30)


def photo(folder: Path) -> dict[str, tuple[int, int, int, str]]:
    """Of every file and folder: mode, size, time of the last change, content."""
    found: dict[str, tuple[int, int, int, str]] = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        facts = path.stat()
        content = f"{zlib.crc32(path.read_bytes()):08x}" if path.is_file() else ""
        changed = facts.st_mtime_ns if path.is_file() else 0
        found[str(path.relative_to(folder))] = (facts.st_mode, facts.st_size if content else 0, changed, content)
    return found


LOOKS = [("check",), ("repair", "--dry-run"), ("compact", "--dry-run")]


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.parametrize("left", ["by a stop", "by a kill", "by a copy without its lock"])
def test_a_look_changes_nothing(admin: Run, data_dir: Path, provider: str, left: str, words: tuple[str, ...]) -> None:
    if left == "by a kill":
        kill_a_broker(data_dir, provider)
    if left == "by a copy without its lock":
        (data_dir / "lock").unlink()
        (data_dir / "store.json").chmod(0o644)
    before = photo(data_dir)
    assert admin(*words, "--data-dir", data_dir)[0] == 0
    assert photo(data_dir) == before


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_look_at_damage_changes_nothing(admin: Run, data_dir: Path, provider: str, words: tuple[str, ...]) -> None:
    kill_a_broker(data_dir, provider)
    path = data_dir / ("vibemq.sqlite" if provider == "sqlite" else "store/data.mdb")
    content = bytearray(path.read_bytes())
    content[content.rindex(b"m250")] ^= 0xFF
    path.write_bytes(content)
    before = photo(data_dir)
    code, found = admin(*words, "--data-dir", data_dir)
    if words[0] != "compact":
        assert len(found["problems"]) == 1
    assert code == (1 if words == ("check",) else 0)
    assert photo(data_dir) == before


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
@pytest.mark.parametrize("at", [4, 40])
def test_a_log_in_which_nothing_can_be_read_stays_for_a_repair(
    admin: Run, data_dir: Path, provider: str, at: int
) -> None:
    kill_a_broker(data_dir, provider)
    log = data_dir / "vibemq.sqlite-wal"
    content = bytearray(log.read_bytes())
    content[at] ^= 0xFF
    log.write_bytes(content)
    before = photo(data_dir)
    code, found = admin("check", "--data-dir", data_dir)
    assert (code, len(found["problems"])) == (1, 1)
    assert photo(data_dir) == before


def test_a_look_counts_what_a_killed_broker_left(admin: Run, place: Path, provider: str) -> None:
    data_dir = furnished(place / "as always", provider, {})
    kill_a_broker(data_dir, provider, {})
    _, would = admin("compact", "--data-dir", data_dir, "--dry-run")
    _, done = admin("compact", "--data-dir", data_dir)
    assert would["unapplied_bytes"] > 0
    assert would["freed_bytes"] <= done["freed_bytes"] + (1 << 20)
    store = opened(data_dir, provider)
    assert sum(part.rows.count for part in store.read(1, 1, 2 * MESSAGES, 1 << 30)) == 2 * MESSAGES
    store.close()


@pytest.mark.parametrize("provider", ["lmdb"], indirect=True)
@pytest.mark.parametrize("cut", [4096, 1])
def test_a_store_that_is_cut_short_is_looked_at_in_a_copy(admin: Run, data_dir: Path, cut: int) -> None:
    path = data_dir / "store" / "data.mdb"
    os.truncate(path, path.stat().st_size - cut)
    before = photo(data_dir)
    _, found = admin("check", "--data-dir", data_dir)
    assert photo(data_dir) == before
    assert all(str(path) in problem["what"] for problem in found["problems"])


@pytest.mark.parametrize("why", ["STORAGE_LOCKED", "STORE_VERSION", "STORAGE_DAMAGED"])
def test_a_dry_run_of_backup_is_refused_as_the_backup_is(
    admin: Run, data_dir: Path, place: Path, provider: str, why: str
) -> None:
    if why == "STORE_VERSION":
        info = json.loads((data_dir / "store.json").read_text())
        (data_dir / "store.json").write_text(json.dumps(info | {"version": 1_000}))
    if why == "STORAGE_DAMAGED":
        (data_dir / ("vibemq.sqlite" if provider == "sqlite" else "store/data.mdb")).write_bytes(b"no store" * 4_096)
    with closing(opened(data_dir, provider)) if why == "STORAGE_LOCKED" else nullcontext():
        tried = [admin("backup", place / "backup", "--data-dir", data_dir, *more) for more in (["--dry-run"], [])]
    assert [(code, answer["error"]["code"]) for code, answer in tried] == [(1, why)] * 2
    assert not (place / "backup").exists()


@pytest.mark.parametrize("left", ["by a stop", "by a kill", "by a copy without its lock"])
def test_a_dry_run_of_backup_changes_nothing(admin: Run, data_dir: Path, place: Path, provider: str, left: str) -> None:
    if left == "by a kill":
        kill_a_broker(data_dir, provider)
    if left == "by a copy without its lock":
        (data_dir / "lock").unlink()
    before = photo(place)
    code, would = admin("backup", place / "backup", "--data-dir", data_dir, "--dry-run")
    assert (code, would["dry_run"]) == (0, True)
    assert photo(place) == before


@contextmanager
def somebody_looking(folder: Path) -> Iterator[None]:
    """Another process that looks at the directory while the block runs."""
    words = [sys.executable, "-c", LOOKING, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stdout.readline() == "looking\n"
        yield
        child.stdin.close()
    assert child.returncode == 0


def test_two_can_look_at_once_and_a_broker_is_not_told_of_the_one_that_was_killed(
    admin: Run, data_dir: Path, provider: str
) -> None:
    kill_a_broker(data_dir, provider)
    killed = json.loads((data_dir / "owner.json").read_text())["pid"]
    before = photo(data_dir)
    with somebody_looking(data_dir):
        assert admin("check", "--data-dir", data_dir)[0] == 0
        with pytest.raises(StorageLocked, match="only reads it") as refused:
            opened(data_dir, provider)
        assert f"process {killed}" not in str(refused.value)
    assert photo(data_dir) == before


def test_a_dry_run_of_restore_changes_neither_the_backup_nor_the_directory(
    admin: Run, data_dir: Path, place: Path
) -> None:
    assert admin("backup", place / "backup", "--data-dir", data_dir)[0] == 0
    before = photo(place)
    code, would = admin("restore", place / "backup", "--data-dir", data_dir, "--dry-run")
    assert (code, would["dry_run"]) == (0, True)
    assert photo(place) == before


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
@pytest.mark.parametrize("left", ["by a stop", "by a kill", "by a copy without its lock"])
def test_a_directory_that_cannot_be_written_can_be_looked_at(
    admin: Run, data_dir: Path, provider: str, left: str, words: tuple[str, ...]
) -> None:
    if left == "by a kill":
        kill_a_broker(data_dir, provider)
    if left == "by a copy without its lock":
        (data_dir / "lock").unlink()
    assert admin(*words, "--data-dir", data_dir)[0] == 0, "whatever the verb imports is imported now"
    with unwritable(data_dir):
        code, _ = admin(*words, "--data-dir", data_dir)
    assert code == 0


@pytest.mark.parametrize("left", ["by a stop", "by a kill"])
def test_a_resumed_import_into_a_directory_that_cannot_be_written_can_be_tried(
    admin: Run, data_dir: Path, place: Path, provider: str, left: str
) -> None:
    file = place / "dotnet.db"
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(DOTNET)
    file.chmod(0o644)
    words = ("import", file, "--data-dir", data_dir, "--resume")
    assert admin(*words)[1]["messages"] == 1
    if left == "by a kill":
        kill_a_broker(data_dir, provider)
    assert admin(*words, "--dry-run")[1]["skipped"] == 1
    with unwritable(data_dir):
        code, would = admin(*words, "--dry-run")
    assert (code, would["messages"], would["skipped"]) == (0, 0, 1)


@contextmanager
def modes_count() -> Iterator[None]:
    """While the block runs the modes of files count for this thread too, whoever runs it. Another user would not do:
    it may not even be able to read the code."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    before = ctypes.create_string_buffer(24)
    assert libc.capget(header, before) == 0
    sets = list(struct.unpack("6I", before.raw))
    sets[0] &= ~OVERRIDE_OF_MODES
    assert libc.capset(header, struct.pack("6I", *sets)) == 0
    try:
        yield
    finally:
        assert libc.capset(header, before.raw) == 0


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """While the block runs nobody may write there, and we are somebody for whom that counts."""
    for path in folder.rglob("*"):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    try:
        with modes_count():
            with pytest.raises(PermissionError):
                (folder / "new").touch()
            yield
    finally:
        folder.chmod(0o755)
        for path in folder.rglob("*"):
            path.chmod(0o755)
