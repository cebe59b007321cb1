from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.fakes import FakeStorage
from vibemq.model.runs import Run, runs_of
from vibemq.model.stored import Slice
from vibemq.storage.reading import Piece, read_piece, read_scattered

ROW = b"\0\1x\0\0\0\1y\0\0"


def storage(sequences: set[int], damaged: set[int] | None = None) -> FakeStorage:
    store = FakeStorage()
    store.rows = dict.fromkeys(sequences, ROW)
    store.damaged = damaged or set()
    return store


class Picking(FakeStorage):
    """Reads rows far apart from each other in one go."""

    def picks(self, queue_id: int) -> bool:
        return True

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        assert list(sequences) == sorted(sequences)
        found: list[Slice] = []
        for looked_at, sequence in enumerate(sequences):
            if sum(part.rows.size for part in found) >= max_bytes:
                return found, looked_at
            found += self.read(queue_id, sequence, sequence, max_bytes)
        return found, len(sequences)


def members(slices: list[Slice]) -> list[int]:
    return [part.first_sequence + index for part in slices for index in range(part.rows.count)]


def expand(runs: list[Run]) -> set[int]:
    return {sequence for first, last in runs for sequence in range(first, last + 1)}


def test_a_run_is_read_up_to_the_limit_and_the_rest_is_named() -> None:
    piece = read_piece(storage(set(range(1, 11))), 1, [(1, 10)], 4 * len(ROW))
    assert members(piece.slices) == [1, 2, 3, 4]
    assert piece.rest == [(5, 10)]
    assert (piece.count, piece.size) == (4, 4 * len(ROW))


def test_missing_sequences_are_left_out() -> None:
    piece = read_piece(storage({2, 5}), 1, [(1, 10)], 10_000)
    assert members(piece.slices) == [2, 5]
    assert piece.rest == []


def test_scattered_sequences_are_read_as_one_stretch() -> None:
    store = storage(set(range(1, 101)))
    odd = [(sequence, sequence) for sequence in range(1, 100, 2)]
    piece = read_piece(store, 1, odd, 1_000_000)
    assert members(piece.slices) == list(range(1, 100, 2))
    assert store.reads <= 2


def test_sequences_far_apart_are_read_one_by_one() -> None:
    store = storage({1, 1_000_000})
    assert members(read_piece(store, 1, [(1, 1), (1_000_000, 1_000_000)], 10_000).slices) == [1, 1_000_000]


def test_damaged_rows_are_told_apart_from_their_sound_neighbours() -> None:
    piece = read_piece(storage(set(range(1, 9)), damaged={3, 4, 8}), 1, [(1, 8)], 10_000)
    assert members(piece.slices) == [1, 2, 5, 6, 7]
    assert expand(piece.damaged) == {3, 4, 8}
    assert piece.damage is not None


def test_damage_beside_what_is_wanted_is_not_reported() -> None:
    piece = read_piece(storage({1, 2, 3}, damaged={2}), 1, [(1, 1), (3, 3)], 10_000)
    assert members(piece.slices) == [1, 3]
    assert piece.damaged == []


@given(
    wanted=st.lists(st.integers(1, 60), unique=True),
    damaged=st.sets(st.integers(1, 60), max_size=3),
    rows=st.integers(1, 70),
    limit=st.integers(1, 300),
)
def test_scattered_sequences_come_in_the_order_in_which_they_are_wanted(
    wanted: list[int], damaged: set[int], rows: int, limit: int
) -> None:
    store = Picking()
    store.rows, store.damaged = dict.fromkeys(range(1, 51), ROW), damaged
    seen: list[int] = []
    broken: set[int] = set()
    runs = [(sequence, sequence) for sequence in wanted]
    while runs:
        piece = read_scattered(store, 1, runs, rows, limit)
        assert piece.count <= rows
        assert piece.size <= limit + len(ROW) * 8
        seen += members(piece.slices)
        broken |= expand(piece.damaged)
        assert len(piece.rest) < len(runs)
        runs = piece.rest
    assert seen == [sequence for sequence in wanted if sequence <= 50 and sequence not in damaged]
    assert broken == damaged.intersection(wanted)


sequences = st.sets(st.integers(1, 60))


@given(stored=sequences, damaged=sequences, wanted=sequences, limit=st.integers(1, 200))
def test_every_wanted_sequence_has_one_fate(stored: set[int], damaged: set[int], wanted: set[int], limit: int) -> None:
    store = storage(stored | damaged, damaged)
    seen: list[int] = []
    broken: set[int] = set()
    runs = runs_of(wanted)
    for _ in range(200):
        piece: Piece = read_piece(store, 1, runs, limit)
        assert piece.size <= limit + len(ROW) * 8
        seen += members(piece.slices)
        broken |= expand(piece.damaged)
        runs = piece.rest
        if not runs:
            break
    assert runs == []
    assert seen == sorted((wanted & stored) - damaged)
    assert broken == wanted & damaged
