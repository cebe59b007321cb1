"""The shim sees what a process does to its files, and makes the call fail that it is told to."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.proof import shim
from tests.proof.shim import Control, Fault, Kind, Manner, Note, Role

why = shim.missing_compiler()
pytestmark = [pytest.mark.slow, pytest.mark.skipif(why is not None, reason=str(why))]

WORK = """
import os, sys
root = sys.argv[1]
os.mkdir(f"{root}/d")
file = os.open(f"{root}/d/f", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(file, 0, 8)
os.pwritev(file, [b"ab", b"cd"], 2)
os.write(file, b"xy")
os.fdatasync(file)
os.ftruncate(file, 5)
folder = os.open(f"{root}/d", os.O_RDONLY)
os.fsync(folder)
os.rename(f"{root}/d/f", f"{root}/d/g")
direct = os.open(f"{root}/d/g", os.O_WRONLY | os.O_DSYNC)
os.pwrite(direct, b"!", 0)
os.unlink(f"{root}/d/g")
open(f"{root}-elsewhere", "w").write("not ours")
print("done")
"""


def run(program: str, folder: Path, **options: Path) -> subprocess.CompletedProcess[str]:
    root = folder / "root"
    root.mkdir(exist_ok=True)
    variables = os.environ | shim.environment(root, **options)
    command = [sys.executable, "-c", program, str(root)]
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def test_every_change_is_noted_in_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    assert run(WORK, tmp_path, log=log).stdout == "done\n"
    notes = shim.notes(log)

    def told(note: Note) -> tuple[str, str, int, int, bytes]:
        return note.kind.name, os.path.relpath(note.path, tmp_path / "root"), note.offset, note.size, note.data

    assert [told(note) for note in notes] == [
        ("MKDIR", "d", 0, 0, b""),
        ("CREATE", "d/f", 0, 0, b""),
        ("ALLOC", "d/f", 0, 8, b""),
        ("WRITE", "d/f", 2, 4, b"abcd"),
        ("WRITE", "d/f", 0, 2, b"xy"),
        ("SYNC", "d/f", 0, 0, b""),
        ("TRUNCATE", "d/f", 0, 5, b""),
        ("SYNC", "d", 0, 0, b""),
        ("RENAME", "d/f", 0, 0, b""),
        ("WRITE", "d/g", 0, 1, b"!"),
        ("UNLINK", "d/g", 0, 0, b""),
    ]
    assert [note.flags for note in notes if note.kind is Kind.WRITE] == [0, 0, shim.DSYNC]
    assert [note.flags for note in notes if note.kind is Kind.SYNC] == [0, shim.FOLDER]
    assert len({note.inode for note in notes if note.path.endswith(("f", "g")) and note.inode}) == 1
    assert all(note.before <= note.after for note in notes)


@pytest.mark.parametrize("kind", Kind)
def test_the_first_call_of_a_kind_fails(tmp_path: Path, kind: Kind) -> None:
    control = Control(tmp_path / "control", Fault(Role.BROKER, kind, 1, errno.EIO))
    done = run(WORK, tmp_path, control=control.path)
    assert "Errno 5" in done.stderr
    assert done.stdout == ""
    assert control.fired
    assert control.fired_at > 0
    assert control.failed_path.startswith(str(tmp_path / "root"))


def test_a_fault_behind_the_last_call_never_comes(tmp_path: Path) -> None:
    counting = Control(tmp_path / "control")
    assert run(WORK, tmp_path, control=counting.path).stdout == "done\n"
    assert counting.calls(Role.BROKER, Kind.WRITE) == 3
    assert counting.calls(Role.CHECKPOINTER, Kind.WRITE) == 0
    beyond = Control(tmp_path / "beyond", Fault(Role.BROKER, Kind.WRITE, 4, errno.EIO))
    (tmp_path / "root" / "d").rmdir()
    assert run(WORK, tmp_path, control=beyond.path).stdout == "done\n"
    assert not beyond.fired


def test_a_short_write_is_short_and_a_late_error_comes_after_the_deed(tmp_path: Path) -> None:
    program = "import os, sys\nfile = os.open(f'{sys.argv[1]}/f', os.O_RDWR | os.O_CREAT)\n"
    short = Control(tmp_path / "short", Fault(Role.BROKER, Kind.WRITE, 1, 0, Manner.SHORT))
    done = run(program + "print(os.pwrite(file, b'abcd', 0))", tmp_path, control=short.path)
    assert done.stdout == "2\n"
    late = Control(tmp_path / "late", Fault(Role.BROKER, Kind.WRITE, 1, errno.EIO, Manner.AFTER))
    done = run(program + "os.pwrite(file, b'abcd', 0)", tmp_path, control=late.path)
    assert "Errno 5" in done.stderr
    assert (tmp_path / "root" / "f").read_bytes() == b"abcd"
