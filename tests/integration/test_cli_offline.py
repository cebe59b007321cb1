"""The offline verbs on real stores of both durable providers."""

import fcntl
import json
import os
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from vibemq import plugins
from vibemq.cli.admin import main
from vibemq.cli.entry import run_app
from vibemq.errors import RestoreUnfinished, StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadFacts, DeadLettered, Dropped, GroupCreated, MessagesAdded, QueueCreated, Reason
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.local.ballast import BALLAST_FILE, START_FILE
from vibemq.storage.local.mounts import file_system_of
from vibemq.storage.local.replace import UNFINISHED, Replacement
from vibemq.storage.local.store_file import StoreInfo, write_store_info

MESSAGES = 1_000
Run = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def admin(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `vibemq-admin … --json`; (exit code, the object on stdout or else on stderr, stderr)."""

    def run(*words: object) -> tuple[int, Any, str]:
        code = run_app(main.app, "vibemq-admin", [*map(str, words), "--json"])
        captured = capsys.readouterr()
        text = captured.out or captured.err
        return code, json.loads(text) if text else None, captured.err

    return run


def opened(folder: Path, provider: str) -> IStorageProvider:
    plugin = plugins.find("storage", provider)
    store: IStorageProvider = plugin.create(folder, plugin.settings())
    store.open()
    return store


@pytest.fixture(params=["lmdb", "sqlite"])
def provider(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def data_dir(tmp_path: Path, provider: str) -> Path:
    folder = tmp_path / "data"
    store = opened(folder, provider)
    now = int(time.time() * 1000)
    rows = Rows.of([pack_row(f"m{n}", b"%d" % n) for n in range(MESSAGES)])
    queue = QueueCreated(1, "orders", QueueOptions(), now, "ab" * 16)
    store.append([queue, GroupCreated(1, 0, "", True, 1), MessagesAdded(1, 1, now, rows)])
    store.sync()
    store.close()
    return folder


def stored_count(folder: Path, provider: str) -> int:
    store = opened(folder, provider)
    try:
        return sum(part.rows.count for part in store.read(1, 1, MESSAGES, 1 << 30))
    finally:
        store.close()


def damage(folder: Path) -> None:
    """Turn over one byte of the message with the id m500, wherever the provider keeps it (the journal may be one)."""
    damaged = 0
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = bytearray(path.read_bytes())
        at = content.rfind(b"m500")
        if at >= 0:
            content[at] ^= 0xFF
            path.write_bytes(content)
            damaged += 1
    assert damaged, "no file holds the message"


def test_a_sound_store_is_sound(admin: Run, data_dir: Path) -> None:
    assert admin("check", "--data-dir", data_dir) == (0, {"ok": True, "problems": []}, "")


def test_damage_is_named_and_repaired(admin: Run, data_dir: Path) -> None:
    damage(data_dir)
    code, found, _ = admin("check", "--data-dir", data_dir)
    assert code == 1
    assert not found["ok"]
    assert found["problems"][0]["what"]
    code, refused, _ = admin("repair", "--data-dir", data_dir)
    assert code == 2
    assert "--yes" in refused["error"]["message"]
    code, repaired, _ = admin("check", "--data-dir", data_dir, "--repair", "--yes")
    assert code == 0
    assert repaired["repaired"] is True
    assert repaired["not_saved"]
    assert admin("check", "--data-dir", data_dir)[0] == 0


def test_a_store_without_its_file_is_named_and_can_be_repaired(admin: Run, data_dir: Path, provider: str) -> None:
    file = data_dir / {"lmdb": "store/data.mdb", "sqlite": "vibemq.sqlite"}[provider]
    file.unlink()
    with pytest.raises(StorageDamaged, match="file is missing"):
        opened(data_dir, provider)
    code, answer, _ = admin("check", "--data-dir", data_dir)
    assert (code, answer["ok"], "file is missing" in answer["problems"][0]["what"]) == (1, False, True)
    code, answer, _ = admin("repair", "--data-dir", data_dir, "--yes")
    assert (code, answer["repaired"], bool(answer["not_saved"])) == (0, True, True)
    opened(data_dir, provider).close()


@pytest.mark.parametrize("size", [96 << 20, 1 << 20, 0])
def test_the_ballast_keeps_the_size_that_the_broker_gave_it(
    admin: Run, data_dir: Path, provider: str, size: int
) -> None:
    """The broker's settings are not known to an offline command."""
    plugin = plugins.find("storage", provider)
    with closing(plugin.create(data_dir, plugin.settings(ballast_bytes=size))) as store:
        store.open()
    before = ballasts(data_dir)
    assert before.get(BALLAST_FILE, 0) == size
    assert admin("compact", "--data-dir", data_dir)[0] == 0
    assert admin("check", "--data-dir", data_dir)[0] == 0
    assert ballasts(data_dir) == before


def test_what_is_left_of_a_ballast_that_was_given_up_is_kept(admin: Run, data_dir: Path, provider: str) -> None:
    (data_dir / BALLAST_FILE).unlink()
    before = ballasts(data_dir)
    assert admin("compact", "--data-dir", data_dir)[0] == 0
    assert {name: size for name, size in ballasts(data_dir).items() if name != BALLAST_FILE} == before


def ballasts(folder: Path) -> dict[str, int]:
    return {name: (folder / name).stat().st_size for name in (BALLAST_FILE, START_FILE) if (folder / name).exists()}


def test_the_answer_of_a_sound_store(admin: Run, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(main.app, "vibemq-admin", ["repair", "--data-dir", str(data_dir)]) == 0
    assert capsys.readouterr().out == f"{data_dir}: sound; nothing was changed\n"


def test_one_problem_is_not_two(admin: Run, data_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    damage(data_dir)
    found = admin("check", "--data-dir", data_dir)[1]["problems"]
    run_app(main.app, "vibemq-admin", ["check", "--data-dir", str(data_dir)])
    assert f"{len(found)} problem{'' if len(found) == 1 else 's'};" in capsys.readouterr().out


def test_repair_of_a_sound_store_changes_nothing(admin: Run, data_dir: Path, provider: str) -> None:
    store = opened(data_dir, provider)
    facts = [DeadFacts(n, n, Reason.REJECTED, f"no stock of {n}", n, n, 1_000, 2_000) for n in range(1, 6)]
    store.append([DeadLettered(1, 0, facts)])
    store.sync()
    before = store.dead_letters()
    assert [letter.facts for letter in before] == facts
    store.close()
    assert admin("repair", "--data-dir", data_dir) == (0, {"repaired": True, "not_saved": [], "left": []}, "")
    # The repair itself, which the command leaves out where `check` finds nothing.
    plugin = plugins.find("storage", provider)
    assert plugin.repair(data_dir, plugin.settings()) == []
    store = opened(data_dir, provider)
    assert store.dead_letters() == before
    store.close()
    assert stored_count(data_dir, provider) == MESSAGES


def test_a_backup_can_be_restored(admin: Run, data_dir: Path, tmp_path: Path, provider: str) -> None:
    target, place = tmp_path / "backup", tmp_path / "restored"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    assert admin("backup", target, "--data-dir", data_dir)[1]["error"]["code"] == "NOT_EMPTY"
    assert admin("restore", target, "--data-dir", place)[0] == 0
    assert stored_count(place, provider) == MESSAGES

    code, refused, _ = admin("restore", target, "--data-dir", place)
    assert (code, refused["error"]["code"]) == (2, "USAGE")
    code, restored, _ = admin("restore", target, "--data-dir", place, "--yes")
    assert code == 0
    assert stored_count(Path(restored["moved_aside"]), provider) == MESSAGES
    assert stored_count(place, provider) == MESSAGES


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_backup_into_the_data_directory_is_refused(
    admin: Run, data_dir: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    link = tmp_path / "link"
    link.symlink_to(data_dir)
    before = sorted(path.name for path in data_dir.iterdir())
    for target in (data_dir, data_dir / "inner", link / "inner", data_dir / "inner" / "deeper"):
        code, refused, _ = admin("backup", target, "--data-dir", data_dir, *options)
        assert (code, refused["error"]["code"]) == (2, "INVALID_OPTIONS")
        assert refused["error"]["message"].endswith("is in the data directory; choose a folder outside it")
    assert sorted(path.name for path in data_dir.iterdir()) == before


def test_a_dry_run_of_a_backup_tells_the_most_that_it_takes(
    data_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "backup"
    assert run_app(main.app, "vibemq-admin", ["backup", str(target), "--data-dir", str(data_dir), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith(f"{data_dir}: at most ")
    assert not target.exists()


def test_a_backup_is_restored_where_nothing_is_yet(admin: Run, data_dir: Path, tmp_path: Path, provider: str) -> None:
    target, place = tmp_path / "backup", tmp_path / "new" / "disk" / "data"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    assert admin("restore", target, "--data-dir", place, "--dry-run")[0] == 0
    assert not (tmp_path / "new").exists()
    assert admin("restore", target, "--data-dir", place)[0] == 0
    assert stored_count(place, provider) == MESSAGES


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
def test_a_restore_that_cannot_begin_names_a_folder_that_people_know(
    admin: Run, data_dir: Path, tmp_path: Path
) -> None:
    target, file = tmp_path / "backup", tmp_path / "file"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    file.touch()
    for place in (file / "data", Path("/proc/data")):
        code, refused, _ = admin("restore", target, "--data-dir", place)
        assert code != 0
        assert str(place.parent) in refused["error"]["message"]
        assert "restoring" not in refused["error"]["message"]


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
def test_what_an_interrupted_restore_has_left_is_refused_and_then_moved_aside_and_named(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str
) -> None:
    target, place, left = tmp_path / "backup", tmp_path / "place", tmp_path / "place.restoring"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    shutil.copytree(target, left)
    with pytest.raises(RestoreUnfinished, match="was interrupted"):
        opened(place, provider)

    code, restored, _ = admin("restore", target, "--data-dir", place)
    assert (code, restored["moved_aside"], left.exists()) == (0, None, False)
    assert stored_count(Path(restored["earlier_copy"]), provider) == MESSAGES

    shutil.copytree(target, left)
    _, again, _ = admin("restore", target, "--data-dir", place, "--yes")
    names = [restored["earlier_copy"], again["earlier_copy"], again["moved_aside"]]
    assert sorted(set(names)) == sorted(str(path) for path in tmp_path.glob("place.before-restore-*"))
    assert len(set(names)) == 3
    assert admin("restore", target, "--data-dir", place, "--yes")[1]["earlier_copy"] is None


@pytest.mark.parametrize("provider", ["sqlite"], indirect=True)
@pytest.mark.parametrize("complete", [True, False])
def test_a_restore_that_fails_after_an_interrupted_one_leaves_starts_refused(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str, complete: bool
) -> None:
    target, place, left = tmp_path / "backup", tmp_path / "place", tmp_path / "place.restoring"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    shutil.copytree(target, left)
    if not complete:
        (left / UNFINISHED).touch()
    damage(target)
    for _ in range(2):
        assert admin("restore", target, "--data-dir", place)[1]["error"]["code"] == "STORAGE_DAMAGED"
        with pytest.raises(RestoreUnfinished, match="was interrupted"):
            opened(place, provider)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data", "place.restoring"]
    if complete:
        assert stored_count(left, provider) == MESSAGES
    else:
        assert [path.name for path in left.iterdir()] == [UNFINISHED]


def test_a_store_is_not_restored_into_its_own_backup(admin: Run, data_dir: Path) -> None:
    before = sorted(data_dir.rglob("*"))
    for place in (data_dir, data_dir / "in"):
        code, told, _ = admin("restore", data_dir, "--data-dir", place, "--yes")
        assert (code, told["error"]["code"]) == (2, "USAGE")
        assert "is in the backup" in told["error"]["message"]
    assert sorted(data_dir.rglob("*")) == before


def test_a_restore_of_nothing_names_the_backup(admin: Run, tmp_path: Path) -> None:
    code, refused, _ = admin("restore", tmp_path / "nothere", "--data-dir", tmp_path / "data")
    assert (code, refused["error"]["message"]) == (3, f"there is no backup in {tmp_path / 'nothere'}")


def test_a_damaged_backup_is_not_restored(admin: Run, data_dir: Path, tmp_path: Path) -> None:
    target, place = tmp_path / "backup", tmp_path / "restored"
    admin("backup", target, "--data-dir", data_dir)
    damage(target)
    code, refused, _ = admin("restore", target, "--data-dir", place)
    assert (code, refused["error"]["code"]) == (1, "STORAGE_DAMAGED")
    assert ".restoring" not in refused["error"]["message"], "the copy is removed again"
    assert not place.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]


@pytest.mark.parametrize("words", [("--dry-run",), ("--yes",)])
def test_a_directory_in_use_is_not_restored_and_a_dry_run_says_so(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str, words: tuple[str, ...]
) -> None:
    target = tmp_path / "backup"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    store = opened(data_dir, provider)
    try:
        code, refused, _ = admin("restore", target, "--data-dir", data_dir, *words)
    finally:
        store.close()
    assert (code, refused["error"]["code"]) == (1, "STORAGE_LOCKED")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]
    assert admin("restore", target, "--data-dir", data_dir, "--dry-run")[0] == 0


def test_folders_of_a_store_may_be_elsewhere(admin: Run, data_dir: Path, tmp_path: Path) -> None:
    for place in [path for path in data_dir.iterdir() if path.is_dir()]:
        place.symlink_to(place.rename(tmp_path / f"fast-{place.name}"))
    target = tmp_path / "new"
    assert admin("restore", data_dir, "--data-dir", target)[0] == 0
    assert not any(path.is_symlink() for path in target.rglob("*"))
    assert stored_count(target, json.loads((target / "store.json").read_text())["provider"]) == MESSAGES


def test_the_directory_of_a_running_broker_is_no_backup(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str
) -> None:
    """Its files change while they are copied."""
    target = tmp_path / "new"
    store = opened(data_dir, provider)
    try:
        for more in ([], ["--dry-run"]):
            code, answer, _ = admin("restore", data_dir, "--data-dir", target, *more)
            assert (code, answer["error"]["code"]) == (1, "STORAGE_LOCKED")
    finally:
        store.close()
    assert not target.exists()
    assert admin("restore", data_dir, "--data-dir", target)[0] == 0
    assert stored_count(target, provider) == MESSAGES


def test_a_dry_run_of_restore_leaves_a_folder_that_is_no_store_as_it_is(
    admin: Run, data_dir: Path, tmp_path: Path
) -> None:
    target, place = tmp_path / "backup", tmp_path / "notes"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    place.mkdir()
    (place / "text").write_text("mine")
    code, would, _ = admin("restore", target, "--data-dir", place, "--dry-run")
    assert (code, would["dry_run"]) == (0, True)
    assert [path.name for path in place.iterdir()] == ["text"]


def test_a_declined_or_refused_restore_leaves_a_folder_that_is_no_store_as_it_is(
    admin: Run, data_dir: Path, tmp_path: Path
) -> None:
    target, place = tmp_path / "backup", tmp_path / "notes"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    place.mkdir()
    (place / "text").write_text("mine")
    assert admin("restore", target, "--data-dir", place)[0] == 2, "nobody was asked"
    assert [path.name for path in place.iterdir()] == ["text"]
    damage(target)
    assert admin("restore", target, "--data-dir", place, "--yes")[0] == 1
    assert [path.name for path in place.iterdir()] == ["text"]


@pytest.mark.parametrize("running", [True, False])
def test_a_restore_into_an_empty_directory_does_not_replace_what_a_broker_has_made_there_since(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str, running: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, place = tmp_path / "backup", tmp_path / "place"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    started: list[IStorageProvider] = []
    begin = Replacement.begin

    def start_and_begin(replacement: Replacement) -> Path:
        """The moment at which a start in the empty directory is not refused yet."""
        started.append(opened(place, provider))
        if not running:
            started.pop().close()
        return begin(replacement)

    monkeypatch.setattr(Replacement, "begin", start_and_begin)
    code, refused, _ = admin("restore", target, "--data-dir", place)
    assert (code, refused["error"]["code"]) == (1, "STORAGE_LOCKED" if running else "NOT_EMPTY")
    for store in started:
        store.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data", "place"]
    assert stored_count(place, provider) == 0, "the backup is not there"


def test_a_broker_that_starts_while_its_directory_is_replaced_owns_the_new_one(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "backup"
    assert admin("backup", target, "--data-dir", data_dir)[0] == 0
    locked = fcntl.flock

    def restored_first(file: int, operation: int) -> None:
        """The moment between the opening of the lock's file and the lock."""
        monkeypatch.setattr(fcntl, "flock", locked)
        assert admin("restore", target, "--data-dir", data_dir, "--yes")[0] == 0
        locked(file, operation)

    monkeypatch.setattr(fcntl, "flock", restored_first)
    store = opened(data_dir, provider)
    code, refused, _ = admin("restore", target, "--data-dir", data_dir, "--yes")
    owner = json.loads((data_dir / "owner.json").read_text())
    store.close()
    assert (code, refused["error"]["code"], owner["pid"]) == (1, "STORAGE_LOCKED", os.getpid())
    assert stored_count(data_dir, provider) == MESSAGES


def disk_bytes(folder: Path) -> int:
    return sum(512 * path.stat().st_blocks for path in folder.rglob("*") if path.is_file())


def test_a_store_on_a_remote_file_system_is_worked_on(
    admin: Run, data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose broker is allowed to use it; or it is a backup on a share."""
    kind = file_system_of(data_dir).type
    monkeypatch.setattr("vibemq.storage.local.mounts.REMOTE_TYPES", frozenset({kind}))
    assert admin("check", "--data-dir", data_dir)[0] == 0
    assert admin("repair", "--data-dir", data_dir, "--dry-run")[0] == 0
    assert admin("compact", "--data-dir", data_dir)[0] == 0
    assert admin("backup", tmp_path / "backup", "--data-dir", data_dir)[0] == 0
    assert admin("restore", tmp_path / "backup", "--data-dir", tmp_path / "fresh", "--dry-run")[0] == 0
    assert admin("restore", tmp_path / "backup", "--data-dir", tmp_path / "fresh")[0] == 0


def test_compact(admin: Run, data_dir: Path, provider: str) -> None:
    code, would, _ = admin("compact", "--data-dir", data_dir, "--dry-run")
    assert (code, would["dry_run"]) == (0, True)
    assert admin("compact", "--data-dir", data_dir)[0] == 0
    assert stored_count(data_dir, provider) == MESSAGES


@pytest.mark.parametrize("kept", [0, 1_000])
def test_compact_frees_what_its_dry_run_says(admin: Run, data_dir: Path, provider: str, kept: int) -> None:
    store, now = opened(data_dir, provider), int(time.time() * 1000)
    count = 6_000
    first = MESSAGES + 1
    store.append([MessagesAdded(1, first, now, Rows.of([pack_row(f"n{n}", b"x" * 4_000) for n in range(count)]))])
    store.append([Dropped(1, [(first, first + count - kept - 1)], Reason.PURGED)])
    store.sync()
    store.close()

    _, would, _ = admin("compact", "--data-dir", data_dir, "--dry-run")
    before = disk_bytes(data_dir)
    code, done, _ = admin("compact", "--data-dir", data_dir)

    assert code == 0, done
    assert done["freed_bytes"] == before - disk_bytes(data_dir) > 1 << 20
    assert would["freed_bytes"] == pytest.approx(done["freed_bytes"], rel=0.02)
    _, again, _ = admin("compact", "--data-dir", data_dir)
    assert again["freed_bytes"] < 1 << 20, "nothing was left to free"


def test_migrate_shows_the_version(admin: Run, data_dir: Path, provider: str) -> None:
    code, found, _ = admin("migrate", "--data-dir", data_dir)
    assert code == 0
    assert (found["provider"], found["pending"]) == (provider, [])
    assert found["version"] == found["latest"]
    assert admin("migrate", "apply", "--data-dir", data_dir)[1]["applied"] == []
    assert admin("migrate", "apply", "--data-dir", data_dir, "--dry-run")[1] == {**found, "dry_run": True}


def test_a_dry_run_of_migrate_refuses_a_store_without_its_file(admin: Run, data_dir: Path, provider: str) -> None:
    write_store_info(data_dir, StoreInfo(provider, 1, 0))
    would = admin("migrate", "apply", "--data-dir", data_dir, "--dry-run")[1]
    assert would["pending"]
    (data_dir / {"lmdb": "store/data.mdb", "sqlite": "vibemq.sqlite"}[provider]).unlink()
    refused = admin("migrate", "apply", "--data-dir", data_dir, "--dry-run")
    assert refused[1]["error"]["code"] == "STORAGE_DAMAGED"
    assert refused == admin("migrate", "apply", "--data-dir", data_dir, "--yes")
    assert admin("migrate", "status", "--data-dir", data_dir)[1]["pending"] == would["pending"]


def test_a_newer_store_is_refused(admin: Run, data_dir: Path) -> None:
    path = data_dir / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    for verb in ("check", "compact", "migrate"):
        code, refused, _ = admin(verb, "--data-dir", data_dir)
        assert (code, refused["error"]["code"]) == (1, "STORE_VERSION")


@pytest.mark.parametrize("words", [("check",), ("compact",), ("repair", "--yes"), ("backup", "target"), ("migrate",)])
def test_a_directory_in_use_is_left_alone(
    admin: Run, data_dir: Path, provider: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = opened(data_dir, provider)
    try:
        code, answer, _ = admin(*words, "--data-dir", data_dir)
        if words == ("migrate",):
            assert code == 0
        else:
            assert (code, answer["error"]["code"]) == (1, "STORAGE_LOCKED")
    finally:
        store.close()
    assert stored_count(data_dir, provider) == MESSAGES


@pytest.mark.parametrize("place", [".", "audit/.."])
def test_the_directory_may_be_the_current_one(
    admin: Run, data_dir: Path, tmp_path: Path, provider: str, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (data_dir / "audit").mkdir()
    monkeypatch.chdir(data_dir)
    target = tmp_path / "backup"
    assert admin("check", "--data-dir", place)[1] == {"ok": True, "problems": []}
    assert admin("compact", "--data-dir", place)[0] == 0
    assert admin("backup", target, "--data-dir", place)[0] == 0
    assert admin("restore", target, "--data-dir", place, "--dry-run")[0] == 0
    code, restored, _ = admin("restore", target, "--data-dir", place, "--yes")
    assert (code, restored["data_dir"]) == (0, str(data_dir))
    assert Path(restored["moved_aside"]).name.startswith("data.before-restore-")
    assert stored_count(data_dir, provider) == MESSAGES


def test_a_restore_over_everything_is_refused(admin: Run, data_dir: Path) -> None:
    assert admin("restore", data_dir, "--data-dir", "/", "--dry-run")[1]["error"]["code"] == "NOT_EMPTY"


def test_links_that_lead_to_each_other_are_the_systems_error(admin: Run, data_dir: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for words in (("restore", data_dir, "--data-dir", loop), ("backup", loop / "copy", "--data-dir", data_dir)):
        code, refused, _ = admin(*words)
        assert code == 1, words
        assert refused["error"]["code"] in ("SYSTEM", "NOT_A_FOLDER", "SERVER_ERROR")


@pytest.mark.parametrize("verb", [("check",), ("restore", "backup"), ("backup", "target"), ("doctor",)])
def test_a_directory_without_a_name_is_refused(admin: Run, verb: tuple[str, ...]) -> None:
    """What an unset variable of a script leaves of its option."""
    code, refused, _ = admin(*verb, "--data-dir", "")
    assert (code, refused["error"]["code"]) == (2, "CONFIG_INVALID")
    assert refused["error"]["message"].startswith("option --data-dir is not valid: it is empty; name a directory")


@pytest.mark.parametrize("verb", ["check", "compact", "migrate", "repair"])
def test_no_such_directory(admin: Run, tmp_path: Path, verb: str) -> None:
    code, refused, _ = admin(verb, "--data-dir", tmp_path / "gone")
    assert (code, refused["error"]["code"]) == (3, "NOT_FOUND")


def test_a_directory_without_a_store(admin: Run, tmp_path: Path) -> None:
    assert admin("check", "--data-dir", tmp_path)[0] == 3


def test_an_unknown_provider(admin: Run, data_dir: Path) -> None:
    code, refused, _ = admin("check", "--data-dir", data_dir, "--storage", "papyrus")
    assert code == 2
    assert "papyrus" in refused["error"]["message"]


@pytest.fixture
def dotnet_file(tmp_path: Path) -> Path:
    """A database as the .NET broker writes it (docs/spec/native.md, 8.2), with one row that cannot be read."""
    path = tmp_path / "dotnet.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            """
            CREATE TABLE queues (name TEXT PRIMARY KEY, options_json TEXT, created_at TEXT);
            CREATE TABLE messages (id TEXT PRIMARY KEY, queue_name TEXT, payload_json TEXT, timestamp TEXT,
                headers_json TEXT, version INTEGER, priority INTEGER, delivery_attempts INTEGER);
            CREATE TABLE dead_letters (id TEXT PRIMARY KEY, message_id TEXT, message_json TEXT, reason INTEGER,
                failed_at TEXT);
            INSERT INTO queues VALUES ('orders', '{}', '2026-01-02T03:04:05.0000000Z');
            INSERT INTO messages VALUES ('a', 'orders', '{"n":1}', '2026-01-02T03:04:06Z', '{"k":"v"}', 1, 1, 0);
            INSERT INTO messages VALUES ('b', 'orders', '{"n":2}', '2026-01-02T03:04:07Z', NULL, 1, 1, 0);
            INSERT INTO messages VALUES ('c', 'orders', '{"n":3}', '2026-01-02T03:04:08Z', 'no json', 1, 1, 0);
            """
        )
    return path


def test_a_dotnet_file_is_imported(admin: Run, dotnet_file: Path, tmp_path: Path, provider: str) -> None:
    place = tmp_path / "new"
    words = ("import", dotnet_file, "--data-dir", place, "--storage", provider)
    code, would, _ = admin(*words, "--dry-run")
    assert (code, would["queues"], would["messages"], would["dry_run"]) == (6, 1, 2, True)
    assert not place.exists()
    code, told, _ = admin(*words)
    assert (code, told["queues"], told["messages"]) == (6, 1, 2)
    assert [(row["table"], row["key"]) for row in told["bad"]] == [("messages", "c")]
    assert stored_count(place, provider) == 2
    code, refused, _ = admin(*words)
    assert (code, refused["error"]["code"]) == (1, "QUEUE_EXISTS")
    code, again, _ = admin(*words, "--resume")
    assert (again["messages"], again["skipped"]) == (0, 2)


def test_nothing_is_imported_into_a_provider_that_keeps_nothing(
    admin: Run, dotnet_file: Path, data_dir: Path, tmp_path: Path
) -> None:
    new = tmp_path / "new"
    for words in (
        ("import", dotnet_file, "--data-dir", new),
        ("compact", "--data-dir", data_dir),
        ("backup", new, "--data-dir", data_dir),
    ):
        code, refused, _ = admin(*words, "--storage", "memory")
        assert code == 2, words
        assert "the memory provider keeps nothing" in refused["error"]["message"]
    assert not new.exists()


def test_a_dry_run_of_an_import_into_a_store_changes_nothing(admin: Run, dotnet_file: Path, tmp_path: Path) -> None:
    place = tmp_path / "imported"
    assert admin("import", dotnet_file, "--data-dir", place)[0] == 6
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    code, would, _ = admin("import", dotnet_file, "--data-dir", place, "--dry-run", "--resume")
    assert (code, would["skipped"], would["dry_run"]) == (6, 2, True)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == before


def test_what_is_no_dotnet_file_is_refused(admin: Run, data_dir: Path, tmp_path: Path) -> None:
    assert admin("import", tmp_path / "gone", "--data-dir", data_dir)[0] == 3
    (tmp_path / "text").write_text("not a database at all, but long enough to be looked at" * 10)
    for place in (data_dir, tmp_path / "new"):
        code, refused, _ = admin("import", tmp_path / "text", "--data-dir", place)
        assert (code, refused["error"]["code"]) == (2, "CONFIG_INVALID")
    assert not (tmp_path / "new").exists(), "a store was made for a file that is none"


def test_the_doctor_looks_at_a_data_directory(admin: Run, data_dir: Path) -> None:
    code, found, _ = admin("doctor", "--data-dir", data_dir, "--url", "vibemq://127.0.0.1:1")
    assert code == 1
    levels = {check["check"]: check["level"] for check in found["checks"]}
    assert levels["broker"] == "fail"
    assert levels["python"] == levels["access"] == levels["owner"] == "ok"
