"""Stores on small disks of their own: filled until messages are refused, drained, and filled again.

A provider alone, in a child of this process, without a clock: each refusal is followed by a checkpoint and by
housekeeping, so that the same happens in every run. What a broker makes of it is played in shortage.py.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.unit.storage.full_store import FullStore
from vibemq.errors import StorageFull
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings

MEBIBYTES = 8
SMALL_SEGMENT_BYTES = 1 << 16


class Drain(NamedTuple):
    """How a store is filled, and how much of it is drained then."""

    body_bytes: int
    batch_bytes: int
    part: float
    """Where it is less than a half the store is not compacted: what is unused of it has to count as it is."""
    segment_bytes: int = 0
    """Of LMDB's journal; 0 = as large as they are by default."""

    def __str__(self) -> str:
        segments = f", segments of {self.segment_bytes >> 10} KiB" if self.segment_bytes else ""
        return f"{self.part:.0%} drained, {self.batch_bytes} bytes at a time{segments}"


IN_PART = (Drain(4_000, 32_000, 0.4), Drain(4_000, 32_000, 0.4, SMALL_SEGMENT_BYTES))
WHOLLY = (Drain(20_000, 100_000, 1.0), Drain(20_000, 100_000, 1.0, SMALL_SEGMENT_BYTES))


class CheckpointedStore(FullStore):
    """Without checkpoints an LMDB store would be filled by what happens to be in its journal."""

    def _checkpoint(self) -> None:
        assert isinstance(self.provider, LmdbProvider)
        with suppress(StorageFull):
            self.provider.checkpoint()

    def publish(self) -> bool:
        if super().publish():
            return True
        self._checkpoint()
        self.provider.maintain()
        return super().publish()

    def settle(self, part: float = 1.0) -> None:
        super().settle(part)
        self._checkpoint()


def fill_and_drain(data_dir: Path, provider: str, drain: Drain) -> int:
    """How many messages were confirmed. Raises AssertionError when some are gone, or when it takes none again."""
    logging.disable(logging.WARNING)
    store = _store(data_dir, provider, drain)
    kind = CheckpointedStore if provider == "lmdb" else FullStore
    full = kind(store, drain.body_bytes, drain.batch_bytes)
    try:
        full.assert_takes_messages_again(drain.part)
    finally:
        store.close()
    return full.next - 1


def _store(data_dir: Path, provider: str, drain: Drain) -> IStorageProvider:
    if provider == "lmdb":
        small = {"segment_bytes": drain.segment_bytes} if drain.segment_bytes else {}
        return LmdbProvider(data_dir, LmdbSettings(**small))
    # A store that was given back its pages waits for a while before it does so again.
    return SqliteStorage(data_dir, SqliteSettings(), monotonic=_minutes().__next__)


def _minutes() -> Iterator[float]:
    return (60.0 * number for number in count(1))
