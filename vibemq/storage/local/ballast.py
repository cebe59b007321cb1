"""A file of real blocks kept for the day the disk is full.

A store writes new pages even to delete, so a full disk would stop the drain that could empty it. Giving the ballast up
makes room for settlements and checkpoints, and for them alone: as long as it is `missing`, new messages are refused.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from vibemq.errors import StorageFull
from vibemq.model.records import MessagesAdded, Record
from vibemq.storage.local.file_limit import WHERE_SET, file_limit

BALLAST_FILE = "ballast"
LOG_BYTES = 1 << 20
"""What stays free for a log beside the ballast, however much of the store can be used again."""
DISK_PART = 16
"""The ballast is at most one in so many bytes of the disk."""


class Ballast:
    """Owned by the process that owns the data directory, which exists."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder = folder
        self._path = folder / BALLAST_FILE
        self._wanted = size
        self.missing = False
        """Given up, or never had for want of room."""
        self._files_limited = False
        """The process may not write files as big as the ballast, so the room of the disk is of no use."""

    @property
    def held(self) -> bool:
        """Whether the blocks are really there."""
        try:
            return self._path.stat().st_blocks * 512 >= self._size()
        except FileNotFoundError:
            return False

    @property
    def bytes_held(self) -> int:
        return self._size() if self._wanted and self.held else 0

    def could_be_taken(self, *, reusable: int = 0) -> bool:
        """Whether the blocks are there, or there is room for them; changes nothing."""
        return self._wanted == 0 or self.held or self._has_room(0, reusable)

    def take(self, *, beside: int = 0, reusable: int = 0) -> bool:
        """Reserve the blocks when there is room for them twice over; return whether they are held.

        Never raises for lack of space: a broker must be able to start on a full disk.

        Args:
            beside: bytes of the disk that are promised to something else.
            reusable: bytes of the store's files that new messages can use; they stand for the second time.
        """
        self.missing = not self._taken(beside, reusable) and self._wanted > 0
        return not self.missing and self._wanted > 0

    @property
    def reason(self) -> str:
        """Why messages are refused while the ballast is missing, when it is not the disk; empty otherwise."""
        return self._limit() if self.missing and self._files_limited else ""

    def _taken(self, beside: int, reusable: int) -> bool:
        if self._wanted == 0 or self.held:
            return True
        size = self._size()
        limit = file_limit()
        self._files_limited = limit is not None and size > limit
        if self._files_limited:
            return False
        if not self._has_room(beside, reusable):
            return False
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            self._files_limited = error.errno == errno.EFBIG
            self._path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)
        return True

    def _has_room(self, beside: int, reusable: int) -> bool:
        size, free = self._size(), shutil.disk_usage(self._folder).free - beside
        return free >= size + min(size, LOG_BYTES) and free + reusable >= 2 * size

    def release(self) -> bool:
        """Give the blocks back to the disk; return whether there were any."""
        if not self._path.exists():
            return False
        self._path.unlink()
        self.missing = True
        return True

    def refuse_messages(self, records: Sequence[Record]) -> None:
        """Raise StorageFull for new messages while the ballast is missing: what room is left is for the drain."""
        if self.missing and any(type(record) is MessagesAdded for record in records):
            raise StorageFull(self._refusal())

    def _refusal(self) -> str:
        if self._files_limited:
            return f"{self._limit()}; nothing was written"
        return (
            f"the disk of {self._folder} is full, what is left of it is kept for draining the queues; "
            f"free {2 * self._size() >> 20} MiB or more and publish again"
        )

    def _limit(self) -> str:
        return (
            f"files in {self._folder} may not be as big as the ballast of {self._size()} bytes, without which the "
            "queues could not be drained on a full disk: raise the process's limit of file size "
            f"({WHERE_SET}) and restart the broker"
        )

    def _size(self) -> int:
        return min(self._wanted, shutil.disk_usage(self._folder).total // DISK_PART)
