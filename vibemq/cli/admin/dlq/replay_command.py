"""`vibemq-admin dlq replay`: dead letters go back to their queues, as fast as asked for, resumable."""

import math
from typing import Annotated

import anyio
import typer

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.filters import (
    ForReason,
    FromQueue,
    NewerThan,
    OlderThan,
    WithHeader,
    WithId,
    WithMessageId,
    filters_of,
)
from vibemq.cli.admin.dlq.replay_plan import PlanFile, ReplayPlan
from vibemq.cli.exits import PartlyDone, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, queue_names
from vibemq.cli.online import call, require_queue
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import tracked
from vibemq.client import Client
from vibemq.client.address import parse
from vibemq.errors import VibeMQError


def replay(
    queue: FromQueue = None,
    reason: ForReason = None,
    older_than: OlderThan = None,
    newer_than: NewerThan = None,
    header: WithHeader = None,
    ids: WithId = None,
    message_id: WithMessageId = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="Replay to this queue; default: the queue of each dead letter.",
            autocompletion=queue_names,
        ),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number, oldest first.")] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="Maximum number per second; default: unlimited.")
    ] = None,
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Make a new selection; discard the rest of an interrupted run of this command."),
    ] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Publish dead letters again, as new messages without attempts.

    After an interruption (Ctrl-C, a crash, a lost broker) the same command replays the rest of the selection. It
    creates no duplicates, and --limit counts both runs together.

    Example: vibemq-admin dlq replay --queue orders --reason rejected --rate 100 --limit 50
    """
    if rate is not None and not math.isfinite(rate):
        raise Usage(f"--rate is {rate}; give a number of messages per second, or leave it out for no limit")
    filters = filters_of(queue, reason, older_than, newer_than, header, ids, message_id)
    out = Output(json=json)
    target = parse(url)
    file = PlanFile.of(f"{target.host}:{target.port}", {**filters.arguments, "to": to, "limit": limit})

    async def choose(mq: Client) -> tuple[ReplayPlan, bool]:
        unfinished = None if fresh else file.load()
        if unfinished is not None:
            return await pages.still_there(mq, unfinished), True
        found = await pages.chosen(mq, filters.arguments, limit)
        if not found.count:
            # Letters outlive their queue, so this is asked last.
            await require_queue(mq, queue)
        return found, False

    async def work(mq: Client) -> None:
        plan, resumed = await choose(mq)
        if resumed:
            out.note(f"continuing an interrupted replay: {plan.count:,} left (--fresh makes a new selection)")
        if dry_run:
            text = f"{filters.chosen(plan.count)} would be replayed{f' to {to}' if to else ''}"
            out.emit({"count": plan.count, "to": to, "dry_run": True, "resumed": resumed}, text)
            return
        _remember(file, plan, out)
        count = await _replay(mq, plan, to, rate, out)
        file.forget()
        text = f"{count_text(count, 'dead letter')} replayed{f' to {to}' if to else ''}"
        out.emit({"count": count, "to": to, "dry_run": False, "resumed": resumed}, text)

    call(url, timeout, work)


async def _replay(mq: Client, plan: ReplayPlan, to: str | None, rate: float | None, out: Output) -> int:
    job = pages.Replay(mq, plan, to=to, rate=rate)
    try:
        with tracked("replayed", out.notes, silent=out.json) as progress:
            return await job.run(progress)
    except anyio.get_cancelled_exc_class():
        out.note(f"interrupted: {job.done:,} of {plan.count:,} replayed; run the same command again for the rest")
        raise
    except VibeMQError as error:
        if not job.done:
            raise
        raise PartlyDone(
            f"{job.done:,} of {plan.count:,} replayed, then: {error}; run the same command again for the rest"
        ) from error


def _remember(file: PlanFile, plan: ReplayPlan, out: Output) -> None:
    if not plan.count:
        return
    try:
        file.save(plan)
    except OSError as error:
        out.note(f"warning: {error}; if this replay is interrupted, --limit will count from the start", style="yellow")
