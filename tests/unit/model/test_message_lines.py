"""Messages as lines of a file: the same row comes back, byte by byte, and whatever is no message is refused."""

import tracemalloc
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidPayload
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.message_lines import message_line, read_message_line
from vibemq.model.rows import pack_row

texts = st.text(max_size=20).map(str.encode) | st.binary(max_size=20)


@st.composite
def rows(draw: st.DrawFn) -> bytes:
    """Any row that a publisher can have stored: ids and headers of any bytes, keys that are empty or repeated."""
    pairs = draw(st.lists(st.tuples(texts, texts), max_size=4))
    block = len(pairs).to_bytes(2, "big")
    for pair in pairs:
        block += b"".join(len(raw).to_bytes(2, "big") + raw for raw in pair)
    message_id = draw(texts.filter(bool))
    return pack_row(message_id, draw(st.binary(max_size=200) | st.text(max_size=200).map(str.encode)))[:-2] + block


@given(rows(), st.integers(0, 31), st.integers(0, 1 << 50), st.integers(0, 1 << 50))
def test_a_line_gives_the_row_back(row: bytes, priority: int, expires_at: int, deliver_at: int) -> None:
    line = message_line(row, sequence=7, expires_at=expires_at, deliver_at=deliver_at) | {"priority": priority}
    read = read_message_line(orjson.loads(orjson.dumps(line)))
    assert read == (row, MessageExtra(priority, expires_at, deliver_at))


def test_what_is_text_stays_readable() -> None:
    row = pack_row("id-1", "für {}".encode(), [("k", "v")])
    assert message_line(row, sequence=3, attempts=0) == {
        "sequence": 3,
        "id": "id-1",
        "headers": {"k": "v"},
        "payload": "für {}",
    }


def test_text_that_json_would_blow_up_is_base64() -> None:
    assert set(message_line(pack_row("x", b"\x01" * 50))) == {"id", "headers", "payload_base64"}


GOOD: dict[str, Any] = {"id": "a", "payload": "p", "headers": {"k": "v"}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("text", "must be an object"),
        ({**GOOD, "colour": "red"}, "unknown key 'colour'"),
        ({"payload": "p"}, "either id or id_base64"),
        ({**GOOD, "id_base64": "YQ=="}, "either id or id_base64"),
        ({**GOOD, "id": ""}, "1 to 65,535 bytes"),
        ({**GOOD, "id": 5}, "id of a message must be text"),
        ({"id": "a"}, "either payload or payload_base64"),
        ({"id": "a", "payload_base64": "§"}, "payload of a message cannot be read"),
        ({**GOOD, "headers": {"k": 1}}, "an object of texts"),
        ({**GOOD, "headers": {"": "v"}}, "names and values that are not empty"),
        ({**GOOD, "headers": {"k": ""}}, "names and values that are not empty"),
        ({**GOOD, "headers": {"k" * 70_000: "v"}}, "headers of a message cannot be stored"),
        ({"id": "a", "payload": "p", "headers_base64": "AAEAAQ=="}, "cannot be decoded as headers"),
        ({**GOOD, "priority": 32}, "0 to 31"),
        ({**GOOD, "expires_at": -1}, "expires_at of a message"),
        ({**GOOD, "deliver_at": True}, "deliver_at of a message"),
        ({**GOOD, "deliver_at": 1 << 63}, "deliver_at of a message"),
    ],
)
def test_what_is_no_message_is_refused(line: Any, reason: str) -> None:
    with pytest.raises(InvalidPayload, match=reason):
        read_message_line(line)


def test_of_a_very_large_value_no_more_is_written_than_is_told() -> None:
    written: list[object] = []

    class Leaf:
        def __repr__(self) -> str:
            written.append(self)
            return "0"

    large = [{str(at): [Leaf()] * 100 for at in range(100)}] * 100
    for line in (large, {**GOOD, "id": large}, {**GOOD, "headers": large}, {**GOOD, "priority": large}):
        with pytest.raises(InvalidPayload, match=r"not \[\{'0': \[0, 0, .*…$"):
            read_message_line(line)
    assert len(written) < 20_000


def test_of_very_many_unknown_keys_no_more_are_written_than_are_told() -> None:
    written: list[object] = []

    class Key:
        def __str__(self) -> str:
            written.append(self)
            return "k"

    with pytest.raises(InvalidPayload, match=r"unknown key 'k, k, .*…;"):
        read_message_line({Key(): 0 for _ in range(10_000)})
    assert len(written) <= 40


def test_long_unknown_keys_are_not_joined_whole() -> None:
    line = {f"{number:02}{'k' * 100_000}": 0 for number in range(40)}
    tracemalloc.start()
    try:
        with pytest.raises(InvalidPayload, match=r"unknown key '00kk"):
            read_message_line(line)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: st.dictionaries(st.sampled_from([*GOOD, "headers_base64", "priority"]), inner),
    )
)
def test_garbage_is_refused_and_nothing_else(value: Any) -> None:
    try:
        read_message_line(value)
    except InvalidPayload:
        return
