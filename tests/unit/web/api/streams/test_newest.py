"""What the tails of a queue share: noted once for all of them, and let go of with the last."""

from collections.abc import Callable

from vibemq.model.records import MessagesAdded
from vibemq.model.rows import Rows, pack_row
from vibemq.web.api.streams.newest import KEPT_BYTES, OF_RECORD, NewestMessages, Seen, TailedQueues


def added(first: int, count: int = 1, size: int = 10, at: int = 0) -> MessagesAdded:
    return MessagesAdded(1, first, at, Rows.of([pack_row("m", bytes(size))] * count))


def test_a_queue_is_tapped_once_from_its_first_tail_to_its_last() -> None:
    tapped: list[tuple[str, int]] = []

    def tap(queue_id: int, seen: Seen) -> Callable[[], None]:
        tapped.append(("begin", queue_id))
        return lambda: tapped.append(("end", queue_id))

    tailed = TailedQueues(tap)
    one = tailed.enter(1)
    assert tailed.enter(1) is one
    assert tailed.enter(2) is not one
    tailed.leave(1)
    assert tapped == [("begin", 1), ("begin", 2)]
    tailed.leave(1)
    assert tapped[2:] == [("end", 1)]
    assert tailed.enter(1) is not one, "what came before is nothing to a new tail"


def test_a_large_record_is_let_go_of() -> None:
    newest = NewestMessages()
    record = added(1, count=100, size=10_000)
    newest.note(record)
    (kept,) = newest._kept
    assert kept._record is None
    assert all(len(message.part) == 4_096 for message in kept.newest_first())


def test_the_newest_of_a_record_are_cut_when_they_are_asked_for() -> None:
    newest = NewestMessages()
    newest.note(added(1, count=100))
    (kept,) = newest._kept
    assert kept._record is not None
    assert [message.sequence for message in newest.between(0, 101)] == list(range(100, 100 - OF_RECORD, -1))
    assert not newest._kept[0]._record
    assert [message.sequence for message in newest.between(97, 101)] == [100, 99, 98]
    assert [message.sequence for message in newest.between(0, 93)] == [92, 91]


def test_what_is_kept_is_bounded_and_reaches_back_in_time() -> None:
    newest = NewestMessages()
    for sequence in range(1, 20_001):
        newest.note(added(sequence, at=sequence // 20))
        assert newest._bytes <= KEPT_BYTES
        assert newest._bytes == sum(each.size for each in newest._kept)
    firsts = [each.first for each in newest._kept]
    assert firsts == sorted(firsts)
    assert firsts[0] < 1_000
    assert firsts[-OF_RECORD:] == list(range(20_001 - OF_RECORD, 20_001))


def test_at_least_the_newest_is_kept_however_large_and_a_clock_that_goes_back_changes_no_order() -> None:
    newest = NewestMessages()
    headers = [(f"k{n}", "v" * 60_000) for n in range(4)]
    for sequence in range(1, 5):
        newest.note(MessagesAdded(1, sequence, 9 - sequence, Rows.of([pack_row("m", b"x", headers)])))
    assert [each.first for each in newest._kept] == [4]
    for sequence in range(5, 2_005):
        newest.note(added(sequence, at=sequence % 50))
    firsts = [each.first for each in newest._kept]
    assert firsts == sorted(firsts)


def test_those_behind_the_tail_are_not_readable() -> None:
    newest = NewestMessages()
    newest.note(added(11, count=5))
    newest.note(added(16, count=5))
    # Numbers that a refused message had are left out of the sequences, not of the count.
    newest.note(added(31, count=5))
    found = {tail: newest.readable(tail) for tail in (1, 11, 13, 16, 21, 25, 31, 33, 36, 99)}
    assert found == {1: 0, 11: 0, 13: 2, 16: 5, 21: 10, 25: 10, 31: 10, 33: 12, 36: 15, 99: 15}


def test_those_that_were_left_out_count_when_they_can_be_read() -> None:
    newest = NewestMessages()
    for sequence in range(1, 20_001):
        newest.note(added(sequence, at=sequence // 20))
    assert len(newest._kept) < 1_000
    for tail in (19_000, 19_500, 19_999, 20_001):
        assert newest.readable(tail) == tail - 1


def test_large_messages_that_come_alone_are_all_shown() -> None:
    newest = NewestMessages()
    for sequence in range(1, 41):
        newest.note(added(sequence, size=40_000, at=5 * sequence))
    assert [message.sequence for message in newest.between(0, 41)][:10] == list(range(40, 30, -1))


def test_large_batches_leave_room_for_some_that_can_be_read() -> None:
    newest = NewestMessages()
    for number in range(80):
        newest.note(added(1 + 20 * number, count=20, size=4_000, at=3 * number))
        assert newest._bytes <= KEPT_BYTES
        assert newest._bytes == sum(each.size for each in newest._kept)
    # Eight publishers wait for a flush.
    tail = 1 + 20 * 72
    assert len(list(newest.between(0, tail))) >= 5
    assert newest.readable(tail) == 20 * 72
