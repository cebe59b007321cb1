"""`compact` of an open store: see `compaction` for the copy that takes its place."""

import logging
from collections.abc import Callable
from pathlib import Path

from vibemq.errors import StorageFull
from vibemq.storage.interface import Progress
from vibemq.storage.lmdb import compaction
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.journal.segment_pool import SegmentPool
from vibemq.storage.lmdb.open_store import OpenStore
from vibemq.storage.local.ballast import Ballast

logger = logging.getLogger(__name__)


class Compactor:
    """Appends and reads go on; only `swap` at the end holds them up, for milliseconds."""

    def __init__(
        self,
        store: OpenStore,
        driver: CheckpointDriver,
        pool: SegmentPool,
        ballast: Ballast,
        free_bytes: Callable[[], int],
        swap: Callable[[], None],
    ) -> None:
        """`swap` puts the compacted copy in the store's place."""
        self._store = store
        self._driver = driver
        self._pool = pool
        self._ballast = ballast
        self._free_bytes = free_bytes
        self._swap = swap

    def compact(self, progress: Progress | None = None) -> int:
        """As the interface says.

        Raises:
            StorageFull: no room for the copy, even without the ballast; says how much is missing. Nothing changed.
        """
        report = progress or _silent
        before = directory_bytes(self._store.layout.data_dir)
        with self._driver.turn:
            report(0, 3)
            behind = self._checkpoint_if_there_is_room()
            self._pool.trim()
            self._driver.stop(final_checkpoint=False)
            report(1, 3)
            self._write_compacted()
            report(2, 3)
            self._swap()
            if behind:
                self._checkpoint_if_there_is_room()
            self._pool.trim()
            self._ballast.take()
        report(3, 3)
        return max(0, before - directory_bytes(self._store.layout.data_dir))

    def _checkpoint_if_there_is_room(self) -> bool:
        """Whether the store is still behind the journal. It may be compacted all the same, and have the room then."""
        try:
            self._driver.checkpoint_now()
        except StorageFull as error:
            logger.warning("%s", error)
            return True
        return False

    def _write_compacted(self) -> None:
        free = self._free_bytes()
        given_up = self._ballast.bytes_held_on(self._store.layout.store)
        compaction.need_room(self._store.layout, self._store.env, free + given_up)
        try:
            compaction.need_room(self._store.layout, self._store.env, free)
        except StorageFull:
            # What the ballast is for: room to get out of a full disk.
            self._ballast.release()
        compaction.write_compacted(self._store.layout, self._store.env)


def directory_bytes(folder: Path) -> int:
    """Disk space of all files below the folder."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _silent(done: int, total: int) -> None:
    pass
