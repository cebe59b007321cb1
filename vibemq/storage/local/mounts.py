"""The file system that a data directory is on, from the kernel's table of mounts (proc(5), `mountinfo`)."""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from vibemq.errors import ConfigInvalid

REMOTE_TYPES = frozenset(
    {"9p", "afs", "ceph", "cifs", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3", "smbfs", "virtiofs"}
)
VOLATILE_TYPES = frozenset({"tmpfs", "ramfs"})

_TABLE = Path("/proc/self/mountinfo")
_ESCAPED = re.compile(rb"\\([0-7]{3})")
"""Blanks, tabs, line ends and backslashes in the names of mount points."""


class Passing(NamedTuple):
    """Of a file system that does not last."""

    place: str
    """Where it is, and with what everything that is written to it goes."""
    remedy: str


@dataclass(frozen=True, slots=True)
class FileSystem:
    type: str
    mount_point: str

    @property
    def remote(self) -> bool:
        """Reached over a network or a user-space daemon: locks and flushes may not mean what they say."""
        return self.type in REMOTE_TYPES or self.type == "fuse" or self.type.startswith("fuse.")

    @property
    def volatile(self) -> bool:
        """Gone with the machine's memory."""
        return self.type in VOLATILE_TYPES

    @property
    def passing(self) -> Passing | None:
        """None for what lasts."""
        if self.volatile:
            return Passing(f"in memory ({self.type}): a restart of the machine loses it", "use a disk")
        if self.type == "overlay":
            return Passing("in a container's own layer: it goes with the container", "use a volume")
        return None


def file_system_of(path: Path, mountinfo: bytes | None = None) -> FileSystem:
    """The file system that holds `path` (or would, if it existed); type "" where the kernel does not say.

    Args:
        mountinfo: the table of mounts; the running kernel's by default.
    """
    real = Path(os.path.realpath(path))
    best = FileSystem("", "")
    for found in _mounts(mountinfo):
        # Of equally deep mounts the last one hides the others.
        if real.is_relative_to(found.mount_point) and len(found.mount_point) >= len(best.mount_point):
            best = found
    return best


def is_mount_point(folder: Path, mountinfo: bytes | None = None) -> bool:
    """Also where another part of the same file system is mounted, of which only the table of mounts knows."""
    if os.path.ismount(folder):
        return True
    place = os.path.realpath(folder)
    return any(found.mount_point == place for found in _mounts(mountinfo))


def refuse_remote(data_dir: Path, *, allow: bool, mountinfo: bytes | None = None) -> FileSystem:
    """Raise ConfigInvalid when the directory is on a remote file system, unless that is allowed."""
    found = file_system_of(data_dir, mountinfo)
    if found.remote and not allow:
        raise ConfigInvalid(
            f"the data directory {data_dir} is on a remote file system ({found.type} at {found.mount_point}), where "
            "flushes and locks cannot be trusted; use a local disk, or set allow_remote if you know better"
        )
    return found


def _mounts(mountinfo: bytes | None) -> Iterator[FileSystem]:
    """In the order of the table; nothing where there is none."""
    if mountinfo is None:
        try:
            mountinfo = _TABLE.read_bytes()
        except OSError:
            return
    for line in mountinfo.splitlines():
        left, _, right = line.partition(b" - ")
        fields, kind = left.split(b" "), right.split(b" ")
        if len(fields) >= 5 and kind[0]:
            yield FileSystem(os.fsdecode(kind[0]), os.fsdecode(_ESCAPED.sub(_unescaped, fields[4])))


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)])
