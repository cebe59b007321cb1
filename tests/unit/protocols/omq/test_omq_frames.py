"""Frames, byte for byte."""

import pytest

from tests.unit.protocols.omq.world import rows
from vibemq.errors import QueueNotFound, StorageDamaged
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.omq.errors import Refusal, error_text
from vibemq.protocols.omq.frames import (
    Error,
    OmqFrameReader,
    Ping,
    Topic,
    decode_frame,
    error_frame,
    message_frames,
    ping_frame,
    subscribed_frame,
    unsubscribed_frame,
)


@pytest.mark.parametrize(
    ("frame", "hexadecimal"),
    [
        (error_frame("no such topic"), "0000000e 00 6e6f207375636820746f706963"),
        (ping_frame(1_700_000_000), "00000005 01 6553f100"),
        (ping_frame(2**32 - 1), "00000005 01 ffffffff"),
        (ping_frame(2**32 + 5), "00000005 01 00000005"),
        (message_frames(rows(b"hi"), 42, 7), "0000000f 02 000000000000002a 00000007 6869"),
        (message_frames(rows(b""), 43, 7), "0000000d 02 000000000000002b 00000007"),
        (subscribed_frame(Topic(7, b"orders")), "00000017 03 " + b"((id 7)(topic orders))".hex()),
        (unsubscribed_frame(Topic(7, b"a b")), "00000015 04 " + b'((id 7)(topic"a b"))'.hex()),
    ],
)
def test_bytes(frame: bytes, hexadecimal: str) -> None:
    assert frame == bytes.fromhex(hexadecimal)


def test_messages_are_numbered_and_carry_the_payload_alone() -> None:
    published = Rows.of([pack_row("i" * n, b"p" * n, [("k", "v")] * n) for n in range(1, 300)])
    reader = OmqFrameReader()
    reader.receive_data(message_frames(published, 1 << 61, 3))
    found = [(frame.id, frame.topic_id, frame.body) for frame in reader.frames()]  # type: ignore[union-attr]
    assert found == [((1 << 61) + n - 1, 3, b"p" * n) for n in range(1, 300)]


def test_no_messages_are_no_bytes() -> None:
    assert message_frames(Rows.of([]), 1, 1) == b""


def test_a_reader_waits_for_whole_frames() -> None:
    reader = OmqFrameReader()
    for byte in ping_frame(9) + error_frame("x"):
        reader.receive_data(bytes((byte,)))
    assert list(reader.frames()) == [Ping(9), Error("x")]


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        (5, b""),
        (255, b"x"),
        (1, b"123"),
        (1, b"12345"),
        (2, b"x" * 11),
        (3, b""),
        (3, b"((id 1))"),
        (3, b"((id x)(topic a))"),
        (3, b"((id 1)(topic a)"),
        (3, b"((id 1)(topic a)) b "),
        (4, b"(Subscribed((id 1)(topic a)))"),
    ],
)
def test_what_no_broker_sends(kind: int, payload: bytes) -> None:
    with pytest.raises(ValueError):
        decode_frame(kind, payload)


def test_a_frame_of_no_length_is_an_error() -> None:
    reader = OmqFrameReader()
    reader.receive_data(b"\0\0\0\0\0")
    with pytest.raises(ValueError, match="no length"):
        list(reader.frames())


def test_error_texts_are_one_line_and_not_endless() -> None:
    assert error_text(Refusal("not subscribed", "a\nb\r\0c")) == "not subscribed: a b  c"
    assert len(error_text(Refusal("x", "y" * 5_000))) == 1024
    assert error_text(QueueNotFound("orders"), "orders") == "unknown topic: orders"
    assert error_text(StorageDamaged("broken", path="/secret")).startswith("server error: ")
