"""The few file operations the storage rooms need, so that a simulated disk can take the real one's place.

Files are small integers, as the operating system gives them. Every failure comes out as OSError with its errno.
What each call promises about power loss is what Linux promises:

    pwritev     nothing until fdatasync; sectors may reach the disk torn and in any order
    fdatasync   the file's bytes and its size are on disk; after an error nobody knows, and a retry lies
    rename      atomic, and may be undone by a power cut until fsync_dir of the folder
    fallocate   the space is there (ENOSPC comes now, not later)
"""

import os
from collections.abc import Sequence
from typing import Protocol

IOV_MAX = 1024
"""Most buffers Linux takes in one pwritev."""
AGAIN_BYTES = 1 << 20


class Disk(Protocol):
    """Blocking. Safe from several threads as long as they do not close a file another one uses."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> int:
        """Open a file for reading and writing; `create` makes a missing one (empty, mode 0600)."""

    def close(self, file: int) -> None: ...

    def pwritev(self, file: int, buffers: Sequence[bytes], offset: int) -> int:
        """Write at most IOV_MAX buffers; return how many bytes were taken, which may be fewer than offered."""

    def pread(self, file: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def pread_into(self, file: int, buffer: memoryview, offset: int) -> int:
        """Read into a buffer; return how many bytes have come, fewer than it takes also before the end of the file."""

    def fdatasync(self, file: int) -> None: ...

    def fsync(self, file: int) -> None: ...

    def fallocate(self, file: int, size: int) -> None:
        """Reserve [0, size) and make the file at least that long; new bytes read as zero."""

    def truncate(self, file: int, size: int) -> None: ...

    def size(self, file: int) -> int: ...

    def rename(self, old: str, new: str) -> None:
        """Both names in one folder."""

    def unlink(self, path: str) -> None: ...

    def listdir(self, folder: str) -> list[str]:
        """Names, sorted."""

    def mkdir(self, folder: str) -> None:
        """Make a folder (mode 0700); one that exists is fine."""

    def fsync_dir(self, folder: str) -> None:
        """Make the folder's entries durable."""

    def free_bytes(self, folder: str) -> int:
        """What an unprivileged writer may still allocate on the folder's file system."""


class RealDisk:
    """The operating system's files."""

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> int:
        flags = os.O_RDONLY if readonly else os.O_RDWR
        return os.open(path, flags | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o600)

    def close(self, file: int) -> None:
        os.close(file)

    def pwritev(self, file: int, buffers: Sequence[bytes], offset: int) -> int:
        return os.pwritev(file, buffers, offset)

    def pread(self, file: int, size: int, offset: int) -> bytes:
        data = os.pread(file, size, offset)
        if len(data) == size or not data:
            return data
        # One read(2) moves at most 2 GiB and may be cut by a signal.
        pieces = [data]
        while data and (missing := size - sum(map(len, pieces))):
            data = os.pread(file, missing, offset + size - missing)
            pieces.append(data)
        return b"".join(pieces)

    def pread_into(self, file: int, buffer: memoryview, offset: int) -> int:
        return os.preadv(file, [buffer], offset)

    def fdatasync(self, file: int) -> None:
        os.fdatasync(file)

    def fsync(self, file: int) -> None:
        os.fsync(file)

    def fallocate(self, file: int, size: int) -> None:
        os.posix_fallocate(file, 0, size)

    def truncate(self, file: int, size: int) -> None:
        os.ftruncate(file, size)

    def size(self, file: int) -> int:
        return os.fstat(file).st_size

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def listdir(self, folder: str) -> list[str]:
        return sorted(os.listdir(folder))

    def mkdir(self, folder: str) -> None:
        try:
            os.mkdir(folder, 0o700)
        except FileExistsError:
            pass

    def fsync_dir(self, folder: str) -> None:
        directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def free_bytes(self, folder: str) -> int:
        state = os.statvfs(folder)
        return state.f_bavail * state.f_frsize


class ReadOnlyDisk(RealDisk):
    """For looking at files that are not to be changed: they are opened for reading only.

    Nothing is flushed either: nobody builds on what is read, and a file system that cannot write refuses to flush.
    """

    def open(self, path: str, *, create: bool = False, readonly: bool = False) -> int:
        return super().open(path, readonly=True)

    def fdatasync(self, file: int) -> None:
        pass

    def fsync(self, file: int) -> None:
        pass


def write_all(disk: Disk, file: int, buffers: Sequence[bytes], offset: int) -> None:
    """Write every byte of every buffer at `offset`, going on after short writes.

    Raises:
        OSError: some bytes may have been written, some not.
    """
    if len(buffers) > IOV_MAX:
        buffers = [b"".join(buffers)]
    size = sum(map(len, buffers))
    written = disk.pwritev(file, buffers, offset)
    if written == size:
        return
    rest = memoryview(b"".join(buffers))
    while written < size:
        taken = disk.pwritev(file, [bytes(rest[written:])], offset + written)
        if taken == 0:
            raise OSError(5, "the disk took no byte of a write")
        written += taken


def write_again(disk: Disk, file: int, size: int) -> None:
    """Write the first `size` bytes of a file as they are, and flush them: for who builds on what a dead process left.

    After a flush that failed the system shows what the disk has not got, takes it for written, and tells of success
    when it is flushed again.
    """
    for offset in range(0, size, AGAIN_BYTES):
        write_all(disk, file, [disk.pread(file, min(AGAIN_BYTES, size - offset), offset)], offset)
    disk.fdatasync(file)
