"""What is published over HTTP: bytes that nobody has touched, or a sentence about what is wrong."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vibemq.errors import InvalidPayload, VibeMQError
from vibemq.model.effects import Published
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.rows import RowView
from vibemq.model.steps import at_once
from vibemq.web.api.messages import publishing
from vibemq.web.api.messages.publishing import (
    LOOKED_AT_BYTES,
    MessageMaker,
    NewMessages,
    read_batch,
    read_lines,
    strict_json,
)

NOW = 1_000_000
WHOLE_CHARACTERS = st.characters(codec="utf-8")


def maker(key: str = "") -> MessageMaker:
    return MessageMaker(now=NOW, size_max=1_048_576, key=key, key_id=key and f"id-of-{key}", new_id=lambda: "made")


def test_the_extras_of_a_message() -> None:
    value = {"priority": "critical", "ttl_ms": 5, "delay_ms": 7, "dedup_id": "d", "payload": "x"}
    assert maker().from_json(value, 0).extra == MessageExtra(3, NOW + 5, NOW + 7, b"d")
    assert maker().from_json({"deliver_at": "1970-01-01T00:30:00+00:00"}, 0).extra == MessageExtra(1, 0, 1_800_000)
    assert maker().from_json({"payload": "x", "priority": "normal"}, 0).extra is None
    assert maker("key").from_json({}, 4).extra == MessageExtra(dedup_id=b"id-of-key/4")
    assert maker("key").from_json({"dedup_id": "own"}, 4).extra == MessageExtra(dedup_id=b"own")
    assert maker("key").from_request([], b"").extra == MessageExtra(dedup_id=b"id-of-key")
    assert maker("key").from_body(b"x", 2).extra == MessageExtra(dedup_id=b"id-of-key/2")


@given(st.binary(max_size=200), st.dictionaries(st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9)))
def test_bytes_and_headers_go_through_unchanged(payload: bytes, headers: dict[str, str]) -> None:
    value = {"payload_base64": base64.b64encode(payload).decode(), "headers": headers}
    try:
        view = RowView(maker().from_json(value, 0).row)
    except VibeMQError:
        assert any("\ud800" <= letter <= "\udfff" for text in (*headers, *headers.values()) for letter in text)
        return
    assert (view.message_id, view.payload, view.headers) == ("made", payload, headers)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"vibemq-header-a", b"1"), (b"vibemq-headers", b'{"a": "2"}')],
        [(b"vibemq-header-a", b"1"), (b"vibemq-header-a", b"1")],
    ],
)
def test_a_header_of_the_message_is_given_once(headers: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(InvalidPayload, match=r"header 'a' is given more than once; leave out vibemq-header-a"):
        maker().from_request(headers, b"x")


@pytest.mark.parametrize(
    ("headers", "told"),
    [({"": "x"}, "no name"), ({"a": 1}, r"value of header 'a' must be text .*, not '1'"), ({"a": ""}, "value of")],
)
def test_what_is_wrong_with_a_header_is_told(headers: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidPayload, match=told):
        maker().from_json({"payload": "x", "headers": headers}, 0)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    ["payload", "payload_base64", "id", "headers", "content_type", "priority", "ttl_ms", "deliver_at", "dedup_id", "x"]
)


@settings(deadline=None)
@given(st.one_of(JSON, st.dictionaries(FIELDS, JSON)))
def test_whatever_comes_is_a_message_or_an_error_of_the_family(value: Any) -> None:
    batch = NewMessages()
    batch.add(lambda index: maker().from_json(value, index), 1)
    assert (len(batch.rows), len(batch.refused)) in ((1, 0), (0, 1))


@settings(deadline=None)
@given(st.binary(max_size=300))
def test_whatever_bytes_come_as_lines(body: bytes) -> None:
    batch = NewMessages()
    try:
        for _ in read_lines(maker(), body, batch, bodies=False):
            pass
    except VibeMQError:
        assert not body.strip()
    assert len(batch.rows) + len(batch.refused) == batch.count


@pytest.mark.parametrize("text", [b"[" * 100_000, b'{"a":1,"a":1}', b"NaN", b"\xff", b"", b"1" * 10_000])
def test_json_that_is_none(text: bytes) -> None:
    with pytest.raises(VibeMQError):
        strict_json(text)


def line_json(text: bytes) -> Any:
    return at_once(publishing.line_json(text))


MANY = {
    "lists": b'{"payload":[' + b"[]," * 10_000 + b"[]]}",
    "names": b"{" + b",".join(b'"k%d":1' % n for n in range(10_000)) + b"}",
    "blanks": b"{" + b" " * 20_000 + b"}",
    "digits": b'{"ttl_ms":' + b"1" * 20_000 + b"}",
    "no end": b'{"payload":"' + b'\\"' * 20_000,
    "length": b'"' + b"x" * 1_500_000 + b'"',
}


@pytest.mark.parametrize("text", MANY.values(), ids=MANY)
def test_a_line_that_would_take_long_to_read_is_not_read(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing.orjson, "loads", lambda text: pytest.fail("it was read"))
    with pytest.raises(VibeMQError):
        line_json(text)


@pytest.mark.parametrize("payload", ["x" * 1_000_000, json.dumps([{"a": '"\\'}] * 20_000), "\x00" * 100_000])
def test_a_large_line_is_read(payload: str) -> None:
    value = {"payload": payload, "headers": {f"h{n}": "v" * 50 for n in range(50)}}
    assert line_json(json.dumps(value).encode()) == value


def test_a_large_line_is_looked_at_in_short_steps() -> None:
    line = json.dumps({"payload": "\n" * 500_000}).encode()
    assert sum(1 for _ in publishing.line_json(line)) >= len(line) // publishing.LOOKED_AT_BYTES


@pytest.mark.parametrize(
    "line",
    [
        b'{"payload":"%b","payload":"y"}',
        b'{"payload":"%b","headers":{"a":"1","\\u0061":"2"}}',
        b'{"payload":"%b","ttl_ms":NaN}',
        b'{"payload":"%b\xff"}',
        b'{"payload":"%b',
        b'{"payload":"%b\\',
        b"[" * 1_020 + b'"%b"' + b"]" * 1_020,
    ],
)
def test_a_large_line_is_refused_where_a_short_one_is(line: bytes) -> None:
    batch = NewMessages()
    for filler in (b"x", b"x" * publishing.LOOKED_AT_BYTES):
        for _ in read_lines(maker(), line % filler, batch, bodies=False):
            pass
    assert (len(batch.refused), batch.count) == (2, 2)


@settings(deadline=None)
@given(st.dictionaries(st.text(WHOLE_CHARACTERS), st.text(WHOLE_CHARACTERS)), st.integers(2, 40))
def test_the_cut_of_the_steps_does_not_change_what_is_read(value: dict[str, str], size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "LOOKED_AT_BYTES", size)
        patch.setattr(publishing, "BETWEEN_BYTES_MAX", 10_000)
        assert line_json(json.dumps(value).encode()) == value


def test_a_batch_that_is_no_good_is_refused_before_anything() -> None:
    for value in (
        None,
        [],
        {},
        {"messages": 1},
        {"messages": []},
        {"messages": [{}] * 1_001},
        {"messages": [], "x": 1},
    ):
        with pytest.raises(VibeMQError):
            list(read_batch(maker(), value, NewMessages()))


def test_early_and_late_refusals_are_told_in_order() -> None:
    batch = NewMessages()
    lines = b'{"payload": "0"}\n\nbad\n{"payload": "2"}\n{"payload": "3"}'
    list(read_lines(maker(), lines, batch, bodies=False))
    late = VibeMQError("full")
    published = Published("q", 1, 3, {1: late, 2: late})
    assert [(one.number, one.line) for one in batch.all_refused(published)] == [(1, 3), (2, 4), (3, 5)]


def test_a_large_batch_of_lines_costs_one_step_each() -> None:
    body = b"\n".join(json.dumps({"payload": str(n)}).encode() for n in range(1_000))
    assert sum(1 for _ in read_lines(maker(), body, NewMessages(), bodies=False)) == 1_000


@pytest.mark.parametrize("blank", [b"\n", b" \n", b"\r\n", b"\t \n"])
@pytest.mark.parametrize("bodies", [False, True])
def test_blank_lines_are_passed_in_short_steps_and_counted(blank: bytes, bodies: bool) -> None:
    batch = NewMessages()
    steps = read_lines(maker(), b"{}\n" + blank * 100_000 + b"bad\xff\n" + blank * 3 + b" {}", batch, bodies=bodies)
    assert sum(1 for _ in steps) >= 100_000 * len(blank) // LOOKED_AT_BYTES
    assert [line for _, line in batch.places] == [1, 100_002, 100_006][:: 1 if bodies else 2]
    assert [one.line for one in batch.refused] == ([] if bodies else [100_002])


def test_a_body_of_blank_lines_has_no_message() -> None:
    with pytest.raises(InvalidPayload, match="no line"):
        list(read_lines(maker(), b"\n" * 100_000, NewMessages(), bodies=False))


@pytest.mark.parametrize(
    ("header", "value", "rule"),
    [
        ("vibemq-ttl-ms", "abc", "must be a whole number of milliseconds, 1 or more"),
        ("vibemq-priority", "urgent", "must be low, normal, high, critical, or a number from 0 to"),
        ("vibemq-deliver-at", "tomorrow", "must be an instant with its zone"),
        ("vibemq-message-id", "", "must be text of at least one character"),
    ],
)
def test_what_was_written_as_a_header_is_named_as_one(header: str, value: str, rule: str) -> None:
    with pytest.raises(InvalidPayload) as refused:
        maker().from_request([(header.encode(), value.encode())], b"x")
    assert refused.value.argument == header
    assert str(refused.value).startswith(f"the header {header} {rule}")
