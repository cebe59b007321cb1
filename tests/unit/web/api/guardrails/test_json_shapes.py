"""What is in a JSON text is counted before it is read."""

import json

import pytest

from vibemq.errors import InvalidMessage
from vibemq.web.api.guardrails.bodies import BODY_BYTES_MAX, read_json
from vibemq.web.api.guardrails.json_shapes import MARKS_MAX, check_shape, more_marks_than


@pytest.mark.parametrize("value", [b"[],", b"{},", b'"",', b'{"a":', b"1,", b'"a":1,', b"["])
def test_many_values_are_refused_before_they_are_read(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orjson.loads", lambda body: pytest.fail("it was read"))
    with pytest.raises(InvalidMessage, match="more than 2,000 values"):
        read_json(b'{"a":[' + value * 40_000 + b"]}")


def test_what_stands_in_texts_is_not_counted() -> None:
    value = {"text": '[{,:"\\' * 1_500, "list": [1, {"a": "b"}]}
    body = json.dumps(value).encode()
    assert len(body) <= BODY_BYTES_MAX
    assert read_json(body) == value
    check_shape(b'"' + b"[" * 100_000 + b'"')
    check_shape(b'"' + b'[\\"' * 100_000)  # it does not end, and is passed once


def test_the_most() -> None:
    check_shape(json.dumps([1] * MARKS_MAX).encode())
    check_shape(json.dumps([",,,"] * MARKS_MAX).encode())
    with pytest.raises(InvalidMessage):
        check_shape(json.dumps([1] * (MARKS_MAX + 1)).encode())
    with pytest.raises(InvalidMessage):
        check_shape(json.dumps([",,,"] * (MARKS_MAX + 1)).encode())


@pytest.mark.parametrize("text", [b"[" * 1_500_000, b'["a",' * 300_000, b'{"a":1,' * 200_000])
def test_counting_ends_where_there_are_too_many(text: bytes) -> None:
    with pytest.raises(InvalidMessage):
        check_shape(text)
    end = more_marks_than(MARKS_MAX).match(text)
    assert end is not None
    assert end.end() < 20_000


def test_what_is_no_json_is_left_to_the_reader_where_it_ends() -> None:
    check_shape(b'"["' * 500_000)
    with pytest.raises(InvalidMessage, match="no JSON"):
        read_json(b'"["' * 10_000)


class Compared(str):
    """Counts how often it is compared."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Compared.count += 1
        return str.__eq__(self, other)


def test_of_very_many_fields_none_is_compared_with_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [*(f"field {number}" for number in range(1_000)), "twice", "twice"]
    pairs = [(Compared(name), 1) for name in names]
    monkeypatch.setattr("json.loads", lambda body, object_pairs_hook: object_pairs_hook(pairs))
    with pytest.raises(InvalidMessage, match="'twice' stands in one object twice"):
        read_json(b"{}")
    assert Compared.count < 2_000


def test_a_field_that_stands_last_and_before_is_found() -> None:
    many = ",".join(f'"{number}":1' for number in range(900))
    with pytest.raises(InvalidMessage, match="'twice' stands in one object twice"):
        read_json(f'{{{many},"twice":1,"twice":1}}'.encode())
