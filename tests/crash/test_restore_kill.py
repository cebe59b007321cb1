"""`vibemq-admin restore` is killed at each of its steps: the old data or the new are there, never an empty store."""

import itertools
import os
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.crash.killed_step import killed_at
from vibemq import plugins
from vibemq.cli.admin import main
from vibemq.cli.entry import run_app
from vibemq.errors import StorageError
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.local import fill, lock, replace
from vibemq.storage.local.lock import DirectoryLock

STEPS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.chmod", "vibemq.exchange", "shutil.copyfile")
"""What changes names, and the copying of each file. Opening for writing is left out: what it makes is in the copy."""


def opened(folder: Path) -> IStorageProvider:
    plugin = plugins.find("storage", "sqlite")
    store: IStorageProvider = plugin.create(folder, plugin.settings())
    return store


def make(folder: Path, message_id: str) -> None:
    store = opened(folder)
    store.open()
    rows = Rows.of([pack_row(message_id, b"1")])
    queue = QueueCreated(1, message_id, QueueOptions(), 1, "ab" * 16)
    store.append([queue, GroupCreated(1, 0, "", True, 1), MessagesAdded(1, 1, 1, rows)])
    store.sync()
    store.close()


def content(folder: Path) -> str:
    """The queue that tells one store from the other; "" for an empty store."""
    store = opened(folder)
    state = store.open()
    try:
        assert list(store.check()) == []
        return "".join(queue.name for queue in state.queues.values())
    finally:
        store.close()


def restore(source: Path, data_dir: Path) -> int:
    return run_app(main.app, "vibemq-admin", ["restore", str(source), "--data-dir", str(data_dir), "--yes", "--json"])


def killed(step: int, source: Path, data_dir: Path, *, exchange: bool, fails: bool = False) -> bool:
    """Whether there was such a step; if not, the restore must have failed or succeeded."""

    def work() -> int:
        if not exchange:
            replace._EXCHANGE = 1 << 20  # The kernel answers EINVAL, as a file system that cannot do it.
        return 0 if bool(restore(source, data_dir)) is fails else 1

    return killed_at(step, STEPS, work)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    make(folder / "old", "old")
    make(folder / "new", "new")
    return folder


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "two renames"])
@pytest.mark.parametrize("before", ["old", "empty", "nothing"])
@pytest.mark.long_where(before=["empty", "nothing"])
def test_a_kill_at_any_step_leaves_one_of_the_two(stores: Path, tmp_path: Path, before: str, exchange: bool) -> None:
    step, outcomes = 1, set[str]()
    while True:
        place = tmp_path / str(step)
        place.mkdir()
        data = place / "data"
        if before == "old":
            shutil.copytree(stores / "old", data)
        elif before == "empty":
            data.mkdir()
        if not killed(step, stores / "new", data, exchange=exchange):
            break
        outcomes.add(_after_the_kill(data, before))
        # And the operator's next try goes through, whatever was left.
        assert restore(stores / "new", data) == 0
        assert content(data) == "new"
        if before == "old":
            kept = [path for path in place.iterdir() if path.name.startswith("data.before-restore")]
            assert "old" in {content(path) for path in kept}, f"step {step}: the old data are gone"
        assert not (place / "data.restoring").exists()
        shutil.rmtree(place)
        step += 1
    assert step > 5
    assert outcomes >= ({"old", "new"} if before == "old" else {"refused"})


@pytest.mark.parametrize("exchange", [True, False], ids=["exchange", "three renames"])
@pytest.mark.parametrize("damaged", [True, False])
@pytest.mark.long_where(exchange=False)
def test_a_kill_of_a_restore_behind_an_interrupted_one_leaves_starts_refused(
    stores: Path, tmp_path: Path, damaged: bool, exchange: bool
) -> None:
    """What the first one has left may be the only copy."""
    backup = shutil.copytree(stores / "new", tmp_path / "backup")
    if damaged:
        store = backup / "vibemq.sqlite"
        store.write_bytes(store.read_bytes()[:-1])
    step, outcomes = 1, set[str]()
    while True:
        place = tmp_path / str(step)
        data = place / "data"
        shutil.copytree(stores / "old", place / "data.restoring")
        if not killed(step, backup, data, exchange=exchange, fails=damaged):
            break
        kept = [path for path in place.iterdir() if path != data and (path / "store.json").exists()]
        assert "old" in [content(path) for path in kept if not (path / replace.UNFINISHED).exists()]
        outcomes.add(_after_the_kill(data, "nothing"))
        step += 1
    assert step > 5
    assert outcomes <= {"refused", "new"}


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each folder named `data` counts as a mount point."""
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "data")


@pytest.mark.usefixtures("mounted")
def test_a_kill_while_a_mounted_directory_is_filled_leaves_none_that_a_broker_takes_for_empty(
    stores: Path, tmp_path: Path
) -> None:
    step, outcomes = 1, set[str]()
    while True:
        data = tmp_path / str(step) / "data"
        (data / "lost+found").mkdir(parents=True)
        if not killed(step, stores / "new", data, exchange=True):
            break
        outcomes.add(outcome := _after_the_kill(data, "empty"))
        if not outcome:
            shutil.rmtree(data)
            (data / "lost+found").mkdir(parents=True)
        if outcome != "new":
            assert restore(stores / "new", data) == 0
            # The last steps of the restore that was killed may leave an empty folder, which nobody minds.
            assert not (data / fill.FOLDER_NAME).exists()
        assert content(data) == "new"
        assert {path.name for path in data.parent.iterdir()} == {"data"}
        shutil.rmtree(data.parent)
        step += 1
    assert step > 5
    assert outcomes == {"refused", "new", ""}


@pytest.mark.usefixtures("mounted")
@pytest.mark.parametrize("name", ["restoring", fill.FOLDER_NAME])
def test_folders_of_the_names_that_a_restore_uses_are_somebodys_content(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """A store in the data directory under such a name, as a user may restore it there, is neither taken for an
    unfinished restore nor removed by the next one."""
    data = tmp_path / "data"
    data.mkdir()
    assert restore(stores / "new", data / name) == 0
    assert content(data / name) == "new"
    assert restore(stores / "old", data) != 0
    assert "NOT_EMPTY" in capsys.readouterr().err
    assert content(data / name) == "new"
    assert content(data) == "", "a broker starts beside it"


@pytest.mark.usefixtures("mounted")
def test_a_link_of_the_name_that_a_restore_uses_is_not_followed(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
    for folder in (data, elsewhere):
        folder.mkdir()
    for name in ("", "unfinished"):
        if name:
            (elsewhere / name).write_text("")
        (elsewhere / "precious").write_text("mine")
        (data / fill.FOLDER_NAME).symlink_to(elsewhere)
        assert restore(stores / "new", data) != 0
        assert "NOT_EMPTY" in capsys.readouterr().err
        assert (elsewhere / "precious").read_text() == "mine"
        (data / fill.FOLDER_NAME).unlink()


@pytest.mark.usefixtures("mounted")
def test_what_file_systems_and_restores_leave_in_a_folder_is_no_part_of_a_backup(stores: Path, tmp_path: Path) -> None:
    """Each of a backup's own files is restored, whatever its name."""
    backup, data = tmp_path / "backup", tmp_path / "data"
    shutil.copytree(stores / "new", backup)
    for folder, name in ((backup, "lost+found"), (backup, fill.FOLDER_NAME), (data, "lost+found")):
        (folder / name).mkdir(parents=True)
        (folder / name / "#1").write_text(folder.name)
    for name in ("unfinished", "moved-up", "copy"):
        (backup / name).write_text("")
    assert restore(backup, data) == 0
    assert content(data) == "new"
    assert (data / "lost+found" / "#1").read_text() == "data"
    assert {path.name for path in data.iterdir()} >= {"unfinished", "moved-up", "copy"}
    assert not (data / fill.FOLDER_NAME).exists()


@pytest.mark.parametrize("name", [".", "..", "", "../neighbour"])
def test_nothing_outside_of_the_directory_is_removed_whatever_its_notes_name(tmp_path: Path, name: str) -> None:
    data, neighbour = tmp_path / "data", tmp_path / "neighbour"
    for folder in (data / fill.FOLDER_NAME, neighbour):
        folder.mkdir(parents=True)
    (data / fill.FOLDER_NAME / "unfinished").write_text("")
    (data / fill.FOLDER_NAME / "moved-up").write_bytes(name.encode() + b"\0")
    (data / "mine").write_text("")
    place = fill.FillInPlace(data)
    place.begin()
    place.discard()
    assert neighbour.exists()
    assert {path.name for path in data.iterdir()} == {fill.FOLDER_NAME, "mine"}


@pytest.mark.parametrize("before", ["old", "empty"])
def test_of_a_link_the_folder_behind_it_is_replaced(stores: Path, tmp_path: Path, before: str) -> None:
    disk, link = tmp_path / "disk", tmp_path / "data"
    disk.mkdir()
    if before == "old":
        shutil.copytree(stores / "old", disk / "store")
    else:
        (disk / "store").mkdir()
    link.symlink_to(disk / "store")
    assert restore(stores / "new", link) == 0
    assert link.is_symlink()
    assert content(link) == "new"
    kept = [path for path in disk.iterdir() if path.name != "store"]
    assert [content(path) for path in kept] == (["old"] if before == "old" else [])
    assert {path.name for path in tmp_path.iterdir()} == {"disk", "data"}


@pytest.mark.usefixtures("mounted")
def test_a_restore_that_fails_after_an_interrupted_one_leaves_starts_refused_in_a_mounted_directory(
    stores: Path, tmp_path: Path
) -> None:
    data, _ = _killed_after_the_first_move(stores / "new", tmp_path)
    damaged = shutil.copytree(stores / "new", tmp_path / "damaged")
    (damaged / "vibemq.sqlite").write_bytes(b"no store")
    for _ in range(2):
        assert restore(damaged, data) != 0
        assert _after_the_kill(data, "empty") == "refused"
    assert restore(stores / "new", data) == 0
    assert content(data) == "new"


@pytest.mark.usefixtures("mounted")
def test_what_was_added_after_an_interrupted_restore_stays(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, moved = _killed_after_the_first_move(stores / "new", tmp_path)
    (data / "notes.txt").write_text("mine")
    assert restore(stores / "new", data) != 0
    assert "NOT_EMPTY" in capsys.readouterr().err
    assert {path.name for path in data.iterdir()} == {"notes.txt", fill.FOLDER_NAME, *moved}
    (data / "notes.txt").unlink()
    assert restore(stores / "new", data) == 0
    assert content(data) == "new"


def _killed_after_the_first_move(source: Path, tmp_path: Path) -> tuple[Path, list[str]]:
    """The data directory, and what the restore has moved up in it by then."""
    for step in itertools.count(1):
        data = tmp_path / str(step) / "data"
        data.mkdir(parents=True)
        assert killed_at(step, ["os.rename"], partial(restore, source, data))
        if moved := [path.name for path in data.iterdir() if path.name != fill.FOLDER_NAME]:
            return data, moved
    raise AssertionError("unreachable")


@pytest.mark.usefixtures("mounted")
def test_of_two_restores_into_one_mounted_directory_the_second_is_refused(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    first = fill.FillInPlace(data)
    copy = first.begin()
    (copy / "of the first").write_text("")
    assert restore(stores / "new", data) != 0
    assert "another restore" in capsys.readouterr().err
    assert (copy / "of the first").exists()
    first.discard()
    assert restore(stores / "new", data) == 0
    assert content(data) == "new"


@pytest.mark.parametrize("before", ["nothing", "empty"])
def test_of_two_restores_into_one_directory_the_second_is_refused(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str
) -> None:
    data = tmp_path / "data"
    if before == "empty":
        data.mkdir()
    first = replace.Replacement(data, tmp_path / "aside")
    copy = first.begin()
    (copy / "of the first").write_text("")
    assert restore(stores / "new", data) != 0
    assert "another restore" in capsys.readouterr().err
    assert (copy / "of the first").exists()
    first.discard()
    assert restore(stores / "new", data) == 0
    assert content(data) == "new"
    assert not copy.exists()


def test_what_has_come_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    place = fill.FillInPlace(tmp_path)
    copy = place.begin()
    for folder in (copy, tmp_path):
        (folder / "store.json").write_text(folder.name)
    with pytest.raises(StorageError, match="look what it is"):
        place.finish()
    place.discard()
    assert (tmp_path / "store.json").read_text() == tmp_path.name
    assert [path.name for path in tmp_path.iterdir()] == ["store.json"]


@pytest.mark.usefixtures("mounted")
def test_a_broker_that_has_begun_before_the_restore_keeps_its_directory(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds the lock, and has made nothing else, when the restore makes its mark."""
    data = tmp_path / "data"
    data.mkdir()
    owner = DirectoryLock(data)
    begin = fill.FillInPlace.begin

    def locked_meanwhile(place: fill.FillInPlace) -> Path:
        owner.acquire()
        return begin(place)

    monkeypatch.setattr(fill.FillInPlace, "begin", locked_meanwhile)
    try:
        assert restore(stores / "new", data) != 0
        assert "a broker has begun to use" in capsys.readouterr().err
        assert {path.name for path in data.iterdir()} == {"lock", "owner.json"}
    finally:
        owner.release()


def test_a_broker_that_comes_while_a_directory_is_filled_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it has looked for a restore before there was one."""
    place = fill.FillInPlace(tmp_path)
    made = lock.make_folder

    def filled_meanwhile(folder: Path) -> None:
        made(folder)
        place.begin()

    monkeypatch.setattr(lock, "make_folder", filled_meanwhile)
    owner = DirectoryLock(tmp_path)
    with pytest.raises(StorageError, match="under way"):
        owner.acquire()
    assert not owner.held
    assert not lock.is_owned(tmp_path)
    place.discard()


@pytest.mark.usefixtures("mounted")
def test_a_mounted_directory_that_is_not_empty_stays_as_it_is(
    stores: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stores / "old", data)
    for more in ((), ("--dry-run",)):
        words = ["restore", str(stores / "new"), "--data-dir", str(data), "--yes", *more]
        assert run_app(main.app, "vibemq-admin", words) != 0
        refused = capsys.readouterr().err
        assert "NOT_EMPTY" in refused
        assert "is a mount point" in refused
    assert content(data) == "old"
    inner = data / "restored"
    assert restore(stores / "new", inner) == 0
    assert content(inner) == "new"


def test_mount_points_are_known_by_the_table_of_mounts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also those of another part of the same file system, which the device number does not tell."""
    monkeypatch.setattr(os.path, "ismount", lambda path: False)
    assert fill.must_be_filled(Path("/proc"))
    assert not fill.must_be_filled(tmp_path)


def _after_the_kill(data: Path, before: str) -> str:
    """What a broker that is started now makes of it."""
    if before == "old":
        found = content(data)
        assert found in ("old", "new")
        return found
    try:
        # A place that no step of the restore has touched yet is an empty place.
        return content(data)
    except StorageError as error:
        return "refused" if "restore" in str(error) else str(error)


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
def test_nobody_else_may_read_the_messages(tmp_path: Path, provider: str) -> None:
    """Made, found with wider modes, backed up and restored."""
    data, backup, restored = tmp_path / "data", tmp_path / "backup", tmp_path / "restored"
    plugin = plugins.find("storage", provider)
    before = os.umask(0o022)
    try:
        store = plugin.create(data, plugin.settings())
        store.open()
        store.sync()
        _only_the_owner(data)
        store.backup(backup)
        store.close()
        for path in (data, *data.rglob("*")):
            path.chmod(0o755)
        store.open()
        store.maintain()
        _only_the_owner(data)
        store.close()
        assert restore(backup, restored) == 0
    finally:
        os.umask(before)
    _only_the_owner(backup)
    _only_the_owner(restored)


def _only_the_owner(folder: Path) -> None:
    modes: dict[str, str] = {
        str(path): oct(path.stat().st_mode & 0o777)
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    }
    assert modes == {}
