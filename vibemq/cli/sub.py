"""`vibemq sub`: prints the messages of a queue and settles them."""

import base64
import logging
import os
import signal
import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, BinaryIO

import anyio
import orjson
import typer

from vibemq.cli.exits import Usage, plain
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Queue, Timeout, Url, duration_option, group_names
from vibemq.cli.online import require_queue, settings_for
from vibemq.cli.output import Output, count_text, instant_text
from vibemq.client import Message, MessageBatch, Subscription, connect
from vibemq.client.connecting.own_thread import in_own_thread

PREFETCH = 500
OUTPUT_PATIENCE_S = 2.0
"""At a signal, for what reads our output; then what is not written goes back to the queue."""


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


@dataclass(frozen=True, slots=True)
class Wish:
    """How many messages, for how long, and what becomes of them."""

    count: int | None
    idle_s: float | None
    """End after so long without a message; None = never."""
    ack: bool
    reject: str | None
    json: bool
    verbose: bool
    drain: bool = False
    """End gracefully at a signal."""


@dataclass(slots=True)
class PrintedCount:
    messages: int = 0


def sub(
    queue: Queue,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="End after this number of messages.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Do not end; reconnect after a lost connection.")
    ] = False,
    idle: Annotated[
        int, duration_option("--idle", "Without --follow: end when no message came for this long.", default="1s")
    ] = 1_000,
    ack: Annotated[
        bool,
        typer.Option(
            "--ack/--no-ack",
            help="Acknowledge printed messages, or release them at the end without counting a failed attempt: without"
            " --count, the command then ends after --prefetch messages.",
        ),
    ] = True,
    reject: Annotated[
        str | None, typer.Option("--reject", metavar="REASON", help="Make the printed messages dead letters.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            "-g",
            help="A named group, which receives every message of the queue.",
            autocompletion=group_names,
        ),
    ] = None,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="A new group begins with the oldest message in the queue.")
    ] = False,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SELECTOR", help="Only messages that match this condition on their headers."),
    ] = None,
    prefetch: Annotated[
        int, typer.Option("--prefetch", min=1, help="Maximum number of unsettled messages.")
    ] = PREFETCH,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain",
            help="On SIGTERM or Ctrl-C: settle what is printed, return the rest to the queue, and end with exit code 0."
            " A second signal ends at once.",
        ),
    ] = False,
    create: Annotated[bool, typer.Option("--create", help="Create the queue if it does not exist.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Also print id, time, attempt and headers.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Print messages as they arrive, one per line, and acknowledge each batch after printing it.

    Examples:

    vibemq sub orders --follow

    vibemq sub orders --no-ack --count 10 --json

    vibemq sub events --group audit --from-beginning --follow

    vibemq sub orders --where 'region == "eu" && total > 100'
    """
    if reject is not None and not ack:
        raise Usage("--reject and --no-ack contradict each other")
    if follow:
        # Lost and mended connections are worth a line on stderr; nothing else tells why it is quiet.
        handler = logging.StreamHandler()
        handler.setFormatter(_Plain("%(message)s"))
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
    start = "beginning" if from_beginning else "default"
    wish = Wish(count, None if follow else idle / 1000, ack, reject, json, verbose, drain)
    if count is not None:
        # What is only looked at is held until the end.
        prefetch = min(prefetch, count) if ack else count
    options = {"group": group, "prefetch": prefetch, "start": start, "where": where}
    received = anyio.run(partial(_consume, queue, url, timeout, options, wish, create=create))
    Output(json=json).note(f"{count_text(received, 'message')}", style="dim")


async def _consume(queue: str, url: str, timeout: float, options: dict[str, Any], wish: Wish, *, create: bool) -> int:
    settings = settings_for(url, timeout, patient=wish.idle_s is None)
    async with connect(settings) as mq:
        # Subscribing would create it, and a misspelt name would wait for messages that go elsewhere.
        if create:
            await mq.create_queue(queue)
        else:
            await require_queue(mq, queue, "check its name, or add --create")
        async with mq.subscribe(queue, **options) as subscription:
            received = await _print_until_told(subscription, wish)
            if wish.ack and not subscription.draining:
                # Everything before a ping has been handled when it is answered: the settlements are.
                await mq.ping()
            return received


async def _print_until_told(subscription: Subscription[Any], wish: Wish) -> int:
    printed = PrintedCount()
    if not wish.drain:
        await _print_all(subscription, wish, printed)
        return printed.messages
    printing, ended = anyio.CancelScope(), anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_drain_at_signal, subscription, printing, ended)
        with printing:
            await _print_all(subscription, wish, printed)
        ended.set()
        if not subscription.draining:
            tasks.cancel_scope.cancel()
    if subscription.draining and wish.ack and not printing.cancelled_caught:
        # Until the broker knows what is settled. Without a connection there is nothing to wait for.
        await subscription.drain()
    return printed.messages


async def _drain_at_signal(subscription: Subscription[Any], printing: anyio.CancelScope, ended: anyio.Event) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            break
    # From here on a signal ends the program at once.
    await subscription.drain(timeout=0)
    with anyio.move_on_after(OUTPUT_PATIENCE_S):
        await ended.wait()
    printing.cancel()


async def _print_all(subscription: Subscription[Any], wish: Wish, printed: PrintedCount) -> None:
    while wish.count is None or printed.messages < wish.count:
        batch = await _next(subscription, wish)
        if batch is None:
            break
        messages = list(batch) if wish.count is None else batch[: wish.count - printed.messages]
        lines = b"".join(line_of(message, wish) for message in messages)
        if wish.drain:
            # Nobody may be reading: a signal has to come through all the same.
            await in_own_thread(partial(_write_all, sys.stdout.fileno(), lines), "vibemq output")
        else:
            _write(sys.stdout.buffer, lines)
        for message in messages:
            _settle(message, wish)
        printed.messages += len(messages)
        if not wish.ack and printed.messages >= subscription.prefetch:
            # What is only looked at stays held, so the broker has no reason to hand out more.
            break


async def _next(subscription: Subscription[Any], wish: Wish) -> MessageBatch[Any] | None:
    try:
        if wish.idle_s is None:
            return await subscription.next_batch()
        with anyio.move_on_after(wish.idle_s):
            return await subscription.next_batch()
    except StopAsyncIteration:
        return None
    return None


def _settle(message: Message[Any], wish: Wish) -> None:
    if wish.reject is not None:
        message.reject(wish.reject)
    elif wish.ack:
        message.ack()


def _write(stream: BinaryIO, data: bytes) -> None:
    # Settled only after it is out: a reader that has gone (`| head`) leaves the rest in the queue.
    stream.write(data)
    stream.flush()


def _write_all(descriptor: int, data: bytes) -> None:
    """Past the buffer of `sys.stdout`, which would be locked at the end of the program if nobody reads."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def line_of(message: Message[Any], wish: Wish) -> bytes:
    """One message as one line (two with --verbose), its end included."""
    if wish.json:
        return orjson.dumps(as_object(message)) + b"\n"
    body = message.payload + b"\n"
    if not wish.verbose:
        return body
    facts = [f"#{message.sequence}", message.id, instant_text(message.published_at), f"attempt {message.attempt}"]
    facts += [f"{key}={value}" for key, value in message.headers.items()]
    # The line is the command's own: what publishers have chosen neither ends it nor steers the terminal.
    return f"── {'  '.join(map(plain, facts))}\n".encode() + body


def as_object(message: Message[Any]) -> dict[str, Any]:
    """The message under the names of the admin verbs, so that `peek --json` and `sub --json` read alike."""
    shown: dict[str, Any] = {
        "queue": message.queue,
        "sequence": message.sequence,
        "id": message.id,
        "published_at": message.published_at,
        "attempt": message.attempt,
        "headers": message.headers,
    }
    try:
        shown["payload"] = message.payload.decode()
    except UnicodeDecodeError:
        shown["payload_base64"] = base64.b64encode(message.payload).decode()
    return shown
