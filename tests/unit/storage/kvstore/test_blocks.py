from unittest.mock import patch

import pytest

from vibemq.errors import StorageDamaged
from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated, QueueDeleted, Record, StageMoved
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import Slice, StoredState
from vibemq.storage.kvstore import blocks, keys
from vibemq.storage.state.arrivals import Arrivals
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.dead_letter_facts import DeadTable
from vibemq.storage.state.reducer import apply
from vibemq.testing.memory_kv import MemoryKV

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


@pytest.mark.parametrize(("first", "count"), [(2, 8), (1, 8), (3, 2)])
def test_a_block_that_a_record_names_in_part_is_not_moved(first: int, count: int) -> None:
    kv, arrivals = MemoryKV(), Arrivals()
    blocks.put_block(kv, 1, [Slice(1, 1, Rows.of([pack_row(f"{n}", b"x") for n in range(9)]))])
    before = dict(kv.scan(b"\0", b"\xff"))
    arrivals.take(StageMoved(2, 1, 5, 1, first, count))
    with pytest.raises(StorageDamaged, match=f"moves messages {first} to {first + count - 1} .* messages 1 to 9"):
        blocks.store_blocks(kv, StoredState(), arrivals, {})
    assert dict(kv.scan(b"\0", b"\xff")) == before


@pytest.mark.parametrize("waits", [None, 30, 104])
def test_blocks_of_a_stage_for_which_nobody_waits_go(waits: int | None) -> None:
    """`waits`: where the group of the queue begins; None: the queue is gone."""
    kv, state, dead, dirty = MemoryKV(), StoredState(), DeadTable(), Dirty()
    rows = Rows.of([pack_row(f"{n}", b"x") for n in range(20)])
    made: list[Record] = [QueueCreated(2, "~stage", QueueOptions(), 1, "2"), GroupCreated(2, 0, "", True, 1)]
    if waits is not None:
        made += [QueueCreated(1, "q", QueueOptions(), 1, "1"), GroupCreated(1, 0, "g", True, waits)]
    for batch in ([*made, MessagesAdded(2, 1, 1, rows)], [StageMoved(1, 1, 5, 2, 1, 20), QueueDeleted(2)]):
        arrivals = Arrivals()
        for record in batch:
            apply(state, record, dead, dirty)
            arrivals.take(record)
        blocks.store_blocks(kv, state, arrivals, dirty.left)
        dirty.clear()
    assert dict(kv.scan(b"\0", b"\xff")) == {}


@pytest.mark.parametrize("damaged", [False, True])
def test_new_blocks_are_joined_to_the_one_before_unless_that_cannot_be_read(damaged: bool) -> None:
    kv, state, dead = MemoryKV(), StoredState(), DeadTable()
    rows = Rows.of([pack_row("m", b"x")])
    apply(state, QueueCreated(1, "q", QueueOptions(), 1, "1"), dead)
    apply(state, GroupCreated(1, 0, "g", True, 1), dead)
    for sequence in (1, 2, 3):
        apply(state, MessagesAdded(1, sequence, 1, rows), dead)
        blocks.put_block(kv, 1, [Slice(sequence, 1, rows)])
    if damaged:
        kv.put(keys.sequence_key(keys.BLOCK_INFO, 1, 1), b"no info at all")
    assert blocks.merge_blocks(kv, state, 1, 2) is None
    assert [info.rows for info in blocks.block_infos(kv, 1, 2)] == ([2] if damaged else [3])
