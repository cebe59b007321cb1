"""Dead letters whose removal the checkpointer has not applied yet."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from vibemq.model.records import ALL_GROUPS, DeadLettered, DeadRemoved
from vibemq.model.stored import DeadPageWanted
from vibemq.storage.lmdb import provider as provider_module
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.storage_conformance import added, letter, queue

COUNT = 5_000


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[LmdbProvider]:
    """With COUNT letters in LMDB, of which the journal has removed all but the first and the last hundred."""
    storage = LmdbProvider(tmp_path, LmdbSettings(checkpoint_ms=600_000))
    storage.open()
    letters = [letter(i, i) for i in range(1, COUNT + 1)]
    storage.append([*queue(), added(1, COUNT), DeadLettered(1, ALL_GROUPS, letters)])
    storage.sync()
    storage.checkpoint()
    for first in range(101, COUNT - 99, 100):
        storage.append([DeadRemoved(list(range(first, first + 100)))])
    yield storage
    storage.close()


def test_letters_behind_many_that_were_removed_are_found_without_reading_those(storage: LmdbProvider) -> None:
    kv, read = storage._dead.kv, 0
    scan = kv.scan

    def counted(start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        nonlocal read
        for pair in scan(start, stop):
            read += 1
            yield pair

    kv.scan = counted  # type: ignore[method-assign]
    page = storage.dead_page(DeadPageWanted(after=100, limit=50))
    assert [found.facts.dead_id for found in page.letters] == list(range(COUNT - 99, COUNT - 49))
    assert read < 200
    everything = storage.dead_page(DeadPageWanted(limit=COUNT, scan=COUNT))
    assert [found.facts.dead_id for found in everything.letters] == [*range(1, 101), *range(COUNT - 99, COUNT + 1)]


def test_what_is_applied_is_forgotten_in_slices(storage: LmdbProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provider_module, "LETTERS_FORGOTTEN_AT_ONCE", 7)
    before = [found.facts.dead_id for found in storage.dead_letters(limit=COUNT)]
    storage.append([DeadRemoved([1])])
    storage.sync()
    storage.checkpoint()
    storage.append([DeadRemoved([2])])
    storage.maintain()
    assert list(storage._dead._removed) == [2]
    assert storage._dead._removed_ids.runs() == [(2, 2)]
    assert list(storage._dead._changed_at) == [2]
    assert not storage._dead._added.entries
    assert [found.facts.dead_id for found in storage.dead_letters(limit=COUNT)] == before[2:]
