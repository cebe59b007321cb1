"""`vibemq-admin dlq export`: dead letters as a file, read by the command itself or written by a job of the broker."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import orjson
import typer

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.filters import Detach, Filters, Note, filtered
from vibemq.cli.admin.jobs.following import follow, require_done
from vibemq.cli.admin.jobs.results import save_result
from vibemq.cli.exits import PartlyDone, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, Yes
from vibemq.cli.online import ask, call, require_queue
from vibemq.cli.output import Output, count_text, is_standard, whole_file
from vibemq.cli.progress import tracked
from vibemq.client import Client


@filtered
def export(
    filters: Filters,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="NDJSON file to write; - is stdout. Left out with --detach.", show_default=False
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number, oldest first.")] = None,
    job: Annotated[
        bool,
        typer.Option(
            "--job",
            help="Have the broker write the file first, as a job, which continues when this command is interrupted.",
        ),
    ] = False,
    rate: Annotated[float | None, typer.Option("--rate", min=0.1, help="With --job: letters per second.")] = None,
    note: Note = "",
    detach: Detach = False,
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Copy dead letters with their payloads to a file, one JSON object per line. They stay in the DLQ.

    A file that a job has written has times as text and a last line with the number of letters. Without --job payloads
    above 1 MiB are left out (exit code 6), and so are letters that cannot be read.

    Example: vibemq-admin dlq export letters.ndjson --queue orders --job
    """
    _check_usage(file, rate, note, job=job, detach=detach)
    out = Output(json=json)
    if file is not None:
        out.confirm_overwrite(file, yes=yes)
    more: dict[str, Any] = {name: value for name, value in (("limit", limit), ("rate", rate)) if value is not None}
    if job or detach:
        call(url, timeout, lambda mq: _check_queue(mq, filters))
        begun = ask(url, timeout, "job.start", kind="export_dead", filter=filters.arguments, note=note, **more)
        if file is None:
            number = begun["job"]
            out.emit(begun, f"job {number} exports; `vibemq-admin job result {number} FILE` fetches its file")
            return
        ended = follow(url, timeout, begun, out)
        require_done(ended)
        save_result(url, timeout, ended["job"], file, out)
        return
    assert file is not None
    _export_by_itself(url, timeout, file, filters, limit, out)


def _check_usage(file: Path | None, rate: float | None, note: str, *, job: bool, detach: bool) -> None:
    """Raises Usage."""
    if file is not None and detach:
        raise Usage("with --detach nothing is written here; leave FILE out, and fetch it later: job result JOB FILE")
    if file is None and not detach:
        raise Usage("say where the letters go: a FILE, or - for stdout; or --detach to have only the job started")
    if (rate is not None or note) and not (job or detach):
        raise Usage("--rate and --note are for the job of an export; add --job")


async def _check_queue(mq: Client, filters: Filters) -> None:
    """Before the job is made. Letters outlive their queue, so its name alone says nothing. Raises QueueMissing."""
    if filters.queue is not None and not (await pages.count(mq, filters.arguments, 1, None))[0]:
        await require_queue(mq, filters.queue)


def _export_by_itself(url: str, timeout: float, file: Path, filters: Filters, limit: int | None, out: Output) -> None:
    async def work(mq: Client) -> Exported:
        with whole_file(file) as stream:
            written = await copied(mq, filters.arguments, limit, stream, out)
            if not written.count:
                # Before the file takes its name.
                await require_queue(mq, filters.queue)
            return written

    found = call(url, timeout, work)
    told = f"{count_text(found.count, 'dead letter')} written"
    if not is_standard(file):
        out.emit({"count": found.count, "file": str(file)}, f"{told} to {file}")
    if lacking := found.lacking():
        raise PartlyDone(f"{told}; {lacking}")


@dataclass(slots=True)
class Exported:
    count: int = 0
    without_payload: int = 0
    damaged: list[dict[str, Any]] = field(default_factory=list)

    def lacking(self) -> str:
        """What is not in the file; empty when it has all."""
        told = []
        if self.without_payload:
            told.append(
                f"of {count_text(self.without_payload, 'letter')} the payload is not there, because it is above 1 MiB: "
                "add --job, which writes it"
            )
        if self.damaged:
            told.append(f"{count_text(len(self.damaged), 'more letter')} cannot be read")
        return "; ".join(told)


async def copied(
    mq: pages.Admin, arguments: dict[str, Any], limit: int | None, stream: BinaryIO, out: Output
) -> Exported:
    done = Exported()
    with tracked("exported", out, silent=out.json) as progress:
        async for page in pages.letters(mq, arguments, limit, done.damaged):
            for part in pages.in_parts(page):
                for letter in await pages.with_payloads(mq, part):
                    stream.write(orjson.dumps(letter) + b"\n")
                    done.count += 1
                    done.without_payload += "payload_size" in letter
                progress(done.count, 0)
    return done
