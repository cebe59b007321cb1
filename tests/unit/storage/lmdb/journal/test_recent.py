"""What the broker notes of what it appends: a broker runs for years, and appends for ever."""

from contextlib import closing
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.read_back.loaded import LOADED_BYTES_MAX
from vibemq.storage.lmdb.journal.recent import LeftOnly
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.reading import read_piece
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import DeadTable, apply
from vibemq.testing.storage_conformance import moved_stages
from vibemq.testing.storage_workload import Model, Workload

NOTES = set(Dirty.__slots__)


def test_what_is_noted_is_what_may_have_left_and_nothing_else() -> None:
    workload, model = Workload(Random(1)), Model()
    state, dead, left, all_of_it = model.state, DeadTable(), LeftOnly(), Dirty()
    for _ in range(120):
        for record in workload.batch(Model.of(state, dead)):
            # Twice, so that the second sees the same: what is noted does not depend on what was noted before.
            apply(deepcopy(state), record, deepcopy(dead), all_of_it)
            apply(state, record, dead, left)
    assert {name for name in NOTES if getattr(left, name)} == {"left"}
    assert {"chunks", "queues", "groups", "run_pages"} <= {n for n in NOTES if getattr(all_of_it, n)}


def test_a_provider_that_appends_keeps_no_notes(tmp_path: Path) -> None:
    workload, model = Workload(Random(2)), Model()
    state, dead = model.state, DeadTable()
    with closing(LmdbProvider(tmp_path / "data", LmdbSettings(ballast_bytes=0))) as provider:
        provider.open()
        for _ in range(40):
            records = workload.batch(Model.of(state, dead))
            for record in records:
                apply(state, record, dead)
            provider.append(records)
        assert not any(getattr(provider._left, name) for name in NOTES)


@pytest.mark.parametrize("stretches", [1, 12])
def test_a_record_whose_rows_are_read_in_pieces_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretches: int
) -> None:
    """However many stretches it has."""
    rows = Rows.of([pack_row(f"{number:04}", b"x" * 25_000) for number in range(36 // stretches)])
    reads: list[int] = []
    read = Journal.read

    def counted(journal: Journal, position: JournalPosition) -> bytes:
        reads.append(position.lsn)
        return read(journal, position)

    monkeypatch.setattr(Journal, "read", counted)
    with closing(LmdbProvider(tmp_path / "data", LmdbSettings(ballast_bytes=0, buffer_bytes=0))) as provider:
        provider.open()
        provider.append([QueueCreated(1, "q", QueueOptions(), 1, "aa"), GroupCreated(1, 0, "", True, 1)])
        provider.append([MessagesAdded(1, 1 + n * rows.count, 1_000, rows) for n in range(stretches)])
        at = 1
        while at <= 36:
            for part in provider.read(1, at, 36, 64 << 10):
                at += part.rows.count
        assert len(reads) == 1


def damage_all(folder: Path, needle: bytes) -> None:
    """The broker has its segments open, and reads what is changed beneath it."""
    (segment,) = (path for path in (folder / "journal").iterdir() if needle in path.read_bytes())
    data = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(data.index(needle))
        file.write(b"?")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The lsn of every record that is read from the journal."""
    lsns: list[int] = []
    read = Journal.read

    def counted(journal: Journal, position: JournalPosition) -> bytes:
        lsns.append(position.lsn)
        return read(journal, position)

    monkeypatch.setattr(Journal, "read", counted)
    return lsns


def opened(folder: Path) -> LmdbProvider:
    """With a queue, and everything that is read is read from the journal."""
    provider = LmdbProvider(folder, LmdbSettings(ballast_bytes=0, buffer_bytes=0, checkpoint_ms=3_600_000))
    provider.open()
    provider.append([QueueCreated(1, "q", QueueOptions(), 1, "aa"), GroupCreated(1, 0, "", True, 1)])
    return provider


def added(first: int, count: int, size: int) -> MessagesAdded:
    return MessagesAdded(
        1, first, 1_000, Rows.of([pack_row(f"m{n:05}", b"x" * size) for n in range(first, first + count)])
    )


@pytest.mark.parametrize("stretches", [1, 20])
def test_a_damaged_record_is_read_once_and_lost_as_a_whole(tmp_path: Path, reads: list[int], stretches: int) -> None:
    """However many of its messages are wanted, at once or one after the other: its one checksum covers all of them."""
    each = 100 // stretches
    with closing(opened(tmp_path / "data")) as provider:
        provider.append([added(1, 100, 200)])
        provider.append([added(101 + n * each, each, 200) for n in range(stretches)])
        provider.append([added(201, 100, 200)])
        damage_all(tmp_path / "data", b"m00150")
        piece = read_piece(provider, 1, [(50, 120), (130, 130), (190, 250)], 1 << 20)
        assert piece.rest == []
        assert [n for first, last in piece.damaged for n in range(first, last + 1)] == [
            *range(101, 121),
            130,
            *range(190, 201),
        ]
        assert [(part.first_sequence, part.rows.count) for part in piece.slices] == [(50, 51), (201, 50)]
        assert sorted(reads) == [2, 3, 4]
        read_piece(provider, 1, [(121, 129)], 1 << 20)
        assert sorted(reads) == [2, 3, 4]


def test_consumers_that_stand_in_different_records_do_not_drive_them_out(tmp_path: Path, reads: list[int]) -> None:
    with closing(opened(tmp_path / "data")) as provider:
        for record in range(20):
            provider.append([added(1 + 100 * record, 100, 5_000)])
        for at in range(1, 101):
            for record in range(20):
                provider.read(1, at + 100 * record, at + 100 * record, 1)
        assert len(reads) == 20


def test_records_that_are_kept_have_a_bound(tmp_path: Path, reads: list[int]) -> None:
    """The one that was read longest ago goes first."""
    count = LOADED_BYTES_MAX // 800_000 + 1
    with closing(opened(tmp_path / "data")) as provider:
        for record in range(count):
            provider.append([added(1 + 4 * record, 4, 200_000)])
        for record in [*range(count), *range(count)]:
            provider.read(1, 1 + 4 * record, 1 + 4 * record, 1)
            assert provider._recent._loaded._size <= LOADED_BYTES_MAX
        provider.read(1, 4 * count, 4 * count, 1)
        assert len(reads) <= 2 * count
        provider.checkpoint()
        assert provider._recent._loaded._size == 0


def test_damage_to_a_moved_stage_is_told_by_the_numbers_in_its_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, broken = Journal.read, 4

    def rotten(journal: Journal, position: JournalPosition) -> bytes:
        if position.lsn == broken:
            raise StorageDamaged("a record is broken", path="journal")
        return read(journal, position)

    monkeypatch.setattr(Journal, "read", rotten)
    settings = LmdbSettings(ballast_bytes=0, buffer_bytes=0, checkpoint_ms=3_600_000)
    with closing(LmdbProvider(tmp_path / "data", settings)) as provider:
        provider.open()
        for batch in (*moved_stages._filled(), moved_stages._move()):
            provider.append(batch)
        assert broken == provider.stats().last_lsn - 1
        piece = read_piece(provider, 1, [(2, 20)], 1 << 20)
        assert piece.damaged == [(9, 15)]
        assert piece.count == 7
        assert piece.slices[-1].last_sequence == 8
