import struct
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage, RemoteProtocolError
from vibemq.model.rows import Rows
from vibemq.protocols.native.bulk import message_extras
from vibemq.protocols.native.codec.extensions import parse_publish_many, parse_stage, publish_many, stage
from vibemq.protocols.native.codec.extra_columns import (
    EXTRA_ROWS_MAX,
    INSTANT_MAX,
    decode_extras,
    encode_extras,
    has_too_many,
)

NOW = 1_000_000
ROWS = 12

some_extra = st.fixed_dictionaries(
    {},
    optional={
        "priority": st.integers(0, 40),
        "ttl_ms": st.integers(1, 9),
        "delay_ms": st.integers(0, 2),
        "deliver_at": st.integers(0, 2),
        "dedup_id": st.sampled_from(["", "a", "ü"]),
    },
)


@given(st.dictionaries(st.integers(0, ROWS - 1), some_extra, min_size=3))
def test_columns_mean_what_json_means(extras: dict[int, dict[str, Any]]) -> None:
    block = encode_extras(ROWS, extras, None)
    assert block is not None
    by_columns = message_extras(decode_extras(block, ROWS), ROWS, NOW) or {}
    by_json = message_extras(extras, ROWS, NOW) or {}
    plain = {index: extra for index, extra in by_columns.items() if index not in by_json}
    assert {index: by_columns[index] for index in by_json if by_columns} == (by_json if by_columns else {})
    assert all(extra == (1, 0, 0, b"") for extra in plain.values())
    assert by_columns or all(extra == (1, 0, 0, b"") for extra in by_json.values())


@given(some_extra.filter(lambda extra: "dedup_id" not in extra))
def test_what_all_rows_have_is_told_once(extra: dict[str, Any]) -> None:
    block = encode_extras(ROWS, {}, extra)
    assert block is not None
    assert len(block) <= 1 + 10 * len(extra)
    found = message_extras(decode_extras(block, ROWS), ROWS, NOW) or {}
    assert found == (message_extras(dict.fromkeys(range(ROWS), extra), ROWS, NOW) if extra else {})


@given(some_extra.filter(lambda extra: extra and "dedup_id" not in extra))
def test_what_every_row_was_given_is_told_once(extra: dict[str, Any]) -> None:
    block = encode_extras(ROWS, dict.fromkeys(range(ROWS), extra), None)
    assert block is not None
    assert len(block) <= 1 + 10 * len(extra)
    assert decode_extras(block, ROWS).at(NOW, ROWS) == decode_extras(encode_extras(ROWS, {}, extra) or b"", ROWS).at(
        NOW, ROWS
    )


def test_what_is_told_for_each_row_and_is_the_same_is_one_value() -> None:
    block = bytes((1, 3, 1)) + struct.pack(f"!{ROWS}Q", *[NOW + 5] * ROWS)
    columns = decode_extras(block, ROWS).at(NOW, ROWS)
    assert columns is not None
    assert columns.deliver_at == NOW + 5


@pytest.mark.parametrize("told", ["json", "common", "each"])
def test_a_frame_has_extras_for_so_many_rows_and_not_more(told: str) -> None:
    def read(count: int) -> Any:
        extra = {"ttl_ms": 5}
        if told == "json":
            return message_extras(dict.fromkeys(range(count), extra), count, NOW)
        block = encode_extras(count, dict.fromkeys(range(count), extra), extra if told == "common" else None)
        assert block is not None
        return message_extras(decode_extras(block, count), count, NOW)

    assert len(read(EXTRA_ROWS_MAX)) == EXTRA_ROWS_MAX
    with pytest.raises(InvalidMessage, match=r"2,049 rows .* may have 2,048 such rows; nothing was accepted"):
        read(EXTRA_ROWS_MAX + 1)


STRANGE_ID = '{"a":{,},"b":{,}}\\"{,'
WHOLE = {"priority": 2, "ttl_ms": 5, "delay_ms": 6, "deliver_at": 7, "dedup_id": STRANGE_ID}


def frame_of(extras: bytes, rows: int) -> bytes:
    """A PublishMany with these extras as they are."""
    small = b'{"0":{}}'
    body = publish_many("id", "q", Rows.of([b""] * rows), {0: {}})
    at = body.index(small)
    return body[: at - 4] + struct.pack("!I", len(extras)) + extras + body[at + len(small) :]


def stage_of(extras: bytes, rows: int) -> bytes:
    small = b'{"0":{}}'
    body = stage("id", "q", {"app": "a"}, Rows.of([b""] * rows), {0: {}})
    at = body.index(small)
    return body[: at - 4] + struct.pack("!I", len(extras)) + extras + body[at + len(small) :]


@pytest.mark.parametrize("rows", [1, 3_000])
@pytest.mark.parametrize(
    "extras",
    [
        "{" + ",".join(f'"{number}":{{}}' for number in range(EXTRA_ROWS_MAX + 1)) + "}",
        "{" + ",".join(f'"{number}":1' for number in range(40_000)) + "}",
        '{"0":[' + "{}," * 40_000 + "{}]}",
        '{"0":[' + ",".join(["[" * 500 + "]" * 500] * 1_000) + "]}",
        '{"0":"{"' + '""' * 100_000 + "{" * 3_000,
    ],
    ids=["one too many", "numbers", "in a list", "lists in lists", "no JSON"],
)
def test_extras_that_are_too_many_are_refused_before_they_are_parsed(
    extras: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[int] = []
    loads = orjson.loads
    monkeypatch.setattr(
        "vibemq.protocols.native.codec.extensions.decoding.orjson.loads",
        lambda text: parsed.append(len(text)) or loads(text),
    )
    for body, parse in ((frame_of, parse_publish_many), (stage_of, parse_stage)):
        frame = parse(body(extras.encode(), rows))
        with pytest.raises(InvalidMessage, match=r"rows of this frame .* may have 2,048 such rows; nothing was accept"):
            message_extras(frame.extras, rows, NOW)
    assert all(size < 100 for size in parsed)


def test_what_stands_in_strings_makes_extras_no_more_than_they_are() -> None:
    extras = dict.fromkeys(range(EXTRA_ROWS_MAX), WHOLE)
    frame = parse_publish_many(frame_of(orjson.dumps(extras, option=orjson.OPT_NON_STR_KEYS), EXTRA_ROWS_MAX))
    assert frame.extras == extras
    made = message_extras(frame.extras, EXTRA_ROWS_MAX, NOW)
    assert made is not None
    assert made[EXTRA_ROWS_MAX - 1].dedup_id == STRANGE_ID.encode()


def test_quotation_marks_without_an_end_are_looked_through_once() -> None:
    assert not has_too_many(b"{" + rb"\"" * 200_000 + b"," * 20_000)


def test_few_rows_and_few_extras_stay_json() -> None:
    assert encode_extras(7, {}, {"delay_ms": 5}) is None
    assert encode_extras(100, {3: {"delay_ms": 5}}, None) is None


def column(name: int, shape: int, values: bytes, *, count: int = 1, more: bytes = b"") -> bytes:
    return bytes((count, name, shape)) + values + more


U64 = (5).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("block", "said"),
    [
        (b"", "inside a column"),
        (b"\1", "inside a column"),
        (column(5, 0, b"1"), "known are"),
        (column(0, 2, b"1"), "known are"),
        (column(0, 0, b"1", count=2, more=b"\0\0\1"), "twice"),
        (column(2, 0, b"short"), "inside a column"),
        (column(2, 1, U64), "inside a column"),
        (column(4, 0, b"\0\1a"), "needs the shape 1"),
        (column(4, 1, b"\0\1\0\1a"), "inside a column"),
        (column(2, 0, U64, more=b"x"), "1 bytes behind"),
    ],
)
def test_what_are_no_columns_breaks_the_protocol(block: bytes, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        decode_extras(block, 2)


@pytest.mark.parametrize("shape", [0, 1])
def test_a_time_beyond_all_times_is_refused_with_its_row(shape: int) -> None:
    block = column(3, shape, U64 * shape + (INSTANT_MAX + 1).to_bytes(8, "big"))
    with pytest.raises(InvalidMessage, match=f"deliver_at of row {shape} is"):
        message_extras(decode_extras(block, 2), 2, NOW)


def test_no_rows_have_no_extras() -> None:
    assert message_extras(decode_extras(column(2, 1, b""), 0), 0, NOW) is None
