"""What `vibemq pub` reads from a pipe, however it comes in pieces."""

from types import SimpleNamespace

import anyio
import pytest

from vibemq.cli import pub
from vibemq.errors import MessageTooLarge


class Piece(bytes):
    """Of what was read: put together with others once, and not with each further one."""

    def __radd__(self, before: bytes) -> bytes:
        raise AssertionError("each piece copies all that came before")


async def bodies(*pieces: bytes, whole: bool = False) -> list[bytes]:
    left = iter(pieces)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pub, "os", SimpleNamespace(read=lambda descriptor, size: Piece(next(left, b""))))
        return [body async for body in pub._read(0, whole=whole)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_lines_are_the_same_however_they_come(size: int) -> None:
    text = b"first\r\nsecond\n\n\r\nthird\nlast"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert anyio.run(bodies, *pieces) == [b"first", b"second", b"third", b"last"]


def test_the_whole_input_is_one_body() -> None:
    async def read() -> list[bytes]:
        return await bodies(b"a\n", b"b", b"\r\n", whole=True)

    assert anyio.run(read) == [b"a\nb\r\n"]


def test_nothing_is_no_body() -> None:
    assert anyio.run(bodies) == anyio.run(bodies, b"\n", b"\n") == []


@pytest.mark.parametrize("whole", [False, True])
def test_a_message_that_never_ends_is_refused_before_it_fills_the_memory(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pub, "MESSAGE_BYTES_MAX", 8)

    async def read(*pieces: bytes) -> list[bytes]:
        return await bodies(*pieces, whole=whole)

    assert len(anyio.run(read, b"1234", b"5678")) == 1
    with pytest.raises(MessageTooLarge, match="longer than 8 bytes"):
        anyio.run(read, b"1234", b"5678", b"9")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [(b'{"id": 1}', None), ("caf\u00e9".encode(), "text/plain"), (b"caf\xe9", "application/octet-stream")],
)
def test_a_body_is_labelled_as_what_it_is(body: bytes, content_type: str | None) -> None:
    options = pub.Options({}, None, None, None, None, json_only=False)
    assert options.headers_for(body, 1).get("content-type") == content_type
