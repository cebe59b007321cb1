"""`vibemq-admin queue import`: an exported file into a queue, each message once, also after an interruption."""

import base64
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import anyio
import anyio.lowlevel
import typer

from vibemq.cli.admin.transfer.export_file import ExportFile, ImportLine
from vibemq.cli.exits import CommandFailed, PartlyDone, copying
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Queue, Timeout, Url, defaults_to
from vibemq.cli.online import call, queue_exists, require_queue
from vibemq.cli.output import Output, count_text, is_standard
from vibemq.cli.progress import Tracker, tracked
from vibemq.client import Client
from vibemq.errors import Blocked, ErrorCode, InvalidPayload, QueueNotFound, RateLimited, VibeMQError
from vibemq.model.message_lines import read_message_line

STDIN = Path("-")
DESCRIPTORS = Path("/proc/self/fd")
"""The open files of this process, which can be opened anew here; Linux has it."""
BATCH_MESSAGES = 200
BATCH_BYTES = 256 * 1024
LARGE_BYTES = 256 * 1024
"""Of a line that is sent by itself, in parts of that size."""
LINES_PER_TURN = 1_000
"""Lines that an earlier run has imported, between which the connection has a turn."""
BLOCKED_WAITS_S = (1, 2, 4, 8, 15, 30)
"""Before the import is tried again that the broker has refused for the moment; then the command ends."""


def import_file(
    queue: Queue,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="[FILE]", help="File of `queue export`; - is stdin." + defaults_to("stdin"), show_default=False
        ),
    ] = STDIN,
    create: Annotated[
        bool, typer.Option("--create", help="Create a missing queue, with the options of the exported one.")
    ] = False,
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="TEXT", help="Name of this import: under another name the same file enters once more."
        ),
    ] = "",
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Put the messages of an exported file into a queue, with their ids, headers, priorities, delays and expiries.

    The whole file is checked first; a file with an invalid line changes nothing. After an interruption (Ctrl-C, a
    crash, a lost broker) the same command imports the rest: no message enters twice, and none is missing.

    Example: vibemq-admin queue import orders orders.ndjson --dry-run
    """
    out = Output(json=json)
    with _readable(file) as path:
        export = ExportFile(path, _name_of(file))
        with tracked("checked", out, silent=json) as progress:
            export.check(progress)

        async def work(mq: Client) -> None:
            if create:
                await _create_missing(mq, queue, export.head["options"], out, dry_run=dry_run)
            else:
                await require_queue(mq, queue, "create it, or add --create")
            job = Import(mq, queue, export, name, note=out.note)
            if dry_run:
                await _tell_plan(job, out, create=create)
                return
            await _run(job, out)
            out.emit(job.described(), job.text())

        call(url, timeout, work)


@dataclass
class Import:
    """`position` is right at every moment, also after an error."""

    mq: Client
    queue: str
    export: ExportFile
    name: str = ""
    position: int = 0
    imported: int = 0
    expired: int = 0
    earlier: int = 0
    """Messages that an earlier run has imported."""
    note: Callable[[str], None] = field(default=lambda text: None)
    """Told while the broker takes nothing."""
    _batch: list[ImportLine] = field(default_factory=list)
    _sends_rows: bool = True
    """Whether large messages go as rows, which the broker need not take apart."""

    async def find_position(self) -> None:
        """Where an earlier run of the same import has come to."""
        answer = await self._ask(0, messages=[])
        self.position = self.earlier = answer["position"]

    async def run(self, progress: Tracker) -> None:
        """
        Raises:
            QueueFull as the broker says it, or PartlyDone: the queue takes no more.
            Blocked: the broker has taken nothing for a minute.
        """
        await self.find_position()
        size = 0
        for number, line in enumerate(self.export.messages()):
            if number < self.earlier:
                if not number % LINES_PER_TURN:
                    # There may be very many, and the broker's pings want an answer.
                    await anyio.lowlevel.checkpoint()
                continue
            if self._batch and (len(self._batch) == BATCH_MESSAGES or size + len(line.text) > BATCH_BYTES):
                await self._send()
                progress(self.position, self.export.count)
                size = 0
            self._batch.append(line)
            size += len(line.text)
        await self._send()
        progress(self.position, self.export.count)

    async def _send(self) -> None:
        if not self._batch:
            return
        lines, self._batch = self._batch, []
        answer = await self._send_patiently(lines)
        self.position = answer["position"]
        self.imported += answer["imported"]
        self.expired += answer["expired"]
        if answer["left"]:
            raise CommandFailed(f"queue {self.queue!r} is full", code=ErrorCode.QUEUE_FULL)

    async def _send_patiently(self, lines: list[ImportLine]) -> dict[str, Any]:
        """What is sent again enters once."""
        for wait_s in BLOCKED_WAITS_S:
            try:
                return await self._send_once(lines)
            except (Blocked, RateLimited) as error:
                self.note(f"{error}; trying again in {wait_s} s")
                await anyio.sleep(wait_s)
        return await self._send_once(lines)

    async def _send_once(self, lines: list[ImportLine]) -> dict[str, Any]:
        if len(lines[0].text) <= LARGE_BYTES:
            return await self._ask(self.position, messages=[line.value for line in lines])
        if self._sends_rows:
            row, extra = read_message_line(lines[0].value)
            about = {name: getattr(extra, name) for name in ("priority", "expires_at", "deliver_at")}
            try:
                return await self._send_parts(row, about=about)
            except InvalidPayload as error:
                if "argument about" not in str(error):
                    raise
                # A broker of before takes the text only.
                self._sends_rows = False
        return await self._send_parts(lines[0].text)

    async def _send_parts(self, data: bytes, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = {}
        for offset in range(0, len(data), LARGE_BYTES):
            part = base64.b64encode(data[offset : offset + LARGE_BYTES]).decode()
            answer = await self._ask(self.position, part_base64=part, offset=offset, size=len(data), **more)
        return answer

    async def _ask(self, position: int, **arguments: Any) -> dict[str, Any]:
        import_id = f"{self.export.sha256}/{self.name}"
        answer: dict[str, Any] = await self.mq.admin(
            "queue.import", queue=self.queue, import_id=import_id, position=position, **arguments
        )
        return answer

    def described(self) -> dict[str, Any]:
        return {
            "queue": self.queue,
            "messages": self.export.count,
            "imported": self.imported,
            "expired": self.expired,
            "earlier": self.earlier,
            "dry_run": False,
        }

    def text(self, *, dry_run: bool = False) -> str:
        would_be, are_left_out = ("would be ", "have expired and would be") if dry_run else ("", "had expired and were")
        parts = [f"{count_text(self.imported, 'message')} {would_be}imported into queue {self.queue}"]
        if self.expired:
            parts.append(f"{self.expired:,} {are_left_out} left out")
        if self.earlier:
            parts.append(f"{self.earlier:,} of the file were imported by an earlier run")
        return "; ".join(parts)


async def _create_missing(mq: Client, queue: str, options: dict[str, Any], out: Output, *, dry_run: bool) -> None:
    """With the options of the exported one, unless it is known to exist. Creating needs no `inspect`, and leaves a
    queue that exists as it is."""
    if await queue_exists(mq, queue):
        return
    if options.get("exclusive"):
        # It would be the queue of this connection, and go with it, and with all that was imported.
        options = {name: value for name, value in options.items() if name != "exclusive"}
        out.note(
            f"the exported queue is exclusive to a connection; where queue {queue} does not exist, it "
            f"{'would be' if dry_run else 'is'} created without that"
        )
    tried = {"dry_run": True} if dry_run else {}
    await mq.admin("queue.create", queue=queue, options=options, **tried)


async def _run(job: Import, out: Output) -> None:
    again = "run the same command again for the rest"
    try:
        with tracked("imported", out, silent=out.json) as progress:
            await job.run(progress)
    except anyio.get_cancelled_exc_class():
        out.note(f"interrupted: {job.position:,} of {job.export.count:,} messages are done with; {again}")
        raise
    except VibeMQError as error:
        if not job.position:
            raise
        done = f"{job.position:,} of {job.export.count:,} messages are done with"
        raise PartlyDone(f"{done}, then: {error}; {again}") from error


async def _tell_plan(job: Import, out: Output, *, create: bool) -> None:
    try:
        await job.find_position()
    except QueueNotFound:
        if not create:
            raise
    now = time.time_ns() // 1_000_000
    rest = [line.extra.expires_at for number, line in enumerate(job.export.messages()) if number >= job.position]
    job.expired = sum(0 < at <= now for at in rest)
    job.imported = len(rest) - job.expired
    out.emit(job.described() | {"dry_run": True}, job.text(dry_run=True))


@contextmanager
def _readable(file: Path) -> Iterator[Path]:
    """A file that can be read more than once: stdin, or a pipe, is copied into one."""
    if not is_standard(file) and file.is_file():
        yield file
        return
    # On Linux without a name: nothing is left of it, however the command ends.
    nameless = DESCRIPTORS.is_dir()
    made = tempfile.TemporaryFile if nameless else tempfile.NamedTemporaryFile
    with _opened(file) as source, made(buffering=0) as copy:
        with copying(_name_of(file)), open(copy.fileno(), "wb", closefd=False) as writer:
            shutil.copyfileobj(source, writer)
        yield DESCRIPTORS / str(copy.fileno()) if nameless else Path(copy.name)


def _name_of(file: Path) -> str:
    return "standard input" if is_standard(file) else str(file)


def _opened(file: Path) -> AbstractContextManager[BinaryIO]:
    return nullcontext(sys.stdin.buffer) if is_standard(file) else file.open("rb")
