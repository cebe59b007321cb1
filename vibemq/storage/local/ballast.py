"""A file of real blocks kept for the day the disk is full.

A store writes new pages even to delete, so a full disk would stop the drain that could empty it. Giving the ballast up
makes room for settlements and checkpoints, and for them alone: as long as it is `missing`, new messages are refused.
"""

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from vibemq.errors import StorageFull
from vibemq.model.records import MessagesAdded, Record
from vibemq.storage.local.file_limit import WHERE_SET, file_limit

BALLAST_FILE = "ballast"
START_FILE = "ballast-start"
"""A small one for opening the store when the other has been given up."""
LOG_BYTES = 1 << 20
"""What stays free for a log beside the ballast, however much of the store can be used again."""
DISK_PART = 16
"""The ballast is at most one in so many bytes of the disk."""


class Ballast:
    """Owned by the process that owns the data directory, which exists."""

    def __init__(self, folder: Path, size: int, name: str = BALLAST_FILE) -> None:
        self._folder = folder
        self._path = folder / name
        self._wanted = size
        self._why = ""
        """Why new messages are refused; empty while they are not. One value, which other threads read."""

    @property
    def size(self) -> int:
        """What it has when it is held: less than was wanted on a small disk."""
        return min(self._wanted, shutil.disk_usage(self._folder).total // DISK_PART)

    @property
    def missing(self) -> bool:
        """Given up, or never had for want of room."""
        return bool(self._why)

    @property
    def held(self) -> bool:
        """Whether the blocks are really there."""
        try:
            return self._path.stat().st_blocks * 512 >= self.size
        except FileNotFoundError:
            return False

    @property
    def bytes_held(self) -> int:
        return self.size if self._wanted and self.held else 0

    def bytes_held_on(self, folder: Path) -> int:
        """What the disk of this folder has of it: the folder may be a disk of its own."""
        held = self.bytes_held
        return held if held and folder.stat().st_dev == self._path.stat().st_dev else 0

    def obstacle(self, *, reusable: int = 0) -> str:
        """What `take` would find in its way, and how to repair it; empty when nothing. Changes nothing."""
        return self._obstacle(0, reusable) if self._wanted and not self.held else ""

    def take(self, *, beside: int = 0, reusable: int = 0) -> bool:
        """Reserve the blocks when there is room for them twice over; return whether they are held.

        Never raises for lack of space: a broker must be able to start on a full disk.

        Args:
            beside: bytes of the disk that are promised to something else.
            reusable: bytes of the store's files that new messages can use; they stand for the second time.
        """
        self._give_back_what_is_too_much()
        self._why = self._taken(beside, reusable) if self._wanted else ""
        return not self._why and self._wanted > 0

    def take_back(self) -> bool:
        """Reserve the blocks as soon as they fit, after work for which they were given up and which has freed as much.

        Return whether they are held.
        """
        self._give_back_what_is_too_much()
        if not self._wanted:
            return False
        self._why = "" if self.held else self._reserved()
        return not self._why

    @property
    def why(self) -> str:
        """Why messages are refused while the ballast is missing, and how to repair it; empty while it is not."""
        return self._why

    def _give_back_what_is_too_much(self) -> None:
        """The settings wanted more before. A ballast that is too large does no harm where it cannot be changed."""
        with suppress(OSError):
            if not self._wanted:
                self._path.unlink(missing_ok=True)
            elif self._path.exists() and self._path.stat().st_size > self._wanted:
                os.truncate(self._path, self._wanted)

    def _taken(self, beside: int, reusable: int) -> str:
        """Why not; empty when the blocks are held."""
        if self.held:
            return ""
        return self._obstacle(beside, reusable) or self._reserved()

    def _reserved(self) -> str:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return self._disk_full()
        try:
            os.posix_fallocate(descriptor, 0, self.size)
        except OSError as error:
            self._path.unlink(missing_ok=True)
            return self._too_big() if error.errno == errno.EFBIG else self._disk_full()
        finally:
            os.close(descriptor)
        return ""

    def _obstacle(self, beside: int, reusable: int) -> str:
        size, limit = self.size, file_limit()
        if limit is not None and size > limit:
            return self._too_big()
        free = shutil.disk_usage(self._folder).free - beside
        short = free < size + min(size, LOG_BYTES) or free + reusable < 2 * size
        return self._disk_full() if short else ""

    def release(self, limit: str = "") -> bool:
        """Give the blocks back to the disk; return whether there were any.

        Args:
            limit: what the store has met when it was not the disk's size, and how to repair it (`StorageFull.limit`).
        """
        if not self._path.exists():
            return False
        self._path.unlink()
        self._why = self._limited(limit) if limit else self._disk_full()
        return True

    def refuse_messages(self, records: Sequence[Record]) -> None:
        """Raise StorageFull for new messages while the ballast is missing: what room is left is for the drain."""
        why = self._why
        if why and any(type(record) is MessagesAdded for record in records):
            raise StorageFull(why)

    def _disk_full(self) -> str:
        return (
            f"the disk of {self._folder} is full, what is left of it is kept for draining the queues: "
            f"free {2 * self.size >> 20} MiB or more and publish again"
        )

    def _limited(self, limit: str) -> str:
        return f"the store in {self._folder} cannot grow, what room it has is kept for draining the queues: {limit}"

    def _too_big(self) -> str:
        return (
            f"files in {self._folder} may not be as big as the ballast of {self.size} bytes, without which the "
            "queues could not be drained on a full disk: raise the process's limit of file size "
            f"({WHERE_SET}) and restart the broker"
        )
