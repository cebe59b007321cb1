"""`shim.c`, compiled when it is first needed: the environment that loads it, its faults, and its notes."""

import hashlib
import mmap
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")
COMPILE_TIMEOUT_S = 120


class Kind(IntEnum):
    """Calls that change files; writes, flushes and allocations of every spelling are one kind each."""

    WRITE = 0
    SYNC = 1
    ALLOC = 2
    TRUNCATE = 3
    RENAME = 4
    UNLINK = 5
    MKDIR = 6
    CREATE = 7


class Role(IntEnum):
    BROKER = 0
    CHECKPOINTER = 1


class Manner(IntEnum):
    """What has happened when a call reports its failure."""

    BEFORE = 0
    """Nothing."""
    AFTER = 1
    """Everything."""
    SHORT = 2
    """A write took half of its bytes, and says so: no error."""


@dataclass(frozen=True, slots=True)
class Fault:
    role: Role
    kind: Kind
    nth: int
    error: int
    manner: Manner = Manner.BEFORE


def missing_compiler() -> str | None:
    """Why the shim cannot be made here."""
    if os.uname().sysname != "Linux":
        return "only Linux preloads libraries this way"
    return None if shutil.which("cc") else "there is no C compiler (Debian: apt-get install gcc libc6-dev)"


def library() -> Path:
    """The compiled shim, made once per version of its source."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"vibemq-proof-{os.getuid()}-{digest}.so"
    if not path.exists():
        fresh = path.with_suffix(f".{os.getpid()}")
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(fresh), str(SOURCE), "-ldl", "-lpthread"]
        subprocess.run(command, check=True, timeout=COMPILE_TIMEOUT_S)
        fresh.rename(path)
    return path


def environment(root: Path, *, log: Path | None = None, control: Path | None = None) -> dict[str, str]:
    """Variables that make a process and its children load the shim.

    Args:
        root: calls on files below this folder count.
        log: folder for the notes; they are not taken without it.
        control: file of a `Control`; no faults without it.
    """
    given = {"PROOF_LOG": log, "PROOF_CONTROL": control}
    variables = {"LD_PRELOAD": str(library()), "PROOF_ROOT": str(root.resolve())}
    return variables | {name: str(path) for name, path in given.items() if path is not None}


def prefix(variables: dict[str, str]) -> tuple[str, ...]:
    """The words before a command that set the variables."""
    return ("env", *(f"{name}={value}" for name, value in variables.items()))


class Control:
    """What the processes that map the file are to do, and what they did."""

    _ORDER = struct.Struct("=6I")
    _COUNTS = struct.Struct(f"={len(Role) * len(Kind)}I")
    _FIRED = struct.Struct("=I4xq512s")

    def __init__(self, path: Path, fault: Fault | None = None) -> None:
        self.path = path
        path.write_bytes(bytes(mmap.PAGESIZE))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        if fault is not None:
            self._map[: self._ORDER.size] = self._ORDER.pack(
                1, fault.role, fault.kind, fault.manner, fault.error, fault.nth
            )

    def calls(self, role: Role, kind: Kind) -> int:
        counts = self._COUNTS.unpack_from(self._map, self._ORDER.size)
        return int(counts[role * len(Kind) + kind])

    @property
    def fired(self) -> bool:
        return bool(self._FIRED.unpack_from(self._map, self._ORDER.size + self._COUNTS.size)[0])

    @property
    def fired_at(self) -> int:
        """CLOCK_MONOTONIC nanoseconds."""
        return int(self._FIRED.unpack_from(self._map, self._ORDER.size + self._COUNTS.size)[1])

    @property
    def failed_path(self) -> str:
        raw: bytes = self._FIRED.unpack_from(self._map, self._ORDER.size + self._COUNTS.size)[2]
        return raw.split(b"\0")[0].decode()

    def close(self) -> None:
        self._map.close()


# -- notes ----------------------------------------------------------------------------------------------------------

DSYNC = 1
"""Flag of a write that was durable when it returned."""
FOLDER = 2
"""Flag of a flush of a folder."""
_NOTE = struct.Struct("=IIqqQqqIIQ")


@dataclass(slots=True)
class Note:
    """One call that succeeded. Instants are CLOCK_MONOTONIC nanoseconds."""

    kind: Kind
    flags: int
    before: int
    after: int
    inode: int
    offset: int
    size: int
    path: str
    path2: str
    data: bytes


def notes(folder: Path) -> list[Note]:
    """Every process's notes, by the instant their calls began."""
    found = [note for path in sorted(folder.glob("*.log")) for note in _notes_of(path.read_bytes())]
    return sorted(found, key=lambda note: (note.before, note.after))


def _notes_of(data: bytes) -> Iterator[Note]:
    at = 0
    while at < len(data):
        kind, flags, before, after, inode, offset, size, path_size, path2_size, data_size = _NOTE.unpack_from(data, at)
        at += _NOTE.size
        ends = (at + path_size, at + path_size + path2_size, at + path_size + path2_size + data_size)
        texts = data[at : ends[0]].decode(), data[ends[0] : ends[1]].decode()
        yield Note(Kind(kind), flags, before, after, inode, offset, size, *texts, data[ends[1] : ends[2]])
        at = ends[2]
