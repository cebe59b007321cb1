"""Large JSON is taken apart in steps, and comes to the same as if it were read at once."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.guard.counting import instructions
from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages import forms
from vibemq.protocols.eventmesh.messages.large_json import (
    LARGE_JSON_BYTES,
    LISTS_MAX,
    PARSED_BYTES,
    JsonSplitter,
    is_large,
)
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.rows_of import RowsOf

MEGABYTE = 1 << 20
HOSTILE = {
    "lists": b"[" + b"[]," * 340_000 + b"1]",
    "objects": b"[" + b"{}," * 340_000 + b"1]",
    "deep": b"[" * 500_000 + b"]" * 500_000,
    "keys": b"{" + b",".join(b'"%x":1' % number for number in range(100_000)) + b"}",
    "escapes": b'["' + b'\\"' * 500_000 + b'"]',
    "texts": b"[" + b'"",' * 340_000 + b"1]",
    "numbers": b"[" + b"1," * 500_000 + b"1]",
}
JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5),
    max_leaves=20,
)


def event(data: bytes, **more: Any) -> bytes:
    attributes = {"specversion": "1.0", "id": "e1", "source": "/", "type": "t", "subject": "q", **more}
    return orjson.dumps(attributes)[:-1] + b',"data":' + data + b"}"


def taken_apart(raw: bytes, opaque: str = "data") -> JsonSplitter:
    splitter = JsonSplitter(raw, "a CloudEvent", opaque)
    while not splitter.step():
        pass
    return splitter


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=6), JSON, st.sampled_from([None, orjson.OPT_INDENT_2]))
def test_the_members_are_those_that_a_parser_finds(members: dict[str, Any], data: Any, option: int | None) -> None:
    whole = {**members, "data": data}
    splitter = taken_apart(orjson.dumps(whole, option=option))
    assert splitter.result() == whole
    assert orjson.loads(splitter.text) == data


@given(JSON, st.sampled_from([None, orjson.OPT_INDENT_2]), st.binary(max_size=3), st.data())
def test_what_is_no_object_is_refused_or_ends_in_the_same_place(
    data: Any, option: int | None, junk: bytes, draw: st.DataObject
) -> None:
    raw = orjson.dumps({"a": data, "b": 1}, option=option)
    at = draw.draw(st.integers(0, len(raw)))
    raw = raw[:at] + junk + raw[at + draw.draw(st.integers(0, 3)) :]
    try:
        expected = orjson.loads(raw)
    except orjson.JSONDecodeError:
        expected = None
    try:
        found = taken_apart(raw).result()
    except InvalidMessage:
        assert not isinstance(expected, dict)
    else:
        assert found == expected, "all its members are small, and read"


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_step_is_long_whatever_the_data_is(kind: str) -> None:
    splitter = JsonSplitter(event(HOSTILE[kind]), "a CloudEvent", "data")
    longest, steps, done = 0, 0, False

    def step() -> None:
        nonlocal done
        done = splitter.step()

    while not done and steps < 20:
        longest = max(longest, sum(instructions(step).values()))
        steps += 1
    assert longest < 30_000
    while not splitter.step():
        pass
    assert splitter.text == HOSTILE[kind]
    assert splitter.unread


@pytest.mark.parametrize("blank", ["", " "])
def test_an_event_has_the_row_that_it_has_when_it_is_read_at_once(blank: str) -> None:
    items = (f'{{"n":{blank}{number},"t":"{"x" * 100}"}}' for number in range(LISTS_MAX // 2))
    data = f",{blank}".join(items).encode()
    raw = event(b"[%b]" % data, ttl="5000", tag="x", datacontenttype="application/json")
    rows = RowsOf(headers_max=50, header_value_units_max=4_096)
    assert rows.row(Form.CLOUDEVENT, taken_apart(raw), b"-") == rows.row(Form.CLOUDEVENT, raw, b"-")
    assert forms.read(Form.CLOUDEVENT, taken_apart(raw)) == forms.read(Form.CLOUDEVENT, raw)


@pytest.mark.parametrize("body", [b'"' + b"x" * MEGABYTE + b'"', HOSTILE["numbers"], b"null", b"[1]"])
def test_a_message_has_the_row_that_it_has_when_it_is_read_at_once(body: bytes) -> None:
    raw = b'{"topic":"q","properties":{"a":"1","ttl":"9"},"body":' + body + b"}"
    rows = RowsOf(headers_max=50, header_value_units_max=4_096)
    assert rows.row(Form.MESSAGE, taken_apart(raw, "body"), b"-") == rows.row(Form.MESSAGE, raw, b"-")


def test_what_would_be_headers_may_not_be_very_large() -> None:
    many = b'{"topic":"q","properties":{"a":[' + b"1," * 20_000 + b'1]},"body":""}'
    with pytest.raises(InvalidMessage, match="'properties' of a CloudEvent is too large"):
        taken_apart(many).result()
    members = b"{" + b",".join(b'"%x":1' % number for number in range(2_000)) + b"}"
    with pytest.raises(InvalidMessage, match="more than 1,024 members"):
        taken_apart(members).result()
    text = b'{"topic":"q","properties":{"a":"' + b"x" * 2 * PARSED_BYTES + b'"}}'
    assert len(taken_apart(text).result()["properties"]["a"]) == 2 * PARSED_BYTES


@pytest.mark.parametrize("each", [b"[]", b"{}"])
def test_lists_make_json_large_that_is_short(each: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = (event(b"[" + b",".join([each] * count) + b"]") for count in (LISTS_MAX - 2, LISTS_MAX))
    assert not is_large(few)
    assert is_large(many)
    assert is_large(many.decode())
    assert len(many) < LARGE_JSON_BYTES
    assert taken_apart(many).result()["subject"] == "q"
    monkeypatch.setattr(orjson, "loads", lambda text: pytest.fail("it was read"))
    with pytest.raises(InvalidMessage, match="more than 4,096 JSON lists and objects"):
        forms.read(Form.CLOUDEVENT, many)


def test_json_of_very_many_values_is_written_as_base64() -> None:
    headers = {"ce-specversion": "1.0", "ce-id": "e", "content-type": "application/json"}
    assert b'"data":[1' in forms.write(Form.CLOUDEVENT, "q", "e", b"[1]", headers)
    text = b'"' + b"x" * MEGABYTE + b'"'
    assert b'"data":"xx' in forms.write(Form.CLOUDEVENT, "q", "e", text, headers)
    points = b"[" + b",".join([b"[1.25,2.5]"] * 2 * LISTS_MAX) + b"]"
    assert b'"data":[[1.25' in forms.write(Form.CLOUDEVENT, "q", "e", points, headers)
    for lists in (HOSTILE["lists"], b"[" * 30_000 + b"]" * 30_000):
        assert b'"data_base64":' in forms.write(Form.CLOUDEVENT, "q", "e", lists, headers)
