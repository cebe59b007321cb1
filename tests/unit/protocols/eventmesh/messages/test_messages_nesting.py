"""What nests too deeply is refused where it comes in, and where it would go out: it is never a fault of ours."""

from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.errors import InvalidMessage
from vibemq.protocols.eventmesh.messages import forms, names
from vibemq.protocols.eventmesh.messages.cloudevent import read_event
from vibemq.protocols.eventmesh.messages.message import PROPERTIES_MAX, message_of, read_message
from vibemq.protocols.eventmesh.messages.names import Form
from vibemq.protocols.eventmesh.messages.nesting import DEPTH_MAX
from vibemq.protocols.eventmesh.messages.rows_of import RowsOf

READERS = [
    pytest.param(lambda form, raw: forms.read(form, raw), id="alone"),
    pytest.param(
        lambda form, raw: RowsOf(headers_max=47, header_value_units_max=4096).row(form, raw, b"m"), id="stream"
    ),
]
Read = Callable[[Form, bytes], Any]
EVENT = b'{"specversion":"1.0","id":"e","source":"s","type":"t","subject":"q",%b}'
DEPTHS = (DEPTH_MAX + 1, 253, 254, 255, 1_000)


def lists(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def message(member: bytes) -> bytes:
    return b'{"topic":"q",%b}' % member


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("member", [b'"properties":{"a":%b}', b'"headers":{"a":%b}', b'"properties":{"ttl":%b}'])
def test_a_message_that_nests_too_deeply_is_refused(read: Read, member: bytes, depth: int) -> None:
    with pytest.raises(InvalidMessage, match="nests too deeply"):
        read(Form.MESSAGE, message(member % lists(depth)))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("depth", [255, 1_000])
def test_a_body_that_could_not_be_written_again_is_refused(read: Read, depth: int) -> None:
    with pytest.raises(InvalidMessage, match="nests too deeply"):
        read(Form.MESSAGE, message(b'"body":%b' % lists(depth)))


@pytest.mark.parametrize("read", READERS)
def test_more_than_a_header_can_hold_is_not_looked_at(read: Read) -> None:
    with pytest.raises(InvalidMessage, match="too large for a header"):
        read(Form.MESSAGE, message(b'"properties":{"a":[%b]}' % b",".join([b"1"] * 40_000)))


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("depth", [255, 256, 1_000])
@pytest.mark.parametrize("member", [b'"data":%b', b'"data" : %b', b'"data":%b,"data": 1', b'"x":%b, "data" : 1'])
def test_an_event_that_nests_too_deeply_is_refused(read: Read, member: bytes, depth: int) -> None:
    try:
        read(Form.CLOUDEVENT, EVENT % (member % lists(depth)))
    except InvalidMessage:
        return
    # Of two members of a name the last one counts, which is not deep.
    assert member.count(b'"data"') == 2


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("name", ["id", "specversion", "subject", "datacontenttype", "ttl", names.EXTENSION_EXACT])
def test_an_attribute_that_nests_is_refused_or_left_out(read: Read, name: str) -> None:
    raw = EVENT % (b'"%b":%b' % (name.encode(), lists(1_000)))
    try:
        read(Form.CLOUDEVENT, raw)
    except InvalidMessage:
        return
    assert name == names.EXTENSION_EXACT


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("member", [b'"body":%b', b'"properties":{"a":%b}', b'"headers":{"a":%b}'])
def test_as_deep_as_is_allowed_is_taken_and_written(read: Read, member: bytes) -> None:
    raw = message(member % lists(200 if member.startswith(b'"body') else DEPTH_MAX - 1))
    read(Form.MESSAGE, raw)
    came = read_message(raw)
    for form in Form:
        assert orjson.loads(forms.write(form, "q", "m", came.payload, dict(came.headers)))


def test_more_properties_than_any_message_has_are_refused_before_anything_is_made_of_them() -> None:
    many = {f"p{number}": number for number in range(PROPERTIES_MAX + 1)}
    with pytest.raises(InvalidMessage, match="at most 1,024"):
        message_of("q", "x", many)
    with pytest.raises(InvalidMessage, match="at most 1,024"):
        read_event(EVENT % orjson.dumps(many)[1:-1])


DEEP = st.integers(0, 1_100).map(lambda depth: lists(depth).decode())
TEXT = st.characters(exclude_categories=["Cs"])
HOSTILE = st.one_of(
    st.text(TEXT, min_size=1, max_size=12),
    DEEP.map(lambda text: f'{{"a":{text}}}'),
    DEEP,
    st.sampled_from(["{}", "[]", "{", "null", "1e999", '{"":""}', '{"data":""}', '{"datacontenttype":""}', *Form]),
)
NAMES = st.one_of(
    st.sampled_from(
        [
            *sorted(names.KEPT_BACK),
            *names.REPLY_NAMES,
            *(names.ENCODING, names.CONTENT_TYPE, names.EXTENSION_EXACT),
            *(
                "data",
                "data_base64",
                "ce-",
                "ce-data",
                "ce-data_base64",
                "ce-datacontenttype",
                "ce-datacontentencoding",
            ),
            *("ce-specversion", "ce-id", "ce-source", "ce-type", "ce-subject", "ce-ttl", "specversion", "subject"),
        ]
    ),
    st.text(TEXT, min_size=1, max_size=6),
)
CONTENT_TYPES = st.sampled_from(["application/json", "text/plain", "text/plain; charset=x", "application/octet-stream"])


@given(st.dictionaries(NAMES, HOSTILE, max_size=8), st.none() | CONTENT_TYPES, st.binary(max_size=8), st.booleans())
def test_a_row_of_any_origin_is_written_or_refused_with_a_reason(
    headers: dict[str, str], content_type: str | None, payload: bytes, with_headers: bool
) -> None:
    if content_type is not None:
        headers[names.CONTENT_TYPE] = content_type
    for form in Form:
        try:
            whole = forms.write(form, "q", "m", payload, headers, {"cluster": "c"}, with_headers=with_headers)
        except InvalidMessage:
            # Its reason is told to the DLQ.
            assert any("[" * DEPTH_MAX in value for value in headers.values())
            continue
        fields = orjson.loads(whole)
        if form is Form.CLOUDEVENT:
            assert not ({"data", "data_base64"} <= fields.keys())
            assert payload or "data" not in fields
