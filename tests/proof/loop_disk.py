"""A file system of its own in a file, whose power can be cut: what was not flushed is gone, as after pulling the plug.

The cut is the file system's shutdown ioctl without a flush of its journal: every call after it fails with EIO, and what
the next mount finds is what had been flushed before, plus whatever the kernel had happened to write.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IOC_SHUTDOWN = 0x8004587D
WITHOUT_LOG_FLUSH = 2
MEBIBYTES = {"ext4": 96, "xfs": 320}
"""The smallest that mkfs takes without complaint, and room to work."""
COMMAND_TIMEOUT_S = 60
UNMOUNT_TIMEOUT_S = 30.0


def file_systems() -> list[str]:
    """Kinds that can be made here."""
    return [kind for kind in MEBIBYTES if shutil.which(f"mkfs.{kind}")]


def missing_loop_disk(work: Path | None = None) -> str | None:
    """Why this machine cannot mount a file as a disk and cut its power; None when it can."""
    if os.uname().sysname != "Linux":
        return "the shutdown ioctl is Linux's"
    if os.geteuid() != 0:
        return "mounting a file as a disk needs root"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices (a container without --privileged?)"
    if shutil.which("mount") is None or not file_systems():
        return "mount or mkfs is missing (Debian: apt-get install mount e2fsprogs xfsprogs)"
    return None


class LoopDisk:
    """Made by `loop_disk`."""

    def __init__(self, image: Path, folder: Path, kind: str) -> None:
        self.folder = folder
        self.kind = kind
        self._image = image

    def mount(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self.folder))

    def cut(self) -> None:
        """From here on every call on the file system fails with EIO, and nothing more reaches the image."""
        folder = os.open(self.folder, os.O_RDONLY)
        try:
            fcntl.ioctl(folder, IOC_SHUTDOWN, struct.pack("I", WITHOUT_LOG_FLUSH))
        finally:
            os.close(folder)

    def unmount(self) -> None:
        """Nobody may have a file open; waits for processes that are just ending."""
        deadline = time.monotonic() + UNMOUNT_TIMEOUT_S
        while True:
            done = subprocess.run(["umount", str(self.folder)], capture_output=True, text=True)
            if done.returncode == 0:
                return
            if time.monotonic() > deadline:
                raise RuntimeError(done.stderr.strip())
            time.sleep(0.02)


@contextmanager
def loop_disk(work: Path, kind: str) -> Iterator[LoopDisk]:
    """A new, mounted file system below `work`; unmounted at the end, whatever happened."""
    image, folder = work / f"{kind}.image", work / kind
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(MEBIBYTES[kind] << 20)
    force = "-F" if kind == "ext4" else "-f"
    _run(f"mkfs.{kind}", "-q", force, str(image))
    disk = LoopDisk(image, folder, kind)
    with _guard(folder):
        disk.mount()
        try:
            yield disk
        finally:
            # Lazily: a process that still sits on it must not keep the mount in anybody's way.
            if os.path.ismount(folder):
                _run("umount", "--lazy", str(folder))
            image.unlink()


@contextmanager
def _guard(folder: Path) -> Iterator[None]:
    """A shell that unmounts the folder when this process is killed: then its pipe from us ends."""
    script = 'cat; if mountpoint -q "$0"; then umount --lazy "$0"; fi'
    guard = subprocess.Popen(["sh", "-c", script, str(folder)], stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        guard.communicate()


def _run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
