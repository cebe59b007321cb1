"""`vibemq-admin queue move`: messages of one queue into another, resumable."""

from dataclasses import dataclass, field
from typing import Annotated, Any

import anyio
import typer

from vibemq.cli.exits import CommandFailed, PartlyDone
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, queue_names
from vibemq.cli.online import call
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import Tracker, tracked
from vibemq.client import Client
from vibemq.errors import ErrorCode, VibeMQError

PAGE = 500
"""Messages of one request."""
AGAIN = "run the same command again for the rest"


def move(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Queue to empty.", autocompletion=queue_names)],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Queue that takes them.", autocompletion=queue_names)],
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            "-n",
            min=1,
            help="Maximum number, oldest first; a dry run also counts messages that have expired.",
        ),
    ] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Move the waiting messages of one queue into another, oldest first. Messages that consumers hold stay.

    Each message is in exactly one of the two queues at every moment. After an interruption (Ctrl-C, a crash, a lost
    broker) the same command moves the rest. Messages that are published after the start stay.

    Example: vibemq-admin queue move orders orders.retry --limit 1000
    """
    out = Output(json=json)

    async def work(mq: Client) -> Move:
        job = Move(mq, source, target, limit, dry_run=dry_run)
        await _run(job, out)
        return job

    job = call(url, timeout, work)
    verb = "would be moved" if dry_run else "moved"
    result = {"source": source, "target": target, "count": job.count, "damaged": job.damaged, "dry_run": dry_run}
    out.emit(result, f"{count_text(job.count, 'message')} of queue {source} {verb} to {target}")
    if job.damaged:
        shown = ", ".join(map(str, job.damaged[:10]))
        raise PartlyDone(
            f"{job.count:,} {verb}; {count_text(len(job.damaged), 'message')} cannot be read and stay in {source!r}: "
            f"{shown}; `vibemq-admin check` says more"
        )


@dataclass
class Move:
    """`count` is right at every moment, also after an error."""

    mq: Client
    source: str
    target: str
    limit: int | None
    dry_run: bool
    count: int = 0
    damaged: list[int] = field(default_factory=list)

    async def run(self, progress: Tracker) -> None:
        """
        Raises:
            CommandFailed: the target takes no more.
        """
        start: int | None = 0
        arguments: dict[str, Any] = {"queue": self.source, "to": self.target, "dry_run": self.dry_run}
        total = 0
        while start is not None and (self.limit is None or self.count < self.limit):
            size = PAGE if self.limit is None else min(PAGE, self.limit - self.count)
            answer = await self.mq.admin("queue.move", **arguments, limit=size, **{"from": start})
            total = total or min(answer["waiting"], self.limit or answer["waiting"])
            self.count += answer["count"]
            self.damaged += answer["damaged"]
            progress(self.count, max(total, self.count))
            if answer["left"]:
                raise CommandFailed(f"queue {self.target!r} is full", code=ErrorCode.QUEUE_FULL)
            start = answer["next"]
            arguments |= {name: answer[name] for name in ("below", "incarnation")}


async def _run(job: Move, out: Output) -> None:
    verb = "counted" if job.dry_run else "moved"
    try:
        with tracked(verb, out, silent=out.json) as progress:
            await job.run(progress)
    except anyio.get_cancelled_exc_class():
        out.note(f"interrupted: {count_text(job.count, 'message')} {verb}; {AGAIN}")
        raise
    except VibeMQError as error:
        if not job.count or job.dry_run:
            raise
        # Messages of a queue that was made anew were not meant.
        again = "" if error.code == ErrorCode.WRONG_INCARNATION else f"; {AGAIN}"
        raise PartlyDone(f"{count_text(job.count, 'message')} moved, then: {error}{again}") from error
