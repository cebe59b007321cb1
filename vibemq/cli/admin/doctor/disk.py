"""Checks of the data directory's disk: what kind it is, how full, how fast, and whether we may write."""

import os
import pwd
import shlex
import shutil
from pathlib import Path

from vibemq.cli.admin.doctor.finding import Finding, fail, ok, warn
from vibemq.cli.admin.doctor.fsync import fsync_latencies_ms
from vibemq.cli.output import bytes_text
from vibemq.cli.ping import median
from vibemq.storage.local.mounts import file_system_of

FREE_BYTES_FAIL = 256 << 20
FREE_BYTES_WARN = 1 << 30
FREE_SHARE_WARN = 0.10
INODES_WARN = 10_000
SLOW_FSYNC_MS = 20.0
UNREAL_FSYNC_MS = 0.005
"""No disk, not even one with a battery, answers a flush this fast."""
NAME_IT = "name the data directory of the broker with --data-dir; without it the current directory is looked at"


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there for this user."""
    folder = folder.absolute()
    while not os.path.exists(folder):
        folder = folder.parent
    return folder


def access(folder: Path, *, named: bool = True) -> Finding:
    """`named`: whether somebody has asked for this folder; else it is the one that the command runs in."""
    place = existing(folder)
    is_there = place == folder.absolute()
    if os.access(place, os.R_OK | os.W_OK | os.X_OK):
        missing = "" if is_there else f"; {folder} would be created in it"
        return ok("access", f"{place} can be read and written{missing}")
    text = f"{place}, of user {_owner_of(place)}, cannot be read and written by this user"
    if not named:
        return warn("access", text, NAME_IT)
    if not is_there:
        # Of the folder above, such as /var/lib, neither owner nor mode may change.
        quoted = shlex.quote(str(folder))
        return fail("access", text, f"as root: install --directory --owner=USER --mode=0750 {quoted}")
    return fail("access", text, "run the doctor as the user of the broker; if that is this one, give it the directory")


def _owner_of(place: Path) -> str:
    number = place.stat().st_uid
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def file_system(folder: Path, mountinfo: bytes | None = None) -> Finding:
    place = existing(folder)
    found = file_system_of(place, mountinfo)
    if found.remote:
        remedy = "use a local disk: locks, flushes and maps are not safe over a network"
        return fail("file system", f"{place} is on {found.type}, a remote file system", remedy)
    if found.passing is not None:
        return warn("file system", f"{place} is {found.passing.place}", found.passing.remedy)
    return ok("file system", f"{place} is on {found.type or 'an unknown file system'}")


def free_space(folder: Path, usage: tuple[int, int] | None = None) -> Finding:
    """`usage`: (total, free) bytes."""
    place = existing(folder)
    if usage is None:
        disk = shutil.disk_usage(place)
        usage = disk.total, disk.free
    total, free = usage
    text = f"{bytes_text(free)} of {bytes_text(total)} are free"
    remedy = "free some space, or drain queues; `vibemq-admin compact` frees unused space of a stopped store"
    if free < FREE_BYTES_FAIL:
        return fail("free space", text, remedy)
    if free < FREE_BYTES_WARN or free < FREE_SHARE_WARN * total:
        return warn("free space", text, remedy)
    return ok("free space", text)


def inodes(folder: Path, free: int | None = None) -> Finding:
    if free is None:
        status = os.statvfs(existing(folder))
        if not status.f_files:
            return ok("inodes", "this file system has no limit")
        free = status.f_favail
    if free < INODES_WARN:
        return warn("inodes", f"only {free:,} files can be made", "delete small files on this file system")
    return ok("inodes", f"{free:,} files can be made")


def flush(folder: Path, latencies_ms: list[float] | None = None, *, named: bool = True) -> Finding:
    """The price of a strong publish: one of these per batch. `named` as for `access`."""
    if latencies_ms is None:
        try:
            latencies_ms = fsync_latencies_ms(existing(folder))
        except OSError as error:
            text = f"cannot write and flush: {error.strerror}"
            return fail("flush", text, "see the check of access") if named else warn("flush", text, NAME_IT)
    middle = median(latencies_ms)
    text = f"fdatasync takes {middle:.2f} ms, at most {latencies_ms[-1]:.2f} ms"
    if middle > SLOW_FSYNC_MS:
        remedy = "use an SSD, or weak durability for queues that may lose two seconds in a power cut"
        return warn("flush", text, remedy)
    if middle < UNREAL_FSYNC_MS:
        remedy = "a power cut may lose confirmed messages: see whether the disk or the hypervisor ignores flushes"
        return warn("flush", f"{text}: faster than a real flush", remedy)
    return ok("flush", text)
