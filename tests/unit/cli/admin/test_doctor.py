"""Each check of the doctor, with facts of our choosing."""

import errno
import fcntl
import json
import time
from pathlib import Path

import pytest

from vibemq.cli.admin.doctor import broker, disk, machine
from vibemq.cli.admin.doctor.finding import Finding, Level
from vibemq.cli.output import instant_text

MOUNTS = (
    "22 1 8:1 / / rw - ext4 /dev/sda1 rw",
    "23 22 0:21 / /tmp rw - tmpfs tmpfs rw",
    "24 22 0:22 / /net\\040share rw - nfs4 host:/x rw",
    "25 22 0:23 / /layer rw - overlay overlay rw",
)


def assert_mendable(finding: Finding, level: Level) -> None:
    assert finding.level is level
    assert bool(finding.remedy) is (level is not Level.OK)


@pytest.mark.parametrize(
    ("version", "level"), [(("3", "10", "9"), Level.FAIL), (("3", "11", "0"), Level.OK), (("3", "14", "1"), Level.OK)]
)
def test_python(version: tuple[str, str, str], level: Level) -> None:
    assert_mendable(machine.python(version), level)


@pytest.mark.parametrize(
    ("built_with", "prefix", "level"),
    [
        ("'--enable-optimizations' '--enable-shared' -O3", "/usr/local", Level.OK),
        ("'--prefix=/opt/python' -flto -O3", "/opt/python", Level.OK),
        ("'--enable-shared' '--prefix=/usr' -O2", "/usr", Level.OK),
        ("", "C:\\Python312", Level.OK),
        ("'--enable-shared' -O3", "/home/a/.pyenv/versions/3.12.1", Level.WARN),
        ("'--with-pydebug' '--enable-optimizations'", "/usr", Level.WARN),
    ],
)
def test_how_python_was_built(built_with: str, prefix: str, level: Level) -> None:
    assert_mendable(machine.python_build(built_with, prefix), level)


def test_how_this_python_was_built_is_known() -> None:
    """Every CPython on Linux tells its flags."""
    assert machine.python_build().text != "how it was built is not known"


def test_packages() -> None:
    assert_mendable(machine.lmdb_library((0, 9, 10)), Level.WARN)
    assert_mendable(machine.lmdb_library((0, 9, 33)), Level.OK)
    assert_mendable(machine.speed_packages(uvloop=False), Level.WARN)
    assert_mendable(machine.speed_packages(uvloop=True), Level.OK)


def test_open_files() -> None:
    assert_mendable(machine.open_files(1024), Level.WARN)
    assert_mendable(machine.open_files(65_536), Level.OK)
    assert_mendable(machine.open_files(-1), Level.OK)


def test_clock() -> None:
    assert_mendable(machine.clock(now=1_000.0, state=0), Level.FAIL)
    assert_mendable(machine.clock(now=1_800_000_000.0, state=5), Level.WARN)
    assert_mendable(machine.clock(now=1_800_000_000.0, state=0), Level.OK)
    assert_mendable(machine.clock(now=1_800_000_000.0, state=-1), Level.OK)
    assert machine.clock(now=1_800_000_000.0, state=0).text == instant_text(1_800_000_000_000)


def test_the_kernel_can_be_asked_about_its_clock() -> None:
    assert -1 <= machine.kernel_clock_state() <= 5


@pytest.mark.parametrize(
    ("folder", "level"),
    [("/tmp", Level.WARN), ("/net share", Level.FAIL), ("/layer", Level.WARN), ("/", Level.OK)],
)
def test_file_system(folder: str, level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "existing", lambda path: path)
    assert_mendable(disk.file_system(Path(folder), "\n".join(MOUNTS).encode()), level)


def test_free_space_and_inodes(tmp_path: Path) -> None:
    gib = 1 << 30
    assert_mendable(disk.free_space(tmp_path, (100 * gib, gib // 8)), Level.FAIL)
    assert_mendable(disk.free_space(tmp_path, (100 * gib, 5 * gib)), Level.WARN)
    assert_mendable(disk.free_space(tmp_path, (100 * gib, 50 * gib)), Level.OK)
    assert_mendable(disk.inodes(tmp_path, 10), Level.WARN)
    assert_mendable(disk.inodes(tmp_path, 1_000_000), Level.OK)


def test_flush(tmp_path: Path) -> None:
    assert_mendable(disk.flush(tmp_path, [40.0, 50.0, 60.0]), Level.WARN)
    assert_mendable(disk.flush(tmp_path, [0.001, 0.001, 0.002]), Level.WARN)
    assert_mendable(disk.flush(tmp_path, [0.4, 0.5, 9.0]), Level.OK)


def test_flush_is_measured_and_leaves_nothing_behind(tmp_path: Path) -> None:
    assert "fdatasync takes" in disk.flush(tmp_path).text
    assert list(tmp_path.iterdir()) == []


def test_access_to_a_folder_that_is_to_be_made(tmp_path: Path) -> None:
    finding = disk.access(tmp_path / "a" / "b")
    assert finding.level is Level.OK
    assert "would be created" in finding.text


def test_no_remedy_changes_the_owner_of_a_folder_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs it as root in / or with a folder in /var/lib would break the machine."""
    monkeypatch.setattr("os.access", lambda *arguments: False)
    missing = disk.access(tmp_path / "a b")
    assert_mendable(missing, Level.FAIL)
    assert missing.text.startswith(f"{tmp_path}, of user ")
    assert missing.remedy == f"as root: install --directory --owner=USER --mode=0750 '{tmp_path}/a b'"
    there = disk.access(tmp_path)
    assert_mendable(there, Level.FAIL)
    assert there.remedy.startswith("run the doctor as the user of the broker")
    assert "chown" not in missing.remedy + there.remedy


def test_without_a_data_directory_the_current_one_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> list[float]:
        raise PermissionError(errno.EACCES, "Permission denied", str(folder))

    monkeypatch.setattr("os.access", lambda *arguments: False)
    monkeypatch.setattr(disk, "fsync_latencies_ms", refuse)
    for found in (disk.access(Path(), named=False), disk.flush(Path(), named=False)):
        assert_mendable(found, Level.WARN)
        assert "--data-dir" in found.remedy
    assert disk.flush(Path()).level is Level.FAIL


def test_owner(tmp_path: Path) -> None:
    assert "not in use" in broker.owner(tmp_path).text
    (tmp_path / "lock").touch()
    owner = {"pid": 17, "host": "here", "since": time.strftime("%Y-%m-%dT%H:%M:%SZ")}
    (tmp_path / "owner.json").write_text(json.dumps(owner))
    assert "not in use" in broker.owner(tmp_path).text
    with (tmp_path / "lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "in use by process 17 on host here" in broker.owner(tmp_path).text


def test_what_belongs_to_somebody_else_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, *arguments: object) -> object:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(Path, "exists", refuse)
    assert broker.owner(tmp_path).level is Level.FAIL
    assert "Permission denied" in broker.owner(tmp_path).text
    assert disk.existing(tmp_path / "a" / "b") == tmp_path


def test_a_broker_that_is_not_there_is_a_failure_only_when_it_was_asked_for() -> None:
    url = "vibemq://127.0.0.1:1"
    assert_mendable(broker.broker(url, 1.0, asked_for=True)[0], Level.FAIL)
    assert_mendable(broker.broker(url, 1.0, asked_for=False)[0], Level.WARN)
