"""Stages that are moved before, between and behind checkpoints of a running store."""

from pathlib import Path
from random import Random

import pytest

from vibemq.model.records import StageMoved
from vibemq.storage.interface import IStorageProvider
from vibemq.storage.lmdb.journal.moved import MovedStages
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.testing.storage_workload import Model, Workload

SETTINGS = LmdbSettings(
    segment_bytes=64 << 10, buffer_bytes=20_000, checkpoint_lag_bytes=1 << 30, checkpoint_ms=3_600_000, ballast_bytes=0
)
ALL = 2**63 - 1


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long), pytest.param(3, marks=pytest.mark.long)])
def test_what_is_alive_can_be_read_whatever_the_checkpoints_have(tmp_path: Path, seed: int) -> None:
    random, moved = Random(seed), 0
    model, workload = Model(), Workload(random, transient=False)
    storage = LmdbProvider(tmp_path, SETTINGS)
    storage.open()
    try:
        for _ in range(60):
            for _ in range(random.randint(1, 10)):
                batch = workload.batch(model)
                moved += sum(type(record) is StageMoved for record in batch)
                storage.append(batch)
                model.apply(batch)
            if random.random() < 0.4:
                storage.checkpoint()
            _compare(storage, model, random)
    finally:
        storage.close()
    assert moved > 10


def _compare(storage: LmdbProvider, model: Model, random: Random) -> None:
    for queue_id in model.state.queues:
        wanted = model.alive(queue_id)
        parts = storage.read(queue_id, 1, ALL, 1 << 40)
        got = {p.first_sequence + i: (row, p.published_at) for p in parts for i, row in enumerate(p.rows)}
        assert {sequence: got.get(sequence) for sequence in wanted} == wanted
        some = sorted(random.sample(list(wanted), min(5, len(wanted))))
        assert _picked(storage, queue_id, some) == {sequence: wanted[sequence] for sequence in some}


def _picked(storage: LmdbProvider, queue_id: int, sequences: list[int]) -> dict[int, tuple[bytes, int]]:
    found: dict[int, tuple[bytes, int]] = {}
    at = 0
    while at < len(sequences):
        parts, looked_at = storage.pick(queue_id, sequences[at:], 1 << 40)
        found |= {part.first_sequence: (part.rows[0], part.published_at) for part in parts}
        at += looked_at
    return found


def test_only_the_moves_that_the_store_has_are_released() -> None:
    moved = MovedStages()
    for stage_id, (queue_id, first) in enumerate([(1, 1), (2, 1), (1, 5), (1, 9)], 10):
        moved.add(StageMoved(queue_id, first, 5, stage_id, 1, 4), lsn=stage_id)
    assert moved.release(9) == []
    assert moved.release(12) == [10, 11, 12]
    assert [moved.of(1, sequence) is None for sequence in (4, 8, 9, 12, 13)] == [True, True, False, False, True]
    assert moved.of(2, 1) is None
    assert 12 not in moved
    assert 13 in moved
    assert moved.release(13) == [13]
    assert not moved


def test_a_stage_of_which_the_store_has_half(tmp_path: Path) -> None:
    from vibemq.testing.storage_conformance import moved_stages as moved

    storage = LmdbProvider(tmp_path, SETTINGS)
    storage.open()
    try:
        before, second, stage, rest = moved._filled()
        for batch in (before, second, stage):
            storage.append(batch)
        storage.checkpoint()
        storage.append(rest)
        storage.append(moved._move())
        _assert_whole(storage)
        storage.append(moved._staged(100, 1))
        storage.checkpoint()
        _assert_whole(storage)
    finally:
        storage.close()


def _assert_whole(storage: IStorageProvider) -> None:
    from vibemq.testing.storage_conformance import moved_stages as moved

    last = moved.FIRST + moved.STAGED
    moved._assert_moved(storage.read(1, moved.FIRST, last - 1, 1 << 40), list(range(moved.FIRST, last)))
