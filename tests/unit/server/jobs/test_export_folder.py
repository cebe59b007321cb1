"""The files of exports: what is written where, and what becomes of a disk that does not take it."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vibemq.server.jobs.export_folder import MARKED_BYTES, ExportFolder, ExportLost, ExportName, ExportSize, NoRoom

NAME = ExportName(7, 1_700_000_000_000)
GIB = 1 << 30


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def folder(path: Path, free: int = 100 * GIB, total: int = 200 * GIB) -> ExportFolder:
    return ExportFolder(path / "exports", reserve=lambda: GIB, disk_usage=lambda of: (total, total - free, free))


def test_lines_behind_those_that_count_are_cut_off(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    assert exports.resume(NAME, 0) == 0
    exports.append(NAME, 0, [b"one\ntwo\n"])
    exports.append(NAME, 8, [b"three\nfo"])
    assert exports.resume(NAME, 2) == 8
    exports.append(NAME, 8, [b"drei\n"])
    # Written again in the same place, as after a refusal of the engine.
    exports.append(NAME, 8, [b"tres\n"])
    assert exports.found() == {NAME: ExportSize(13, is_whole=False)}
    exports.finish(NAME)
    assert exports.read(NAME, 4, 100) == b"two\ntres\n"
    assert exports.found() == {NAME: ExportSize(13, is_whole=True)}
    exports.remove(NAME)
    assert exports.found() == {}


def test_lines_that_are_longer_than_a_block_are_counted(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    long = b"x" * (3 << 20) + b"\n"
    exports.append(NAME, 0, [b"short\n" + long + b"last\n"])
    assert exports.resume(NAME, 2) == 6 + len(long)


def test_a_file_that_has_lost_lines_is_not_gone_on_with(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    with pytest.raises(ExportLost):
        exports.resume(NAME, 1)
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [b"one\ntwo\n"])
    with pytest.raises(ExportLost):
        exports.resume(NAME, 3)
    with pytest.raises(ExportLost):
        exports.append(NAME, 9, [b"x\n"])
    assert exports.found() == {NAME: ExportSize(8, is_whole=False)}


@pytest.mark.parametrize(("total", "free", "fits"), [(200, 3, True), (200, 2, False), (8, 2, True), (8, 1.5, False)])
def test_a_fifth_of_the_disk_or_twice_the_reserve_stays_free(
    tmp_path: Path, total: float, free: float, *, fits: bool
) -> None:
    exports = folder(tmp_path, free=int(free * GIB), total=int(total * GIB))
    exports.resume(NAME, 0)
    if fits:
        exports.append(NAME, 0, [b"one\n"])
    else:
        with pytest.raises(NoRoom, match="free"):
            exports.append(NAME, 0, [b"one\n"])
    assert exports.found()[NAME].size_bytes == (4 if fits else 0)


def test_what_the_disk_did_not_take_whole_is_not_there(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [b"one\n"])
    with files_of_at_most(4096), pytest.raises(NoRoom):
        exports.append(NAME, 4, [b"x" * 10_000])
    assert exports.found() == {NAME: ExportSize(4, is_whole=False)}
    exports.append(NAME, 4, [b"two\n"])
    assert exports.resume(NAME, 2) == 8


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    other = tmp_path / "other"
    other.write_bytes(b"precious\n")
    part = exports.path / NAME.part
    part.unlink()
    part.symlink_to(other)
    with pytest.raises(OSError, match="symbolic"):
        exports.append(NAME, 0, [b"one\n"])
    with pytest.raises(OSError, match="symbolic"):
        exports.resume(NAME, 1)
    assert other.read_bytes() == b"precious\n"


def test_only_what_stands_behind_a_mark_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exports, mebibyte = folder(tmp_path), b"x" * ((1 << 20) - 1) + b"\n"
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [mebibyte] * 3)
    exports.mark(NAME, 3, 3 << 20)
    exports.append(NAME, 3 << 20, [b"four\nfive\nsi"])
    read = list[int]()
    pread = os.pread

    def noted(descriptor: int, size: int, offset: int) -> bytes:
        found = pread(descriptor, size, offset)
        read.append(len(found))
        return found

    monkeypatch.setattr(os, "pread", noted)
    assert exports.resume(NAME, 4) == (3 << 20) + 5
    assert sum(read) < 2 * MARKED_BYTES
    # Lines before the mark are found from the start of the file.
    assert exports.resume(NAME, 2) == 2 << 20
    assert exports.found() == {NAME: ExportSize(2 << 20, is_whole=False)}
    assert {stat.S_IMODE(path.stat().st_mode) for path in exports.path.iterdir()} == {0o600}


@pytest.mark.parametrize("harm", ["mark", "file", "shorter", "none"])
def test_a_mark_that_does_not_fit_its_file_is_not_believed(tmp_path: Path, harm: str) -> None:
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [b"one\ntwo\nthree\n"])
    exports.mark(NAME, 2, 8)
    mark, part = exports.path / NAME.mark, exports.path / NAME.part
    if harm == "mark":
        mark.write_bytes(mark.read_bytes().replace(b"2 8", b"2 4"))
    elif harm == "file":
        part.write_bytes(b"o\ne\ntwo\nthree\n")
    elif harm == "shorter":
        part.write_bytes(b"one\nt")
    else:
        mark.write_bytes(b"2 8")
    if harm == "shorter":
        with pytest.raises(ExportLost):
            exports.resume(NAME, 2)
        return
    assert exports.resume(NAME, 2) == (4 if harm == "file" else 8)


def test_a_mark_goes_with_its_file(tmp_path: Path) -> None:
    exports = folder(tmp_path)
    for end in (exports.finish, exports.remove):
        exports.resume(NAME, 0)
        exports.append(NAME, 0, [b"one\n"])
        exports.mark(NAME, 1, 4)
        end(NAME)
        assert not (exports.path / NAME.mark).exists()


@pytest.mark.parametrize("harm", ["folder", "loop", "link", "fifo", "large"])
def test_a_mark_that_cannot_be_read_is_none(tmp_path: Path, harm: str) -> None:
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [b"one\ntwo\nthree\n"])
    exports.mark(NAME, 2, 8)
    mark = exports.path / NAME.mark
    elsewhere = mark.rename(tmp_path / "elsewhere")
    if harm == "folder":
        mark.mkdir()
    elif harm == "loop":
        mark.symlink_to(mark)
    elif harm == "link":
        # A mark of other lines that fits, in a place that is not the broker's.
        elsewhere.write_bytes(elsewhere.read_bytes().replace(b"2 8", b"1 8"))
        mark.symlink_to(elsewhere)
    elif harm == "fifo":
        os.mkfifo(mark)
    else:
        with mark.open("wb") as file:
            file.truncate(1 << 40)
    assert exports.resume(NAME, 2) == 8
    exports.finish(NAME)
    assert exports.found() == {NAME: ExportSize(8, is_whole=True)}
    exports.remove(NAME)
    assert exports.found() == {}
    assert elsewhere.exists()


def test_a_mark_is_deleted_before_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is killed in between leaves a file, which is known and removed later."""
    exports = folder(tmp_path)
    exports.resume(NAME, 0)
    exports.append(NAME, 0, [b"one\n"])
    exports.mark(NAME, 1, 4)
    (exports.path / (NAME.mark + ".new")).touch()
    unlink, gone = Path.unlink, list[str]()

    def noted(path: Path, missing_ok: bool = False) -> None:
        gone.append(path.name)
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", noted)
    exports.remove(NAME)
    assert gone == [NAME.mark, NAME.mark + ".new", NAME.whole, NAME.part]


def test_marks_without_their_file_are_deleted_when_files_are_looked_for(tmp_path: Path) -> None:
    exports, other = folder(tmp_path), ExportName(8, NAME.created_at)
    for name in (NAME, other):
        exports.resume(name, 0)
        exports.append(name, 0, [b"one\n"])
        exports.mark(name, 1, 4)
        (exports.path / (name.mark + ".new")).touch()
    (exports.path / "notes.mark").touch()
    (exports.path / NAME.part).unlink()
    assert exports.found() == {other: ExportSize(4, is_whole=False)}
    kept = {other.part, other.mark, other.mark + ".new", "notes.mark"}
    assert {path.name for path in exports.path.iterdir()} == kept
