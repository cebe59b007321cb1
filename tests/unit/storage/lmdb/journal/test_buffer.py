"""What the buffer of recent rows counts as held."""

from vibemq.model.rows import Rows, pack_row
from vibemq.storage.lmdb.journal.buffer import _FREED_AT_ONCE, WriteBuffer


def no_row(place: int, queue_id: int, first: int) -> Rows:
    raise AssertionError((place, queue_id, first))


def test_a_queue_of_very_many_stretches_is_freed_in_part_and_wholly_with_the_next_release() -> None:
    count = 2 * _FREED_AT_ONCE
    buffer = WriteBuffer(no_row, bytes_max=1 << 30)
    for number in range(1, count + 1):
        buffer.add(1, number, 0, Rows.of([pack_row("m", b"x")]), lsn=number, place=number)
    buffer.add(2, 1, 0, Rows.of([pack_row("m", b"x")]), lsn=count + 1, place=0)
    each = buffer.bytes_held // (count + 1)
    buffer.forget_queue(1)
    assert buffer.bytes_held == each * (_FREED_AT_ONCE + 1)
    assert buffer.first_buffered(1) is None
    assert not list(buffer.read(1, 1, count))
    buffer.release(count, most=2 * count)
    assert buffer.bytes_held == each
    buffer.release(count + 1, most=2 * count)
    assert buffer.bytes_held == 0


def test_what_the_store_has_is_forgotten_in_portions_of_whole_batches() -> None:
    buffer = WriteBuffer(no_row, bytes_max=1 << 30)
    for sequence, lsn in enumerate([1, 1, 1, 2, 3, 3, 4, 5], start=1):
        buffer.add(1, sequence, 0, Rows.of([pack_row("m", b"x")]), lsn=lsn, place=sequence)
    reached = []
    firsts = []
    while not reached or reached[-1] < 4:
        reached.append(buffer.release(4, most=2))
        firsts.append(buffer.first_buffered(1))
    assert (reached, firsts) == ([1, 2, 3, 4], [4, 5, 7, 8])
