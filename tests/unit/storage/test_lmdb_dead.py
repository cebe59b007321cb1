"""Dead letters whose removal the checkpointer has not applied yet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vibemq.model.dead.groups import DeadGroupsWanted, LetterChoice
from vibemq.model.records import ALL_GROUPS, DeadLettered, DeadRemoved
from vibemq.model.stored import DeadPageWanted
from vibemq.storage.lmdb import upkeep
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.reading import dead as dead_module
from vibemq.storage.lmdb.reading.dead import CHANGES_AT_ONCE
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.letter_conformance import check_the_index_says_what_all_letters_say
from vibemq.testing.storage_conformance import Subject, added, letter, queue

COUNT = 5_000


@pytest.fixture
def storage(tmp_path: Path, quick_checkpointers: None) -> Iterator[LmdbProvider]:
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
    monkeypatch.setattr(upkeep, "LETTERS_FORGOTTEN_AT_ONCE", 7)
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


@pytest.mark.parametrize("seed", range(2))
def test_groups_are_right_however_little_is_done_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Letters that came and went since the checkpoint are compared with the store in many small parts."""
    monkeypatch.setattr("vibemq.storage.lmdb.reading.dead.CHANGES_AT_ONCE", 2)
    monkeypatch.setattr("vibemq.storage.lmdb.reading.letters.SORTED_AT_ONCE", 2)
    monkeypatch.setattr("vibemq.storage.lmdb.reading.dead.PAGE_LEAST", 1)
    chosen = LmdbSettings(ballast_bytes=0, segment_bytes=64 << 10)
    check_the_index_says_what_all_letters_say(
        Subject(f"small parts {seed}", tmp_path / "data", lambda data_dir: LmdbProvider(data_dir, chosen))
    )


def test_the_group_of_letters_that_are_gone_is_told_without_a_checkpoint(storage: LmdbProvider) -> None:
    """Its ends are looked for in parts: each call does a millisecond or two of work."""
    calls, page = 0, storage.dead_groups(DeadGroupsWanted())
    while not page.done:
        calls, page = calls + 1, storage.dead_groups(DeadGroupsWanted(after=page.last))
    assert calls >= (COUNT - 200) // CHANGES_AT_ONCE - 1
    [group] = page.groups
    letters = group.letters
    assert (letters.count, letters.first_id, letters.last_id) == (200, 1, COUNT)
    storage.append([DeadRemoved(list(range(1, 101)))])
    storage.append([DeadRemoved(list(range(COUNT - 99, COUNT)))])
    while not (page := storage.dead_groups(DeadGroupsWanted())).done:
        pass
    [group] = page.groups
    letters = group.letters
    assert (letters.count, letters.first_id, letters.last_id) == (1, COUNT, COUNT)
    storage.append([DeadRemoved([COUNT])])
    while not (page := storage.dead_groups(DeadGroupsWanted())).done:
        pass
    assert page.groups == []


def test_a_fingerprint_is_looked_for_in_one_snapshot(storage: LmdbProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not in one for each of many queues: the lock is held meanwhile."""
    for queue_id in range(2, 52):
        storage.append([*queue(queue_id), added(1, 1, queue_id=queue_id)])
        storage.append([DeadLettered(queue_id, ALL_GROUPS, [letter(COUNT + queue_id, 1)])])
    storage.sync()
    storage.checkpoint()
    storage.maintain()
    snapshots = 0
    reading = dead_module.reading

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal snapshots
        snapshots += 1
        return reading(*arguments, **named)

    monkeypatch.setattr(dead_module, "reading", counted)
    page = storage.dead_page(DeadPageWanted(choice=LetterChoice(fingerprint=7), rows=False))
    assert (page.is_ready, page.done) == (True, True)
    assert not page.letters
    assert snapshots < 5
