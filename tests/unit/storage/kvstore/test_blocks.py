from unittest.mock import patch

from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice
from vibemq.storage.kvstore import blocks

PARTS = [Slice(3 * n + 1, 1_000 + n, Rows.of([pack_row(f"{n}", b"x")])) for n in range(500)]


def test_a_read_makes_the_slices_that_it_takes_and_no_others() -> None:
    parts = blocks.BlockParts(b"".join(blocks.encode_block(PARTS)))
    with patch.object(blocks, "Slice", wraps=Slice) as made:
        found = list(blocks.between(parts, 302, 330))
    assert found == PARTS[101:110]
    assert made.call_count <= len(found) + 1
    assert list(parts) == PARTS
    assert (parts[-1], parts[2:4]) == (PARTS[-1], PARTS[2:4])


def test_a_read_begins_inside_a_stretch() -> None:
    rows = Rows.of([pack_row(f"{n}", b"x") for n in range(6)])
    parts = blocks.BlockParts(b"".join(blocks.encode_block([Slice(5, 1, rows), Slice(20, 2, rows)])))
    assert [(part.first_sequence, part.rows.count) for part in blocks.between(parts, 9, 21)] == [(9, 2), (20, 2)]
    assert [parts.first_reaching(sequence) for sequence in (1, 5, 10, 11, 20, 25, 26)] == [0, 0, 0, 1, 1, 1, 2]
