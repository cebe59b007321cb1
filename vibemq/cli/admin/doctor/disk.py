"""Checks of the data directory's disk: what kind it is, how full, how fast, and whether we may write."""

import os
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


def existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there for this user."""
    folder = folder.absolute()
    while not os.path.exists(folder):
        folder = folder.parent
    return folder


def access(folder: Path) -> Finding:
    place = existing(folder)
    if not os.access(place, os.R_OK | os.W_OK | os.X_OK):
        return fail("access", f"{place} cannot be read and written by this user", f"chown -R $(id -u) {place}")
    missing = "" if place == folder.absolute() else f"; {folder} would be created in it"
    return ok("access", f"{place} can be read and written{missing}")


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


def flush(folder: Path, latencies_ms: list[float] | None = None) -> Finding:
    """The price of a strong publish: one of these per batch."""
    if latencies_ms is None:
        try:
            latencies_ms = fsync_latencies_ms(existing(folder))
        except OSError as error:
            return fail("flush", f"cannot write and flush: {error.strerror}", "see the check of access")
    middle = median(latencies_ms)
    text = f"fdatasync takes {middle:.2f} ms, at most {latencies_ms[-1]:.2f} ms"
    if middle > SLOW_FSYNC_MS:
        remedy = "use an SSD, or weak durability for queues that may lose two seconds in a power cut"
        return warn("flush", text, remedy)
    if middle < UNREAL_FSYNC_MS:
        remedy = "a power cut may lose confirmed messages: see whether the disk or the hypervisor ignores flushes"
        return warn("flush", f"{text}: faster than a real flush", remedy)
    return ok("flush", text)
