import pickle
from collections.abc import Callable
from itertools import count
from threading import Lock
from weakref import ref

import anyio
import pytest
from anyio.lowlevel import checkpoint

from vibemq.client.publishing.outbox import FRAME_ROWS_MAX, Outbox, PublishBatch
from vibemq.client.publishing.outgoing import ROW_BYTES_MAX
from vibemq.client.publishing.receipts import PublishReport, receipt
from vibemq.errors import NotConnected, PublishRefused, QueueFull, RequestTimeout, VibeMQError

pytestmark = pytest.mark.anyio


def ids() -> Callable[[], str]:
    numbers = count(1)
    return lambda: str(next(numbers))


def outbox() -> Outbox:
    return Outbox(messages_max=10, bytes_max=1_000)


def full() -> VibeMQError:
    return QueueFull("q", "max_messages")


def add(box: Outbox, queue: str = "q", row: bytes = b"row") -> tuple[PublishBatch, int]:
    return box.add(queue, row, None, own_dedup=False)


def frames(box: Outbox, new_id: Callable[[], str]) -> list[bytes]:
    """What is sent now: queues and rows of batches, and other frames."""
    taken = box.take(0, 10**6, new_id)
    return [
        item if isinstance(item, bytes) else b"%b: %b" % (item.queue.encode(), b" ".join(item.rows)) for item in taken
    ]


async def test_rows_of_one_turn_share_a_batch_per_queue() -> None:
    box = outbox()
    first, second, other = add(box), add(box), add(box, "other")
    assert (first[1], second[1]) == (0, 1)
    assert first[0] is second[0]
    assert box.take(0, 10**6, ids()) == [first[0], other[0]]
    assert not box.waiting


async def test_other_frames_keep_their_place_between_rows() -> None:
    box = outbox()
    add(box, "a", b"1")
    add(box, "b", b"2")
    box.put_frame(b"purge")
    add(box, "a", b"3")
    assert frames(box, ids()) == [b"a: 1", b"b: 2", b"purge", b"a: 3"]


@pytest.mark.parametrize("sent", [False, True])
async def test_other_frames_go_with_their_connection(sent: bool) -> None:
    box, new_id = outbox(), ids()
    first, _ = add(box, "a", b"1")
    if sent:
        box.take(0, 10**6, new_id)
    box.put_frame(b"purge")
    add(box, "a", b"2")
    box.lost(0.0)
    assert frames(box, new_id) == [b"a: 1", b"a: 2"]
    box.put_frame(b"purge")
    box.fail_all(lambda: NotConnected("over"))
    assert not box.waiting
    assert isinstance(first.refusal(0), NotConnected)


async def test_a_batch_never_outgrows_a_frame() -> None:
    box = Outbox(messages_max=10**6, bytes_max=10**9)
    for _ in range(FRAME_ROWS_MAX + 1):
        add(box)
    assert [batch.count for batch in box.take(0, 10**9, ids())] == [FRAME_ROWS_MAX, 1]


async def test_whole_batches_keep_their_place_behind_single_rows() -> None:
    box = outbox()
    single, _ = add(box)
    whole = PublishBatch("q")
    whole.offer(b"x")
    box.put(whole)
    assert box.take(0, 10**6, ids()) == [single, whole]


async def test_what_was_lost_goes_first_and_in_order() -> None:
    box = outbox()
    new_id = ids()
    first = add(box, "a")[0], add(box, "b")[0]
    box.take(0, 10**6, new_id)
    later = add(box, "c")[0]
    box.lost(0.0)
    assert box.take(1, 10**6, new_id) == [*first, later]
    assert [batch.id for batch in (*first, later)] == ["1", "2", "3"]


async def test_room_comes_with_confirms() -> None:
    box = outbox()
    for _ in range(10):
        add(box)
    assert box.full
    assert not box.idle.is_set()
    (batch,) = box.take(0, 10**6, ids())
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(box.room)
        await anyio.wait_all_tasks_blocked()
        assert box.settled(batch.id) is batch
    assert (box.messages, box.bytes, box.idle.is_set()) == (0, 0, True)


class CountingOutbox(Outbox):
    looks = 0

    @property
    def full(self) -> bool:
        self.looks += 1
        return super().full


@pytest.mark.parametrize("size", [1, 90, 300], ids=["bounded by messages", "by both", "by bytes"])
async def test_very_many_that_wait_for_room_are_woken_when_it_is_their_turn(size: int) -> None:
    box, new_id, order = CountingOutbox(messages_max=10, bytes_max=1_000), ids(), list[int]()

    async def publish(number: int) -> None:
        await box.room()
        box.add("q", b"x" * size, None, own_dedup=False)
        order.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(500):
            tasks.start_soon(publish, number)
        while len(order) < 500:
            await checkpoint()
            for batch in box.take(0, 10**6, new_id):
                assert isinstance(batch, PublishBatch)
                box.settled(batch.id)
    assert order == list(range(500))
    assert box.looks < 10 * 500


async def test_whoever_waits_for_room_no_more_keeps_nobody_else_waiting() -> None:
    box = outbox()
    for _ in range(10):
        add(box)
    (batch,) = box.take(0, 10**6, ids())
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(box.room)
                await anyio.wait_all_tasks_blocked()
                tasks.start_soon(box.room)
                await anyio.wait_all_tasks_blocked()
                box.settled(batch.id)
                # The first one is woken, and cancelled before it has its turn.
                scope.cancel()


async def test_bytes_bound_too() -> None:
    box = outbox()
    add(box, row=b"x" * 1_000)
    assert box.full


async def test_late_answers_fail_and_are_forgotten() -> None:
    box = outbox()
    new_id = ids()
    early = add(box)[0]
    box.take(1, 10**6, new_id)
    late = add(box)[0]
    box.take(2, 10**6, new_id)
    assert box.expire(2, lambda: RequestTimeout("late")) == 1
    assert isinstance(early.refusal(0), RequestTimeout)
    assert box.settled(early.id) is None
    assert not late.done.is_set()


def overdue() -> VibeMQError:
    return NotConnected("nobody there")


async def test_each_waits_as_long_for_a_connection_whenever_it_was_put() -> None:
    box = outbox()
    early = add(box)[0]
    box.expire_unsent(100, 60, 0, overdue)
    box.put_frame(b"purge")
    late = add(box)[0]
    other = add(box, "other")[0]
    box.expire_unsent(130, 60, 0, overdue)
    box.expire_unsent(160, 60, 0, overdue)
    assert (early.done.is_set(), box.messages) == (False, 3)
    box.expire_unsent(160.5, 60, 0, overdue)
    assert isinstance(early.refusal(0), NotConnected)
    assert box.take(161, 10**6, ids()) == [b"purge", late, other]


async def test_who_waits_for_room_waits_no_longer_for_a_connection() -> None:
    box, refused = outbox(), list[VibeMQError]()
    for _ in range(10):
        add(box)

    async def wait() -> None:
        try:
            await box.room()
        except VibeMQError as error:
            refused.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        for now, waits in ((100, True), (160, True), (160.5, False)):
            assert not refused, waits
            box.expire_waiting(now, 60, 0, overdue)
            await anyio.wait_all_tasks_blocked()
    assert [type(error) for error in refused] == [NotConnected]
    assert box.messages == 10


async def test_the_wait_for_a_connection_begins_anew_when_one_is_lost() -> None:
    box, new_id = outbox(), ids()
    sent = add(box)[0]
    box.take(0, 10**6, new_id)
    unsent = add(box)[0]
    box.lost(30)
    box.expire_unsent(90, 60, 30, overdue)
    assert not sent.done.is_set()
    box.take(90, 10**6, new_id)
    box.lost(100)
    box.expire_unsent(160, 60, 100, overdue)
    assert (sent.done.is_set(), unsent.done.is_set()) == (False, False)
    box.expire_unsent(161, 60, 100, overdue)
    assert (sent.done.is_set(), unsent.done.is_set()) == (True, True)
    assert (box.messages, box.waiting) == (0, False)


async def test_the_end_fails_everything() -> None:
    box = outbox()
    sent = add(box)[0]
    box.take(0, 10**6, ids())
    waiting = add(box)[0]
    box.fail_all(lambda: NotConnected("over"))
    for batch in (sent, waiting):
        assert isinstance(batch.refusal(0), NotConnected)
    assert box.messages == 0


async def test_sequences_skip_what_was_refused_or_known() -> None:
    batch = PublishBatch("q")
    for _ in range(6):
        batch.offer(b"row")
    batch.confirm(10, {1: full}, {3: 4})
    report = PublishReport("q", [batch])
    assert [batch.sequence(i) for i in (0, 2, 3, 4, 5)] == [10, 11, 4, 12, 13]
    assert report[3].duplicate
    assert not report[4].duplicate
    assert (len(report), report.accepted, list(report.refused)) == (6, 5, [1])
    with pytest.raises(PublishRefused, match="1 of 6"):
        report.raise_for_refused()
    assert batch.rows == []


async def test_a_message_sent_twice_by_us_is_no_duplicate() -> None:
    batch = PublishBatch("q")
    batch.offer(b"row", {"dedup_id": "ours"})
    batch.own_dedup.add(0)
    batch.confirm(0, {}, {0: 7})
    assert receipt(batch, 0) == ("q", 7, False)


async def test_each_reader_of_a_refusal_gets_its_own_error() -> None:
    batch = PublishBatch("q")
    batch.offer(b"row")
    batch.fail(full)
    assert batch.refusal(0) is not batch.refusal(0)


class Client:
    """A failure that is made of it holds what crosses no process pool."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.host = "here"

    def failed(self) -> VibeMQError:
        error = NotConnected(f"no connection to {self.host}")
        error.__cause__ = OSError("unplugged")
        return error


async def test_a_report_of_what_has_failed_holds_nothing_of_the_client() -> None:
    client = Client()
    batch = PublishBatch("q")
    batch.offer(b"row")
    batch.fail(client.failed)
    client.host = "elsewhere"
    report = PublishReport("q", [batch])
    for each in (report, pickle.loads(pickle.dumps(report))):
        with pytest.raises(NotConnected, match="no connection to here"):
            each[0]
        assert str(each.refused[0]) == "no connection to here"
    refusal = batch.refusal(0)
    assert refusal is not None
    assert isinstance(refusal.__cause__, OSError)
    gone = ref(client)
    del client
    assert gone() is None


async def test_reports_reach_over_batches() -> None:
    batches = []
    for first in (1, 4):
        batch = PublishBatch("q")
        for _ in range(3):
            batch.offer(b"row")
        batch.confirm(first, {}, {})
        batches.append(batch)
    report = PublishReport("q", batches)
    assert [r.sequence for r in report] == [report[i].sequence for i in range(6)] == [1, 2, 3, 4, 5, 6]
    assert (report[-1].sequence, [r.sequence for r in report[2:4]]) == (6, [3, 4])
    with pytest.raises(IndexError):
        report[6]


async def test_nothing_is_taken_behind_a_large_row() -> None:
    """Its frame's head is written with what is taken, and the row behind that."""
    outbox = Outbox(messages_max=100, bytes_max=1 << 30)
    outbox.add("q", b"s" * 10, None, own_dedup=False)
    outbox.add("large", b"L" * (ROW_BYTES_MAX + 1), None, own_dedup=False)
    outbox.add("other", b"s" * 10, None, own_dedup=False)
    ids = (str(number) for number in range(9))
    taken = [[batch.queue for batch in outbox.take(0.0, 1 << 20, lambda: next(ids))] for _ in range(2)]
    assert taken == [["q", "large"], ["other"]]


async def test_extras_that_all_rows_came_with_are_one_object_until_another_comes() -> None:
    batch, common = PublishBatch("q"), {"delay_ms": 5}
    for _ in range(9):
        batch.offer(b"row", common)  # type: ignore[arg-type]
    assert batch.extras == dict.fromkeys(range(9), common)
    assert batch.extra_columns() == bytes((1, 2, 0)) + (5).to_bytes(8, "big")
    batch.offer(b"row")
    batch.offer(b"row", {"delay_ms": 6})
    assert batch.extras == {**dict.fromkeys(range(9), common), 10: {"delay_ms": 6}}
    columns = batch.extra_columns()
    assert columns is not None
    assert columns[3:] == b"".join(delay.to_bytes(8, "big") for delay in [5] * 9 + [0, 6])


async def test_rows_without_extras_before_and_behind_one_that_has_some() -> None:
    batch = PublishBatch("q")
    for extra in (None, {"priority": 2}, None):
        batch.offer(b"row", extra)  # type: ignore[arg-type]
    assert (batch.extras, batch.extra_columns()) == ({1: {"priority": 2}}, None)
    batch.confirm(1, {}, {})
    assert (batch.extras, batch.extra_columns()) == ({}, None)
