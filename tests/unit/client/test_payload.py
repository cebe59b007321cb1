from dataclasses import dataclass

import pytest
from pydantic import BaseModel

from vibemq.client.payload import BINARY, decode, encode
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


def test_decode_follows_the_content_type() -> None:
    assert decode(b'{"a":1}', None) == {"a": 1}
    assert decode(b'{"a":1}', "application/json; charset=utf-8") == {"a": 1}
    assert decode(b"", None) is None
    assert decode(b"{", BINARY) == b"{"
    assert decode(b"hi", "text/plain") == "hi"
