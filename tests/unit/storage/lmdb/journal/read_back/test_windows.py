"""Large journal records: a read costs what it returns, and nothing is returned that was not verified."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.storage.kvstore.encoding import AddedPlaces, row_sizes
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.read_back import loaded, windows
from vibemq.storage.lmdb.journal.read_back.loaded import RECORD_BYTES_MAX, STRETCHES_MAX
from vibemq.storage.lmdb.journal.read_back.windows import MARK_ROWS, PIECE_BYTES, PIECES_MAX, WINDOW_BYTES
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.reading import read_piece


@pytest.fixture
def part_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of everything that is read from large records."""
    sizes: list[int] = []
    read = Journal.read_part

    def counted(journal: Journal, position: JournalPosition, offset: int, size: int) -> bytes:
        sizes.append(size)
        return read(journal, position, offset, size)

    monkeypatch.setattr(Journal, "read_part", counted)
    return sizes


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LmdbProvider]:
    """With a queue, and everything that is read is read from the journal."""
    settings = LmdbSettings(ballast_bytes=0, buffer_bytes=0, checkpoint_ms=3_600_000)
    with closing(LmdbProvider(tmp_path / "data", settings)) as opened:
        opened.open()
        opened.append([QueueCreated(1, "q", QueueOptions(), 1, "aa"), GroupCreated(1, 0, "", True, 1)])
        yield opened


def row(number: int, size: int) -> bytes:
    return pack_row(f"m{number:06}", b"x" * size)


def added(first: int, count: int, size: int) -> MessagesAdded:
    return MessagesAdded(1, first, 1_000, Rows.of([row(number, size) for number in range(first, first + count)]))


def numbered(slices: list[Slice]) -> dict[int, bytes]:
    return {part.first_sequence + index: found for part in slices for index, found in enumerate(part.rows)}


def damage(folder: Path, needle: bytes) -> None:
    (segment,) = (path for path in (folder / "journal").iterdir() if needle in path.read_bytes())
    at = segment.read_bytes().index(needle)
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(b"?")


@pytest.mark.parametrize("stretches", [1, 1_500])
def test_many_readers_in_large_records_read_each_once_and_then_what_they_are_given(
    provider: LmdbProvider, part_sizes: list[int], stretches: int
) -> None:
    readers, rows, each, size = 6, 3_000, 50, 2_000
    for reader in range(readers):
        first = 1 + reader * rows
        count = rows // stretches
        provider.append([added(first + at, count, size) for at in range(0, rows, count)])
    for reader in range(readers):
        provider.read(1, 1 + reader * rows, 1 + reader * rows, 1)
    assert sum(part_sizes) < 1.1 * readers * rows * (size + 60)
    part_sizes.clear()
    returned = 0
    for at in range(0, 400, each):
        for reader in range(readers):
            first = 1 + reader * rows + at
            piece = read_piece(provider, 1, [(first, first + each - 1)], 1 << 20)
            assert piece.count == each
            returned += piece.size
    assert sum(part_sizes) < 2 * returned


def test_records_with_very_many_stretches_are_kept_whole(
    provider: LmdbProvider, part_sizes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find one of them the heads of all before it would be read, and again after other records were in use."""
    looked_at: list[int] = []
    step = AddedPlaces._step

    def counted(places: AddedPlaces) -> None:
        looked_at.append(places._at)
        step(places)

    monkeypatch.setattr(AddedPlaces, "_step", counted)
    many, rows = STRETCHES_MAX + 1, 3_000
    for record in range(2):
        provider.append([added(1 + record * rows + at, 1, 800) for at in range(many)])
        provider.append([added(1 + record * rows + many, rows - many, 8_000)])
    part_sizes.clear()
    for _ in range(3):
        for sequence in (many, rows + many):
            assert provider.read(1, sequence, sequence, 1)[0].rows[0] == row(sequence, 800)
    assert looked_at == []
    assert sum(part_sizes) < 4 * many * 900


def test_rows_that_are_picked_from_one_stretch_do_not_each_look_at_the_lengths_of_all(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = 5_000
    provider.append([added(1, rows, 300)])
    provider.pick(1, [1], 1)
    unpacked: list[int] = []

    def counted(lengths: bytes) -> Sequence[int]:
        unpacked.append(len(lengths) // 4)
        return row_sizes(lengths)

    monkeypatch.setattr(windows, "row_sizes", counted)
    wanted = range(3, rows, 5)
    found, _ = provider.pick(1, wanted, 1 << 30)
    assert numbered(found) == {number: row(number, 300) for number in wanted}
    assert sum(unpacked) <= 3 * rows


@pytest.mark.parametrize("stretches", [1, 5, 2_500])
def test_rows_of_any_size_come_as_they_were_written(provider: LmdbProvider, stretches: int) -> None:
    random = Random(stretches)
    sizes = [
        random.choice((0, 1, 300, 1_000, PIECE_BYTES, WINDOW_BYTES + 1)[: 4 + (n % 97 == 0) * 2]) for n in range(5_000)
    ]
    rows = [row(number, size) for number, size in enumerate(sizes, 1)]
    assert sum(map(len, rows)) > RECORD_BYTES_MAX
    assert len(rows) > 4 * MARK_ROWS
    count = len(rows) // stretches
    provider.append(
        [MessagesAdded(1, 1 + at, 1_000, Rows.of(rows[at : at + count])) for at in range(0, len(rows), count)]
    )
    wanted = dict(enumerate(rows, 1))
    assert numbered(read_piece(provider, 1, [(1, len(rows))], 1 << 30).slices) == wanted
    for _ in range(50):
        first = random.randint(1, len(rows))
        last = min(len(rows), first + random.choice((0, 7, 3_000)))
        found = numbered(provider.read(1, first, last, random.choice((1, 10_000, 1 << 30))))
        assert found
        assert list(found) == list(range(first, first + len(found)))
        assert all(found[number] == wanted[number] for number in found)
    scattered = sorted(random.sample(range(1, len(rows) + 1), 200))
    found, looked_at = provider.pick(1, scattered, 1 << 30)
    assert looked_at == len(scattered)
    assert numbered(found) == {number: wanted[number] for number in scattered}


@pytest.mark.parametrize("stretches", [1, 20])
def test_damage_in_a_row_that_nobody_asks_for_is_told_and_looked_for_once(
    provider: LmdbProvider, tmp_path: Path, part_sizes: list[int], stretches: int
) -> None:
    each = 1_000 // stretches
    provider.append([added(1 + at, each, 2_000) for at in range(0, 1_000, each)])
    damage(tmp_path / "data", b"m000900")
    piece = read_piece(provider, 1, [(10, 60), (300, 320)], 1 << 20)
    assert [n for first, last in piece.damaged for n in range(first, last + 1)] == [*range(10, 61), *range(300, 321)]
    assert not piece.slices
    looked = sum(part_sizes)
    assert looked < 2_100 * 1_000
    assert read_piece(provider, 1, [(500, 500)], 1 << 20).damaged == [(500, 500)]
    assert sum(part_sizes) == looked


def test_a_record_that_is_damaged_after_it_was_verified_is_damaged_from_then_on(
    provider: LmdbProvider, tmp_path: Path
) -> None:
    provider.append([added(1, 1_000, 2_000)])
    assert provider.read(1, 1, 1, 1)
    damage(tmp_path / "data", b"m000900")
    with pytest.raises(StorageDamaged, match="journal record 2 is broken") as told:
        provider.read(1, 890, 910, 1 << 20)
    assert told.value.run == (890, 910)
    with pytest.raises(StorageDamaged, match="journal record 2 is broken"):
        provider.read(1, 1, 1, 1)


def test_a_disk_that_cannot_read_now_may_read_the_next_time(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider.append([added(1, 1_000, 2_000)])
    with monkeypatch.context() as patch:

        def unreadable(*_: object) -> bytes:
            raise OSError(5, "Input/output error")

        patch.setattr(provider._journal._disk, "pread", unreadable)
        with pytest.raises(StorageDamaged, match="cannot be read"):
            provider.read(1, 1, 1, 1)
    assert provider.read(1, 1, 1, 1)[0].rows[0] == row(1, 2_000)


def test_what_is_kept_has_a_bound_and_goes_with_the_checkpoint(
    provider: LmdbProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loaded, "PLACES_MAX", 1_000)
    kept = provider._recent._loaded
    for record in range(10):
        provider.append([added(1 + 600 * record + at, 1, 2_000) for at in range(600)])
    for at in (600, 1, 300):
        for record in range(10):
            assert provider.read(1, 600 * record + at, 600 * record + at, 1)[0].rows[0] == row(600 * record + at, 2_000)
            assert kept._places == sum(known.indexed for known in kept._verified.values()) <= 1_000
    assert read_piece(provider, 1, [(1, 6_000)], 1 << 30).count == 6_000
    assert len(kept._pieces._pieces) <= PIECES_MAX
    provider.checkpoint()
    assert (kept._places, len(kept._verified), len(kept._indexed), len(kept._pieces._pieces)) == (0, 0, 0, 0)
