"""The note of how far the journal was flushed, which tells damage from a torn tail."""

import errno
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vibemq.errors import StorageFailed
from vibemq.storage.local.disk import Disk
from vibemq.storage.local.file_limit import remedy_of
from vibemq.storage.local.high_water import HighWater, read_note

logger = logging.getLogger(__name__)


class DurableNote:
    """On a full disk that has none yet the store goes on without."""

    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._note = self._open(disk)

    @property
    def lsn(self) -> int:
        """As it was opened; 0 without one."""
        return 0 if self._note is None else self._note.lsn

    def write(self, lsn: int) -> None:
        if self._note is not None:
            with self._noting():
                self._note.write(lsn)

    def flush(self) -> None:
        if self._note is not None:
            with self._noting():
                self._note.flush()

    def close(self) -> None:
        if self._note is not None:
            self._note.close()

    def _open(self, disk: Disk) -> HighWater | None:
        if read_note(self._path, disk)[1]:
            logger.warning("%s is damaged; what the journal lost before now may go unnoticed", self._path)
        try:
            note = HighWater(self._path, disk)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise StorageFailed(f"{self._path} cannot be opened: {error}") from error
            logger.warning("no room for %s: damage to the journal's last record may go unnoticed", self._path)
            return None
        disk.fsync_dir(str(self._path.parent))
        return note

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageFailed(f"{self._path} cannot be written: {error}; {remedy_of(error)}") from error
