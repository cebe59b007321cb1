"""`vibemq pub`: publish from arguments, standard input or a file; `vibemq request`: one message, and its reply."""

import base64
import errno
import os
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer
from anyio import to_thread

from vibemq.cli.exits import CommandFailed, ExitCode, PartlyDone, Usage, exit_code_of, sentence_of
from vibemq.cli.flags import (
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    DryRun,
    Json,
    Queue,
    Timeout,
    Url,
    duration_option,
    pair_option,
)
from vibemq.cli.online import call
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import Tracker, tracked
from vibemq.cli.values import above_zero_ms, key_values, whole_number
from vibemq.client import Client, Confirm, Publisher, Response
from vibemq.client.address import MESSAGE_BYTES_MAX
from vibemq.client.payload import BINARY, CONTENT_TYPE, is_json
from vibemq.errors import (
    ConnectionLost,
    ErrorCode,
    MessageTooLarge,
    NotConnected,
    PublishRefused,
    RequestTimeout,
    StorageFailed,
    VibeMQError,
)

READ_BYTES = 1 << 18
TEXT = "text/plain"
INTERRUPTED_PATIENCE_S = 2.0
"""After Ctrl-C, for the confirms of what is on its way."""
_UNCONFIRMED = (ConnectionLost, NotConnected, RequestTimeout, StorageFailed)
"""Why a message that was sent is not confirmed, and may be in the queue all the same."""


@dataclass(frozen=True, slots=True)
class Options:
    """What every message of one command gets."""

    headers: dict[str, str]
    priority: str | None
    delay_s: float | None
    ttl_s: float | None
    dedup_id: str | None
    json_only: bool

    def headers_for(self, body: bytes, number: int) -> dict[str, str]:
        """The given headers, and a content type when the body is no JSON and none was given: bytes that are no UTF-8
        would be lost where they are read as text."""
        json = is_json(body)
        if self.json_only and not json:
            raise Usage(f"message {number} is not JSON: {body[:60]!r}")
        if json or CONTENT_TYPE in self.headers:
            return self.headers
        return {**self.headers, CONTENT_TYPE: TEXT if _is_text(body) else BINARY}


def pub(
    queue: Queue,
    bodies: Annotated[
        list[str] | None, typer.Argument(metavar="[BODY]...", help="One message each; default: standard input.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Read messages from this file; - is stdin.")
    ] = None,
    whole: Annotated[bool, typer.Option("--whole", help="The input is one message, not one per line.")] = False,
    ndjson: Annotated[bool, typer.Option("--ndjson", help="Stop at the first message that is not JSON.")] = False,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Publish each message N times.")] = 1,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="Maximum number of messages per second.")
    ] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", "-p", help="low, normal, high, critical or a number up to 31.")
    ] = None,
    delay: Annotated[int | None, duration_option("--delay", "It is delivered after this time; 0 = at once.")] = None,
    ttl: Annotated[
        int | None, duration_option("--ttl", "It expires after this time, which is more than 0.", read=above_zero_ms)
    ] = None,
    dedup_id: Annotated[
        str | None, typer.Option("--dedup-id", help="A second message with this id within the window is not stored.")
    ] = None,
    header: Annotated[list[str] | None, pair_option("--header", "-H", text="A header; may be repeated.")] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Publish messages and wait until the broker has confirmed them. Bodies are sent unchanged.

    Examples:

    vibemq pub orders '{"id": 1}' --priority high

    vibemq pub orders --file orders.ndjson --ndjson --rate 500

    tail -f app.log | vibemq pub logs
    """
    if bodies and file is not None:
        raise Usage("give messages as arguments or with --file, not both")
    if dedup_id is not None and (count > 1 or bodies is None or len(bodies) != 1):
        raise Usage("--dedup-id belongs to one message given as an argument")
    out = Output(json=json)
    options = Options(
        headers=key_values(header),
        priority=priority,
        delay_s=None if delay is None else delay / 1000,
        ttl_s=None if ttl is None else ttl / 1000,
        dedup_id=dedup_id,
        json_only=ndjson,
    )
    source = _source(bodies, file, whole=whole)
    began = time.monotonic()
    if dry_run:
        sent = Sent(anyio.run(_count_only, source, count, options))
    else:

        async def work(mq: Client) -> Sent:
            with tracked("sent", out, silent=json or bool(bodies)) as progress:
                return await _publish(mq, queue, source(), count, rate, options, progress, out)

        sent = call(url, timeout, work)
    seconds = round(time.monotonic() - began, 3)
    told = {
        "queue": queue,
        "published": 0 if sent.is_duplicate else sent.messages,
        "last_sequence": sent.last_sequence,
        "duplicate": sent.is_duplicate,
        "seconds": seconds,
        "dry_run": dry_run,
    }
    out.emit(told, _sentence(sent, queue, dry_run=dry_run))


@dataclass(frozen=True, slots=True)
class Sent:
    """What has become of the messages of one command."""

    messages: int
    last_sequence: int | None = None
    is_duplicate: bool = False
    """The queue has a message with this dedup id already, and `last_sequence` is that one's."""


def _sentence(sent: Sent, queue: str, *, dry_run: bool) -> str:
    if sent.is_duplicate:
        return f"nothing published to {queue}: it has a message with this dedup id, as sequence {sent.last_sequence}"
    verb = "would be published" if dry_run else "published"
    where = f", the last as sequence {sent.last_sequence}" if sent.last_sequence else ""
    return f"{count_text(sent.messages, 'message')} {verb} to {queue}{where}"


def request(
    queue: Queue,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The message.")],
    header: Annotated[list[str] | None, pair_option("--header", "-H", text="A header; may be repeated.")] = None,
    priority: Annotated[
        str | None, typer.Option("--priority", "-p", help="low, normal, high, critical or a number up to 31.")
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Publish one message, wait until a consumer replies to it, and print the reply.

    Examples:

    vibemq request prices '{"item": "tea"}' --timeout 2s
    """
    raw = body.encode(errors="surrogateescape")
    headers = Options(key_values(header), priority, None, None, None, json_only=False).headers_for(raw, 1)

    async def work(mq: Client) -> Response:
        return await mq.request(queue, raw, timeout=timeout, headers=headers or None, priority=_priority(priority))

    response = call(url, timeout, work)
    if json:
        Output(json=True).emit({"queue": queue, "headers": response.headers, **_shown(response.payload)}, "")
    else:
        sys.stdout.buffer.write(response.payload + b"\n")
        sys.stdout.buffer.flush()


def _shown(payload: bytes) -> dict[str, Any]:
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


async def _publish(
    mq: Client,
    queue: str,
    bodies: AsyncIterator[bytes],
    count: int,
    rate: float | None,
    options: Options,
    progress: Tracker,
    out: Output,
) -> Sent:
    """Send all and wait for all. What cannot be sent ends the command behind what comes before it.

    Raises:
        PartlyDone: some messages are published, and others are not.
        VibeMQError: why none is.
    """
    publisher = mq.publisher(queue)
    stopped: VibeMQError | OSError | None = None
    last: Confirm | None = None
    sent = 0

    def count_sent(done: int, total: int) -> None:
        nonlocal sent
        sent = done
        progress(done, total)

    try:
        try:
            last = await _send_all(publisher, bodies, count, rate, options, count_sent, out)
        except BrokenPipeError:
            raise  # Nobody reads what is told.
        except (VibeMQError, OSError) as error:
            stopped = error
        accepted = await _flushed(publisher, sent)
    except anyio.get_cancelled_exc_class():
        told = f"{count_text(sent, 'message')} sent, not all confirmed; those that are not may be published"
        with anyio.CancelScope(shield=True), anyio.move_on_after(INTERRUPTED_PATIENCE_S):
            told = await _outcome(mq, publisher, sent)
        out.note(f"interrupted: {told}")
        raise
    except PublishRefused as refused:
        raise _not_all(refused, stopped, lost=not mq.is_connected) from refused
    if stopped is not None:
        raise _partly(stopped, accepted) from stopped
    if last is None:
        return Sent(accepted)
    receipt = await last
    return Sent(accepted, receipt.sequence, receipt.duplicate)


async def _send_all(
    publisher: Publisher,
    bodies: AsyncIterator[bytes],
    count: int,
    rate: float | None,
    options: Options,
    progress: Tracker,
    out: Output,
) -> Confirm | None:
    """The last one's confirm. The input may go on for long, so the first refusal is told at once."""
    sent = 0
    last: Confirm | None = None
    unanswered: deque[Confirm] = deque()
    refusal: VibeMQError | None = None
    began = anyio.current_time()
    async for body in bodies:
        headers = options.headers_for(body, sent + 1)
        for _ in range(count):
            if refusal is None and (refusal := await _first_refusal(unanswered)) is not None:
                number = sent - len(unanswered)
                what = "not confirmed, and may be published" if _is_unconfirmed(refusal) else "not published"
                out.note(f"message {number:,} is {what}: {refusal}")
                unanswered.clear()
            if rate is not None and (ahead := began + sent / rate - anyio.current_time()) > 0:
                await anyio.sleep(ahead)
            last = await publisher.send(
                body,
                headers=headers or None,
                priority=_priority(options.priority),
                ttl=options.ttl_s,
                delay=options.delay_s,
                dedup_id=options.dedup_id,
            )
            sent += 1
            if refusal is None:
                unanswered.append(last)
            progress(sent, 0)
    return last


async def _first_refusal(unanswered: deque[Confirm]) -> VibeMQError | None:
    """Of the messages that are answered by now, which leave the queue of them."""
    while unanswered and unanswered[0].done:
        try:
            await unanswered.popleft()
        except VibeMQError as error:
            return error
    return None


async def _flushed(publisher: Publisher, sent: int) -> int:
    """
    Raises:
        PublishRefused: also where one error stands for all messages.
    """
    try:
        return await publisher.flush()
    except PublishRefused:
        raise
    except VibeMQError as error:
        if not sent:
            raise
        raise PublishRefused(publisher.queue, dict.fromkeys(range(sent), error), accepted=0) from error


async def _outcome(mq: Client, publisher: Publisher, sent: int) -> str:
    """Of what was sent."""
    try:
        return f"{count_text(await _flushed(publisher, sent), 'message')} published"
    except PublishRefused as refused:
        return _refusals(refused, lost=not mq.is_connected)


def _is_unconfirmed(error: VibeMQError) -> bool:
    return isinstance(error, _UNCONFIRMED)


def _not_all(refused: PublishRefused, stopped: VibeMQError | OSError | None, *, lost: bool) -> CommandFailed:
    told = _refusals(refused, lost=lost)
    if stopped is not None:
        told = f"{sentence_of(stopped)}; before it, {told}"
    if refused.accepted:
        return PartlyDone(told)
    first = next(iter(refused.refused.values()))
    unconfirmed = next(filter(_is_unconfirmed, refused.refused.values()), None)
    if unconfirmed is not None:
        return CommandFailed(told, code=str(unconfirmed.code), exit_code=ExitCode.UNREACHABLE)
    if lost and refused.more:
        return CommandFailed(told, code=str(ErrorCode.UNREACHABLE), exit_code=ExitCode.UNREACHABLE)
    return CommandFailed(str(first) if stopped is None else told, code=str(first.code), exit_code=exit_code_of(first))


def _refusals(refused: PublishRefused, *, lost: bool) -> str:
    """As the error says it, but messages of a command line count from 1, and those whose outcome is unknown stand for
    themselves. `lost`: those that it does not name are of this kind, too: the connection is lost."""
    unconfirmed = {index: error for index, error in refused.refused.items() if _is_unconfirmed(error)}
    not_published = {index: error for index, error in refused.refused.items() if index not in unconfirmed}
    of_all = count_text(len(refused.refused) + refused.more + refused.accepted, "message")
    beyond = bool(unconfirmed) or lost
    told = []
    for some, more, what in (
        (not_published, 0 if beyond else refused.more, "not published"),
        (unconfirmed, refused.more if beyond else 0, "not confirmed, may be published"),
    ):
        if count := len(some) + more:
            first = next((f"; message {index + 1:,}: {error}" for index, error in some.items()), "")
            told.append(f"{count:,} of {of_all} {what}{first}")
    return "; ".join(told)


def _partly(stopped: VibeMQError | OSError, accepted: int) -> VibeMQError | OSError:
    if not accepted:
        return stopped
    told = f"{count_text(accepted, 'message')} before it published, none behind it"
    return PartlyDone(f"{sentence_of(stopped)}; {told}")


def _priority(text: str | None) -> int | str | None:
    number = None if text is None else whole_number(text)
    return text if number is None else number


async def _count_only(source: Callable[[], AsyncIterator[bytes]], count: int, options: Options) -> int:
    messages = 0
    async for body in source():
        messages += count
        options.headers_for(body, messages)
    return messages


def _source(bodies: list[str] | None, file: Path | None, *, whole: bool) -> Callable[[], AsyncIterator[bytes]]:
    if bodies:
        return lambda: _arguments(bodies)
    if file is not None and str(file) != "-":
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(file))
        # Not only a regular one: a pipe of the shell is a file, too.
        if not file.exists():
            raise CommandFailed(f"there is no file {file}", code="NOT_FOUND", exit_code=ExitCode.NOT_FOUND)
        return lambda: _opened(file, whole=whole)
    if file is None and sys.stdin.isatty():
        raise Usage("no message: give it as an argument, with --file, or through standard input")
    return lambda: _read(sys.stdin.fileno(), whole=whole)


async def _arguments(bodies: list[str]) -> AsyncIterator[bytes]:
    for body in bodies:
        yield body.encode(errors="surrogateescape")


async def _opened(file: Path, *, whole: bool) -> AsyncIterator[bytes]:
    # In a thread: a named pipe is open when its other end is.
    with await to_thread.run_sync(file.open, "rb", abandon_on_cancel=True) as stream:
        async for body in _read(stream.fileno(), whole=whole):
            yield body


async def _read(descriptor: int, *, whole: bool) -> AsyncIterator[bytes]:
    """Lines without their ends as soon as they are there, or everything at once. Empty lines are no messages."""
    # Of what has no end yet: put together once, however large it is.
    pieces: list[bytes] = []
    size = 0
    while data := await to_thread.run_sync(os.read, descriptor, READ_BYTES, abandon_on_cancel=True):
        if not whole:
            *lines, data = data.split(b"\n")
            for end in lines:
                if line := b"".join([*pieces, end]).removesuffix(b"\r"):
                    yield line
                pieces.clear()
                size = 0
        pieces.append(data)
        size += len(data)
        if size > MESSAGE_BYTES_MAX:
            what = "input" if whole else "line"
            raise MessageTooLarge(
                f"this {what} is longer than {MESSAGE_BYTES_MAX:,} bytes, the most a message can have"
            )
    if rest := b"".join(pieces):
        yield rest


def _is_text(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True
