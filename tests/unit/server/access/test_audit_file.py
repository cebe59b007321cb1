"""The audit file on a real disk: lines, sizes, modes, positions in both directions."""

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.server.access.audit_file import (
    BLOCK_BYTES,
    LINE_BYTES_MAX,
    AuditFile,
    end_of,
    newest_first,
    numbers_in,
    oldest_first,
)

START = (0, 0)


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"number": number, **more}


def forwards(folder: Path) -> list[int]:
    return [json.loads(line)["number"] for _, line in oldest_first(folder, START)]


def backwards(folder: Path) -> list[int]:
    return [json.loads(line)["number"] for _, line in newest_first(folder, None)]


def test_only_its_owner_may_read_it(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit")
    file.append([record(1)])
    file.close()
    [path] = (tmp_path / "audit").iterdir()
    assert path.name == "audit-000001.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_it_goes_on_in_the_next_file_and_the_oldest_goes(tmp_path: Path) -> None:
    file = AuditFile(tmp_path, file_bytes_max=100, files_max=3)
    for number in range(40):
        file.append([record(number)])
    file.close()
    assert len(numbers_in(tmp_path)) == 3
    kept = forwards(tmp_path)
    assert kept == list(range(kept[0], 40))
    assert kept[0] > 0
    assert backwards(tmp_path) == kept[::-1]
    assert all(path.stat().st_size < 120 for path in tmp_path.iterdir())


def test_it_is_continued_and_a_line_that_a_crash_has_cut_is_left_out(tmp_path: Path) -> None:
    for number in range(2):
        file = AuditFile(tmp_path)
        file.append([record(number)])
        file.close()
    path = tmp_path / "audit-000001.jsonl"
    with path.open("ab") as torn:
        torn.write(b'{"number": 99, "us')
    assert forwards(tmp_path) == [0, 1]
    assert backwards(tmp_path) == [1, 0]
    file = AuditFile(tmp_path)
    file.append([record(2)])
    file.close()
    lines = path.read_bytes().splitlines()
    assert json.loads(lines[-1]) == record(2)


def test_what_came_through_of_a_write_that_failed_is_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = AuditFile(tmp_path)
    file.append([record(0)])
    write, calls = os.write, []

    def full(descriptor: int, data: Any) -> int:
        calls.append(len(data))
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        return write(descriptor, bytes(data)[:5])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        file.append([record(1), record(2)])
    monkeypatch.undo()
    assert forwards(tmp_path) == [0]
    file.append([record(3)])
    assert forwards(tmp_path) == [0, 3]


def test_the_name_of_each_file_is_flushed_with_its_first_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, folders = os.fsync, list[Path]()

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            folders.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    folder = tmp_path / "audit"
    file = AuditFile(folder, file_bytes_max=1)
    for number in range(2):
        file.append([record(number)])
        file.flush()
        file.flush()
    assert folders == [tmp_path, folder, folder]


def test_a_flush_opens_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When too many are open, it would be taken for one after which nobody knows what the file holds."""
    file = AuditFile(tmp_path)
    file.append([record(1)])

    def refuse(*_: Any) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "open", refuse)
    file.flush()
    file.close()
    for _ in range(2):
        with pytest.raises(OSError, match="open files"):
            file.append([record(2)])
    monkeypatch.undo()
    file.append([record(2)])
    file.close()
    assert forwards(tmp_path) == [1, 2]


def test_no_descriptor_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AuditFile(tmp_path, file_bytes_max=1)
    open_file = os.open

    def refuse_files(path: Any, flags: int, *more: Any) -> int:
        if Path(path) != tmp_path:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return open_file(path, flags, *more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse_files)
        with pytest.raises(OSError, match="open files"):
            file.append([record(0)])
    for number in range(3):
        file.append([record(number)])
    file.close()
    # Of this folder: other threads open and close theirs.
    descriptors = [Path("/proc/self/fd") / number for number in os.listdir("/proc/self/fd")]
    assert not [path for path in descriptors if path.is_symlink() and os.readlink(path).startswith(str(tmp_path))]


def test_arguments_that_are_too_long_are_left_out(tmp_path: Path) -> None:
    file = AuditFile(tmp_path)
    file.append([record(1, arguments={"text": "x" * LINE_BYTES_MAX})])
    [(_, line)] = oldest_first(tmp_path, START)
    assert len(line) < 200
    assert "left_out" in json.loads(line)["arguments"]


def test_text_that_steers_a_terminal_is_escaped(tmp_path: Path) -> None:
    AuditFile(tmp_path).append([record(1, user="a\u202eb\x1b[2J\ud800")])
    [(_, line)] = oldest_first(tmp_path, START)
    assert line.isascii()
    assert b"\\u202eb\\u001b" in line


@given(st.lists(st.integers(0, BLOCK_BYTES * 3 // 2), max_size=8), st.integers(1, 3))
def test_both_directions_tell_the_same_from_every_position(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], files: int
) -> None:
    folder = tmp_path_factory.mktemp("audit")
    try:
        for number, size in enumerate(sizes):
            with (folder / f"audit-{1 + number * files // max(1, len(sizes)):06}.jsonl").open("ab") as file:
                file.write(b"%d" % number + b"x" * size + b"\n")
        whole = (
            [line.rstrip(b"\n") for _, line in oldest_first(folder, START)] if max(sizes, default=0) < 60_000 else []
        )
        back = list(newest_first(folder, None))
        if whole:
            assert [line for _, line in back][::-1] == whole
        for index, (position, _) in enumerate(back):
            assert list(newest_first(folder, position)) == back[index + 1 :]
        forth = list(oldest_first(folder, START))
        for index, (position, _) in enumerate(forth):
            assert list(oldest_first(folder, position)) == forth[index + 1 :]
        assert not list(oldest_first(folder, end_of(folder)))
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert not list(newest_first(tmp_path / "none", None))
    assert not list(oldest_first(tmp_path / "none", START))
    assert end_of(tmp_path / "none") == (1, 0)
