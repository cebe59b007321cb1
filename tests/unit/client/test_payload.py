from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pydantic
import pytest
from pydantic import BaseModel

from vibemq.client.payload import BINARY, decode, encode, validator
from vibemq.errors import LocalProtocolError


@dataclass
class Point:
    x: int


class Order(BaseModel):
    id: int


@pytest.mark.parametrize(
    ("body", "payload", "json"),
    [
        ({"a": [1]}, b'{"a":[1]}', True),
        ("text", b'"text"', True),
        (None, b"null", True),
        (Point(1), b'{"x":1}', True),
        (Order(id=2), b'{"id":2}', True),
        (b'{"a": 1}', b'{"a": 1}', True),
        (b"{broken", b"{broken", False),
        (b"\x00", b"\x00", False),
        (bytearray(b"12"), b"12", True),
        (memoryview(b"true!"), b"true!", False),
        (b"", b"", True),
    ],
)
def test_encode(body: object, payload: bytes, json: bool) -> None:
    assert encode(body) == (payload, json)


def test_a_body_without_json_form_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="type object"):
        encode(object())
    with pytest.raises(LocalProtocolError):
        encode({1, 2})


@pytest.mark.parametrize("body", [Order, [Order], Point, int])
def test_a_class_is_no_body(body: object) -> None:
    with pytest.raises(LocalProtocolError, match="cannot be published"):
        encode(body)


def test_decode_follows_the_content_type() -> None:
    assert decode(b'{"a":1}', None) == {"a": 1}
    assert decode(b'{"a":1}', "application/json; charset=utf-8") == {"a": 1}
    assert decode(b"", None) is None
    assert decode(b"{", BINARY) == b"{"
    assert decode(b"hi", "text/plain") == "hi"


class Total(msgspec.Struct):
    sum: int
    tags: tuple[str, ...] = ()


@dataclass
class Invoice:
    total: Total
    next: "Invoice | None" = None


class Bill(TypedDict):
    invoices: list[Invoice]


@pytest.mark.parametrize(
    ("body", "payload"),
    [
        (Total(3), b'{"sum":3,"tags":[]}'),
        ([Total(3, ("a",)), Total(4)], b'[{"sum":3,"tags":["a"]},{"sum":4,"tags":[]}]'),
        ({"orders": [Order(id=1)], "total": Total(1)}, b'{"orders":[{"id":1}],"total":{"sum":1,"tags":[]}}'),
    ],
)
def test_models_are_published_also_inside_other_values(body: object, payload: bytes) -> None:
    assert encode(body) == (payload, True)


def test_the_error_names_what_has_no_json_form() -> None:
    with pytest.raises(LocalProtocolError, match="type list cannot be published: object has no JSON form"):
        encode([object()])


@pytest.mark.parametrize(
    ("model", "raw", "value"),
    [
        (Total, b'{"sum":3}', Total(3)),
        (list[Total], b'[{"sum":3}]', [Total(3)]),
        (Total | None, b"null", None),
        (Order, b'{"id":3}', Order(id=3)),
        (Invoice, b'{"total":{"sum":3}}', Invoice(Total(3))),
        (Bill, b'{"invoices":[{"total":{"sum":3}}]}', {"invoices": [Invoice(Total(3))]}),
        (list[Order], b'[{"id":3}]', [Order(id=3)]),
        (Point, b'{"x":3}', Point(3)),
        (dict[str, int], b'{"x":3}', {"x": 3}),
    ],
)
def test_payloads_are_read_as_the_model(model: Any, raw: bytes, value: object) -> None:
    read = validator(model)
    assert read is not None
    assert read(raw) == value


@pytest.mark.parametrize(("model", "error"), [(Total, msgspec.ValidationError), (Order, pydantic.ValidationError)])
def test_what_is_not_the_model_raises_the_error_of_its_library(model: Any, error: type[Exception]) -> None:
    read = validator(model)
    assert read is not None
    with pytest.raises(error):
        read(b'{"id":"x","sum":"x"}')


def test_no_model_reads_nothing() -> None:
    assert validator(None) is None
