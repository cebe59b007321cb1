"""A small disk filled up by an lmdb store, checkpoints at any moment: nothing but the kernel says what fits."""

from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

from tests.integration.conditions import small_disk
from tests.unit.storage.full_store import FullStore
from vibemq.errors import StorageFull
from vibemq.model.records import Record
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings

pytestmark = pytest.mark.slow

HALF, ALL = 0.5, 1.0
CASES = [
    (8, 32_000, 4_000, HALF),
    pytest.param(8, 300_000, 200, HALF, marks=pytest.mark.long),
    pytest.param(8, 1_000_000, 20_000, HALF, marks=pytest.mark.long),
    (8, 100_000, 20_000, ALL),
    pytest.param(12, 300_000, 4_000, HALF, marks=pytest.mark.long),
    pytest.param(16, 1_000_000, 70_000, HALF, marks=pytest.mark.long),
    pytest.param(24, 32_000, 200_000, HALF, marks=pytest.mark.long),
    (24, 300_000, 200, HALF),
]
"""MiB of the disk, bytes of a publish and of a message, and how much is drained."""


class CheckpointedStore(FullStore):
    """Each refusal is followed by a checkpoint, and by housekeeping; others come at random.

    Without any the store would be filled by what happens to be in the journal.
    """

    def __init__(self, provider: LmdbProvider, body_bytes: int, batch_bytes: int, random: Random) -> None:
        self._random = random
        super().__init__(provider, body_bytes, batch_bytes)

    def _checkpoint(self) -> None:
        assert isinstance(self.provider, LmdbProvider)
        with suppress(StorageFull):
            self.provider.checkpoint()

    def publish(self) -> bool:
        if self._random.random() < 0.05:
            self._checkpoint()
        if super().publish():
            return True
        self._checkpoint()
        self.provider.maintain()
        return super().publish()

    def _settlement(self, first: int, last: int) -> list[Record]:
        if self._random.random() < 0.02:
            self._checkpoint()
        return super()._settlement(first, last)

    def settle(self, part: float = 1.0) -> None:
        super().settle(part)
        self._checkpoint()


@contextmanager
def store_on(disk: Path, body: int, batch: int, seed: int) -> Iterator[CheckpointedStore]:
    with closing(LmdbProvider(disk / "data", LmdbSettings())) as provider:
        yield CheckpointedStore(provider, body, batch, Random(seed))


@pytest.mark.parametrize(("mebibytes", "batch", "body", "part"), CASES)
def test_a_drained_store_takes_messages_again(
    tmp_path: Path, mebibytes: int, batch: int, body: int, part: float
) -> None:
    with small_disk(tmp_path / "disk", mebibytes) as disk, store_on(disk, body, batch, seed=body) as store:
        store.assert_takes_messages_again(part)
