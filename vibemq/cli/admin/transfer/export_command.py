"""`vibemq-admin queue export`: everything that a queue keeps, as a file."""

import base64
import time
from typing import Any

from vibemq.cli.admin.transfer.export_file import ExportWriter
from vibemq.cli.exits import QueueMissing
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, STANDARD, Json, Out, Queue, Timeout, Url, Yes
from vibemq.cli.online import call
from vibemq.cli.output import Output, count_text, is_standard, whole_file
from vibemq.cli.progress import tracked
from vibemq.client import Client
from vibemq.errors import ErrorCode, VibeMQError
from vibemq.model.message_lines import message_line


def export(
    queue: Queue,
    file: Out = STANDARD,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Copy all messages of a queue to a file (JSON Lines), without consuming them: ready, delayed and in flight.

    The file appears when it is complete. `queue import` puts its messages into a queue.

    Example: vibemq-admin queue export orders --out orders.ndjson
    """
    out = Output(json=json)
    out.confirm_overwrite(file, yes=yes)

    async def work(mq: Client) -> int:
        info = await mq.admin("queue.info", queue=queue)
        if info is None:
            raise QueueMissing(queue)
        with whole_file(file) as stream:
            head = {name: info[name] for name in ("incarnation", "options")}
            head = {"queue": queue, **head, "exported_at": time.time_ns() // 1_000_000, "broker": mq.server_version}
            writer = ExportWriter(stream, head)
            expected = info["ready"] + info["delayed"] + info["in_flight"]
            with tracked("exported", out, silent=json) as progress:
                await _copy(mq, queue, info["incarnation"], writer, lambda done: progress(done, max(done, expected)))
            writer.finish()
            return writer.count

    count = call(url, timeout, work)
    if not is_standard(file):
        text = f"{count_text(count, 'message')} of queue {queue} written to {file}"
        out.emit({"queue": queue, "count": count, "file": str(file)}, text)


async def _copy(mq: Client, queue: str, incarnation: str, writer: ExportWriter, progress: Any) -> None:
    start, below = 0, None
    while start is not None:
        place = {"from": start, "below": below}
        page = await mq.admin("queue.export", queue=queue, incarnation=incarnation, **place)
        for message in page["messages"]:
            if "row_size" in message:
                whole = await _assembled(mq, queue, incarnation, message)
                if whole is not None:
                    writer.add(whole)
            else:
                writer.add(message)
        start, below = page["next"], page["below"]
        progress(writer.count)


async def _assembled(mq: Client, queue: str, incarnation: str, message: dict[str, Any]) -> dict[str, Any] | None:
    """A message that is too large for a page; None when it was consumed meanwhile."""
    row, size = bytearray(), message.pop("row_size")
    extra = {"priority": message.pop("priority")} if "priority" in message else {}
    while len(row) < size:
        arguments = {"sequence": message["sequence"], "offset": len(row), "incarnation": incarnation}
        try:
            part = await mq.admin("message.part", queue=queue, **arguments)
        except VibeMQError as error:
            if error.code == ErrorCode.MESSAGE_NOT_FOUND:
                return None
            raise
        row += base64.b64decode(part["row_base64"])
    return message_line(bytes(row), **message) | extra
