"""What the store's file has to spare: up to a limit of file size, and in pages that nothing uses."""

from typing import NamedTuple

from vibemq.storage.lmdb.environment.free_pages import UnusedPages
from vibemq.storage.lmdb.journal.room import StoreRoom, journal_room
from vibemq.storage.local.file_limit import file_limit


class DiskUsage(NamedTuple):
    total: int
    free: int


class FileRoom(StoreRoom):
    """Told by whoever hears of checkpoints. Any thread may ask: each answer is made of one value."""

    def __init__(self, disk_bytes: int, segment_bytes: int) -> None:
        self.reserve = journal_room(disk_bytes, segment_bytes)
        self.used = 0
        """Bytes of the file that are in use, as of the last checkpoint."""
        self.pages: UnusedPages | None = None
        """What the next checkpoint can use of the file; None when it was not counted, as on a roomy disk."""

    def limit(self) -> int | None:
        limit = file_limit()
        return None if limit is None else max(0, limit - self.used)

    def unused(self, value_bytes: int) -> int:
        pages = self.pages
        return 0 if pages is None else pages.for_values(value_bytes)
