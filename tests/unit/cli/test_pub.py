"""What `vibemq pub` reads from a pipe, however it comes in pieces."""

from collections.abc import AsyncIterator, Iterator, Mapping
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import anyio
import pytest

from vibemq.cli import pub
from vibemq.cli.exits import CommandFailed, ExitCode, PartlyDone
from vibemq.cli.output import Output
from vibemq.client.publishing.receipts import raise_for
from vibemq.errors import (
    ConnectionLost,
    MessageTooLarge,
    NotConnected,
    QueueFull,
    RequestTimeout,
    VibeMQError,
)


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


OPTIONS = pub.Options({}, None, None, None, None, json_only=False)


async def published(
    *given: bytes | Exception, flush: AsyncMock, connected: bool = True, cancelled: bool = False
) -> list[str]:
    """Publish what is given, up to the error in it; the notes. `flush` says what becomes of it."""

    async def source() -> AsyncIterator[bytes]:
        for one in given:
            if isinstance(one, Exception):
                raise one
            yield one

    notes: list[str] = []
    out = Mock(Output, note=notes.append)
    publisher = Mock(queue="q", send=AsyncMock(return_value=Mock(done=False)), flush=flush)
    mq = Mock(publisher=lambda queue: publisher, is_connected=connected)
    with anyio.CancelScope() as scope:
        if cancelled:
            flush.side_effect = anyio.sleep_forever

            def send(*body: bytes, **options: Any) -> Any:
                scope.cancel()
                return publisher.send.return_value

            publisher.send.side_effect = send
        await pub._publish(mq, "q", source(), 1, None, OPTIONS, lambda done, total: None, out)
    return notes


def refused(by: Mapping[int, VibeMQError], accepted: int = 0, more: int = 0) -> AsyncMock:
    return AsyncMock(side_effect=lambda: raise_for("q", by, accepted, more))


def failure(*given: bytes | Exception, **options: Any) -> CommandFailed:
    with pytest.raises(CommandFailed) as caught:
        anyio.run(lambda: published(*given, **options))
    return caught.value


FULL = QueueFull("q", "3 messages")


@pytest.mark.parametrize("lost", [NotConnected("gave up"), ConnectionLost("gone"), RequestTimeout("late")])
def test_what_is_not_confirmed_may_be_published(lost: VibeMQError) -> None:
    error = failure(b"1", b"2", flush=refused({0: lost, 1: lost}))
    assert str(error) == f"2 of 2 messages not confirmed, may be published; message 1: {lost}"
    assert (error.name, error.exit_code) == (str(lost.code), ExitCode.UNREACHABLE)
    error = failure(b"1", b"2", b"3", b"4", flush=refused({1: FULL, 3: lost}, accepted=2))
    assert isinstance(error, PartlyDone)
    assert str(error) == (
        f"1 of 4 messages not published; message 2: {FULL};"
        f" 1 of 4 messages not confirmed, may be published; message 4: {lost}"
    )


def test_what_no_error_names_is_not_confirmed_when_the_connection_is_lost() -> None:
    error = failure(b"1", flush=refused({0: FULL}, more=5), connected=False)
    assert "5 of 6 messages not confirmed, may be published" in str(error)
    assert error.exit_code == ExitCode.UNREACHABLE
    assert failure(b"1", flush=refused({0: FULL}, more=5)).exit_code == ExitCode.FAILED


@pytest.mark.parametrize(
    ("stop", "said"),
    [(MessageTooLarge("too large"), "too large"), (OSError(5, "Input/output error"), "Input/output error")],
)
def test_the_error_has_the_reason_for_the_stop_and_what_became_of_the_messages_before_it(
    stop: Exception, said: str
) -> None:
    error = failure(b"1", stop, flush=refused({0: NotConnected("gave up")}))
    assert f"{said}; before it, 1 of 1 message not confirmed, may be published; message 1: gave up" in str(error)
    error = failure(b"1", stop, flush=refused({0: FULL}))
    assert (error.name, f"{said}; before it, 1 of 1 message not published" in str(error)) == ("QUEUE_FULL", True)
    error = failure(b"1", stop, flush=AsyncMock(return_value=1))
    assert isinstance(error, PartlyDone)
    assert f"{said}; 1 message before it published, none behind it" in str(error)
    with pytest.raises(type(stop)):
        anyio.run(lambda: published(stop, flush=AsyncMock(return_value=0)))


def test_ctrl_c_tells_how_many_are_sent_when_the_confirms_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pub, "INTERRUPTED_PATIENCE_S", 0)
    (note,) = anyio.run(lambda: published(b"1", flush=AsyncMock(), cancelled=True))
    assert note == "interrupted: 1 message sent, not all confirmed; those that are not may be published"


def test_a_message_that_is_not_confirmed_is_told_as_such_while_the_input_goes_on() -> None:
    async def run(error: VibeMQError) -> list[str]:
        notes: list[str] = []

        class Failed:
            done = True

            def __await__(self) -> Iterator[None]:
                yield from ()
                raise error

        async def source() -> AsyncIterator[bytes]:
            yield b"1"
            yield b"2"

        publisher = Mock(send=AsyncMock(return_value=Failed()))
        out = Mock(Output, note=notes.append)
        await pub._send_all(publisher, source(), 1, None, OPTIONS, lambda done, total: None, out)
        return notes

    assert anyio.run(run, RequestTimeout("late")) == ["message 1 is not confirmed, and may be published: late"]
    assert anyio.run(run, FULL) == [f"message 1 is not published: {FULL}"]
