"""The tail of a queue accounts for every message: shown, left out, or not readable yet."""

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from itertools import compress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.model.effects import QueueHead
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.records import MessagesAdded, StageMoved
from vibemq.model.rows import Rows, pack_row
from vibemq.server.commit.message_taps import MessageTaps
from vibemq.web.api.streams.newest import TailedQueues
from vibemq.web.api.streams.stream import StreamOver
from vibemq.web.api.streams.tail import TailReader


def tails() -> TailedQueues:
    return TailedQueues(lambda queue_id, seen: lambda: None)


def reader(
    per_second: int, hidden: Callable[[], bool] = lambda: False, tailed: TailedQueues | None = None, tail: int = 0
) -> TailReader:
    return TailReader(
        "q",
        lambda queue: QueueHead(1, "i", 0, tail),
        tailed or tails(),
        per_second=per_second,
        preview_bytes=10,
        hidden=hidden,
    )


def told(made: bytes) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(made.split(b"data: ")[1]) if made else {"messages": [], "skipped": 0}
    return found


@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60)), min_size=1, max_size=20),
)
def test_every_message_is_shown_once_or_counted(per_second: int, batches: list[tuple[int, int]]) -> None:
    """`batches`: (messages, how many of the newest cannot be read yet when the next frame is made)."""
    tail = reader(per_second)
    at, sequences, skipped = 1, [], 0
    for count, unreadable in batches:
        tail._newest.note(MessagesAdded(1, at, 5, Rows.of([pack_row(f"m{n}", b"x") for n in range(count)])))
        at += count
        frame = told(tail._frame(max(1, at - unreadable)))
        assert len(frame["messages"]) <= max(1, per_second // 5)
        sequences += [message["sequence"] for message in frame["messages"]]
        skipped += frame["skipped"]
        assert frame["skipped"] >= 0
        assert all(message["sequence"] < max(1, at - unreadable) for message in frame["messages"])
    frame = told(tail._frame(at))
    sequences += [message["sequence"] for message in frame["messages"]]
    assert sequences == sorted(set(sequences))
    assert len(sequences) + skipped + frame["skipped"] == at - 1


@given(st.lists(st.tuples(st.integers(1, 200), st.booleans(), st.booleans()), min_size=1, max_size=20))
def test_tails_of_one_queue_are_told_for_themselves(batches: list[tuple[int, bool, bool]]) -> None:
    """`batches`: (messages, whether the first tail, and the second, makes a frame then)."""
    tailed = tails()
    one, at = reader(50, tailed=tailed), 1
    one._newest.note(MessagesAdded(1, at, 5, Rows.of([pack_row("m", b"x")])))
    at += 1
    other = reader(5, tailed=tailed, tail=at)
    found: dict[TailReader, tuple[list[int], int]] = {one: ([], 0), other: ([], 0)}
    for count, *takes in [*batches, (1, True, True)]:
        one._newest.note(MessagesAdded(1, at, 5, Rows.of([pack_row("m", b"x")] * count)))
        at += count
        for tail in compress((one, other), takes):
            frame = told(tail._frame(at))
            sequences, skipped = found[tail]
            found[tail] = [*sequences, *(m["sequence"] for m in frame["messages"])], skipped + frame["skipped"]
    for tail, before in ((one, 0), (other, 1)):
        sequences, skipped = found[tail]
        assert sequences == sorted(set(sequences))
        assert len(sequences) + skipped == at - 1 - before
        assert before < sequences[0]
        assert sequences[-1] == at - 1


def test_what_is_hidden_meanwhile_is_shown_no_more() -> None:
    hidden: list[bool] = [False]
    tail = reader(50, lambda: hidden[0])
    for sequence in (1, 2):
        tail._newest.note(MessagesAdded(1, sequence, 5, Rows.of([pack_row("m", b"body")])))
        (shown,) = told(tail._frame(10))["messages"]
        assert ("payload" in shown) is not hidden[0]
        hidden[0] = True


@pytest.mark.parametrize("hidden", [False, True])
def test_a_message_is_shown_with_its_parts(hidden: bool) -> None:
    tail = reader(5, lambda: hidden)
    rows = [pack_row("one", b"x"), pack_row("two", b"a body of 20 bytes..", [("k", "v")])]
    extras = {1: MessageExtra(deliver_at=9_000)}
    tail._newest.note(MessagesAdded(1, 7, 5_000, Rows.of(rows), extras))
    [shown] = told(tail._frame(9))["messages"]
    assert (shown["sequence"], shown["id"], shown["payload_size"]) == (8, "two", 20)
    assert shown["deliver_at"] is not None
    assert shown["headers"] == ({"k": None} if hidden else {"k": "v"})
    assert shown.get("payload") == (None if hidden else "a body of ")


def test_what_a_tail_holds_that_nobody_reads_is_bounded_in_bytes() -> None:
    tail = reader(50)
    large = pack_row("m", bytes(1_000_000), [(f"k{n}", "v" * 8_000) for n in range(4)])
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for batch in range(30):
        tail._newest.note(MessagesAdded(1, batch * 2 + 1, 5, Rows.of([large, pack_row("s", b"x")])))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held - before < 1 << 20
    frame = told(tail._frame(61))
    assert frame["messages"][-1]["id"] == "s"
    assert len(frame["messages"]) + frame["skipped"] == 60


def test_headers_that_are_larger_than_a_frame_are_left_out() -> None:
    tail = reader(50)
    tail._newest.note(
        MessagesAdded(1, 1, 5, Rows.of([pack_row("m", b"x", [(f"k{n}", "v" * 60_000) for n in range(2)])]))
    )
    [shown] = told(tail._frame(2))["messages"]
    assert shown["headers"] is None


def test_messages_of_a_stage_are_counted() -> None:
    tail = reader(5)
    tail._newest.note(StageMoved(1, 3, 5_000, 2, 1, 40))
    assert tail._frame(3) == b"", "they cannot be read yet"
    assert tail._frame(3) == b""
    assert told(tail._frame(43)) == {"messages": [], "skipped": 40}
    assert tail._frame(43) == b""


def test_something_is_shown_although_the_newest_cannot_be_read_yet() -> None:
    """10,000 a second, the newest 500 ms of which are not flushed."""
    tail = reader(50)
    for sequence in range(1, 20_001):
        tail._newest.note(MessagesAdded(1, sequence, sequence // 10, Rows.of([pack_row("m", bytes(1_000))])))
    frame = told(tail._frame(15_001))
    assert len(frame["messages"]) == 10
    assert all(13_000 < message["sequence"] <= 15_000 for message in frame["messages"])
    frame = told(tail._frame(20_001))
    assert [message["sequence"] for message in frame["messages"]] == list(range(19_991, 20_001))


def test_a_tail_whose_messages_could_not_be_noted_ends_with_a_word() -> None:
    taps = MessageTaps()
    tailed = TailedQueues(taps.add)
    tail = reader(50, tailed=tailed)
    taps.show([MessagesAdded(1, 1, 5, Rows(1, b"", bytes(5_000)))])
    with pytest.raises(StreamOver, match="could not be looked at"):
        asyncio.run(tail.take(1.0))
    tail.close()
    assert not taps


def test_what_can_be_read_after_the_opening_is_new() -> None:
    tailed = tails()
    first = reader(50, tailed=tailed)
    for sequence in (1, 2):
        first._newest.note(MessagesAdded(1, sequence, 5, Rows.of([pack_row("m", b"x")])))
    # The second message is not flushed yet.
    later = reader(50, tailed=tailed, tail=2)
    assert [message["sequence"] for message in told(later._frame(3))["messages"]] == [2]


def test_messages_with_long_headers_share_a_frame() -> None:
    tail = reader(50)
    for sequence in (1, 2):
        row = pack_row("m", b"x", [(f"k{n}", "v" * 60_000) for n in range(2)])
        tail._newest.note(MessagesAdded(1, sequence, 5, Rows.of([row])))
    frame = told(tail._frame(3))
    assert [(message["sequence"], message["headers"]) for message in frame["messages"]] == [(1, None), (2, None)]
    assert frame["skipped"] == 0
