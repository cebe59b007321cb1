"""A frame with one large row, however the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import RemoteProtocolError
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.protocols.native.codec.extensions import (
    DeliverMany,
    begin_deliver_many,
    begin_publish_many,
    deliver_many,
    deliver_one,
    publish_many,
    publish_one,
)
from vibemq.protocols.native.codec.frames import HEADER, HEADER_SIZE, encode_frame
from vibemq.protocols.native.codec.large import LargeFrame, LargeFrameReader, asked_body_bytes

ROW = pack_row("m1", bytes(range(256)) * 5_000, [("k", "v")])
EXTRAS = {0: {"dedup_id": "d" * 300, "priority": 3}}
BODY = publish_many("r1", "q", Rows.of([ROW]), EXTRAS)
PUBLISHES = {60: begin_publish_many}


def fed(body: bytes, sizes: list[int], flag: int = 0) -> tuple[object, LargeRow]:
    frame: LargeFrame[object] = LargeFrame(len(body), flag, PUBLISHES)
    at = 0
    for size in [*sizes, len(body)]:
        at = frame.feed(body[:at] + body[at : at + size], at) if size else at
    assert frame.left == 0
    return frame.finish()


def reader(limit: int) -> LargeFrameReader[DeliverMany]:
    def join(frame: DeliverMany, row: LargeRow) -> None:
        frame.rows = row

    made: LargeFrameReader[DeliverMany] = LargeFrameReader({62: begin_deliver_many}, join)
    made.large_bytes_max = limit
    return made


def test_the_head_of_one_row_is_that_of_a_batch_of_one() -> None:
    assert publish_one("r1", "q", len(ROW), EXTRAS) + ROW == BODY
    assert deliver_one("s", "q", 7, 9, len(ROW), {7: 2}) + ROW == deliver_many("s", "q", 7, 9, Rows.of([ROW]), {7: 2})
    assert deliver_one("s", "q", 7, 9, len(ROW), {}) + ROW == deliver_many("s", "q", 7, 9, Rows.of([ROW]))


@given(st.lists(st.integers(1, 400_000), max_size=30))
def test_the_row_comes_back_however_the_stream_is_cut(sizes: list[int]) -> None:
    frame, row = fed(BODY, sizes)
    assert (frame.id, frame.queue, frame.extras) == ("r1", "q", EXTRAS)  # type: ignore[attr-defined]
    assert (row.count, row[0] == ROW, row.payloads()[0] == bytes(range(256)) * 5_000) == (1, True, True)


def test_a_head_that_comes_byte_by_byte() -> None:
    assert fed(BODY, [1] * 600)[1].data == ROW


def test_what_follows_the_frame_is_left() -> None:
    frame: LargeFrame[object] = LargeFrame(len(BODY), 0, PUBLISHES)
    assert frame.feed(b"before" + BODY + b"after", 6) == 6 + len(BODY)
    assert frame.finish()[1].data == ROW


@pytest.mark.parametrize(
    ("body", "flag", "says"),
    [
        (publish_many("r", "q", Rows.of([ROW, ROW])), 0, "2 rows"),
        (BODY + b"x", 0, "nothing behind it"),
        (bytes((1, 66)) + BODY[2:], 0, "type 66"),
        (BODY, 1, "sent plain"),
        (bytes((1, 60)) + b"\0\1a\0\1q\1\x7f\xff\xff\xff" + bytes(1_400_000), 0, "no row within its first"),
    ],
)
def test_other_bodies_are_refused(body: bytes, flag: int, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        fed(body, [100_000] * 20, flag)


def test_a_length_alone_takes_no_memory() -> None:
    frame: LargeFrame[object] = LargeFrame(1 << 40, 0, PUBLISHES)
    frame.feed(BODY[:100], 0)
    assert frame.left == (1 << 40) - 100


@pytest.mark.parametrize("step", [7, 4_096, 262_144, 10_000_000])
def test_a_reader_gives_large_and_ordinary_frames_in_order(step: int) -> None:
    small = encode_frame(deliver_many("s", "q", 1, 2, Rows.of([b"\0\1a\0\0\0\0\0\0"])))
    body = deliver_many("s", "q", 2, 3, Rows.of([ROW]))
    stream = small + HEADER.pack(len(body), 0) + body + small + HEADER.pack(len(body), 0) + body
    taken = reader(len(body))
    found: list[bytes | DeliverMany] = []
    for at in range(0, len(stream), step):
        taken.receive_data(stream[at : at + step])
        found += taken.frames()
    assert [type(frame) for frame in found] == [bytes, DeliverMany, bytes, DeliverMany]
    assert found[0] == found[2] == small[HEADER_SIZE:]
    assert all(frame.rows.data == ROW for frame in found if isinstance(frame, DeliverMany))
    assert taken.buffered == 0


def test_a_frame_above_what_was_agreed_is_refused_behind_those_before_it() -> None:
    small = encode_frame(deliver_many("s", "q", 1, 2, Rows.of([b"\0\1a\0\0\0\0\0\0"])))
    taken = reader(2_000_000)
    taken.receive_data(small + HEADER.pack(2_000_001, 0))
    assert len(taken.frames()) == 1
    with pytest.raises(RemoteProtocolError, match="2,000,001"):
        taken.frames()


@pytest.mark.parametrize(
    ("text", "bytes_max"), [("", 0), ("17000000", 17_000_000), ("-1", 0), ("1e9", 0), ("²", 0), ("9" * 40, 0)]
)
def test_what_a_peer_asks_for(text: str, bytes_max: int) -> None:
    assert asked_body_bytes({"max-body-bytes": text}) == bytes_max
