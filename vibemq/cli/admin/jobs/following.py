"""A job that a command has started, until it ends: progress, and what becomes of it when the command is interrupted.

The broker does the work. The command only looks on, so it may be killed, and another one may look on instead.
"""

import sys
from typing import Any

import anyio

from vibemq.cli.exits import PartlyDone
from vibemq.cli.online import ask, call
from vibemq.cli.output import Output, count_text
from vibemq.cli.progress import tracked
from vibemq.client import Client
from vibemq.errors import VibeMQError

LOOK_S = 0.25
UNFINISHED = ("queued", "running", "waiting", "paused", "held")
AT_WORK = ("queued", "running", "waiting")
VERBS = {"replay": "replayed", "purge_dead": "deleted", "export_dead": "exported"}


def follow(url: str, timeout: float, job: dict[str, Any], out: Output) -> dict[str, Any]:
    """The job as it has ended, or was stopped by somebody.

    Raises:
        PartlyDone: the broker was lost; the job goes on when it is back.
        KeyboardInterrupt: somebody has been asked what shall become of the job, where there was somebody to ask.
    """
    latest = [job]
    try:
        return call(url, timeout, lambda mq: _look(mq, latest, out))
    except KeyboardInterrupt:
        _interrupted(url, timeout, latest[0], out)
        raise
    except VibeMQError as error:
        seen = latest[0]
        raise PartlyDone(
            f"{_progress(seen)}, then: {error}; the broker goes on with it, follow it with "
            f"`vibemq-admin job follow {seen['job']}`"
        ) from error


async def _look(mq: Client, latest: list[dict[str, Any]], out: Output) -> dict[str, Any]:
    job: dict[str, Any] = latest[0]
    waits = ""
    with tracked(VERBS.get(job["kind"], "done"), out, silent=out.json) as progress:
        while True:
            job = latest[0] = await mq.admin("job.show", job=job["job"])
            progress(job["done"], job["selected"] or 0)
            if job["state"] not in AT_WORK:
                return job
            if job["state"] == "waiting" and job["why"] != waits:
                waits = job["why"]
                out.note(f"job {job['job']} waits: {waits}", style="dim")
            await anyio.sleep(LOOK_S)


def _interrupted(url: str, timeout: float, job: dict[str, Any], out: Output) -> None:
    number = job["job"]
    if out.json or not (sys.stdin.isatty() and sys.stderr.isatty()):
        print(  # also with --json: it is the only place where the number stands
            f"job {number} goes on without this command; follow it with `vibemq-admin job follow {number}`",
            file=sys.stderr,
        )
        return
    from rich.prompt import Prompt

    answer = Prompt.ask(
        f"Job {number} runs in the broker ({_progress(job)}). Leave it running, pause it, or cancel it?",
        choices=["leave", "pause", "cancel"],
        default="leave",
        console=out.notes,
    )
    if answer != "leave":
        state = {"pause": "paused", "cancel": "cancelled"}[answer]
        job = ask(url, timeout, "job.change", job=number, state=state)
    out.note(f"job {number} is {job['state']}: {_progress(job)}")


def require_done(job: dict[str, Any]) -> None:
    """Raises PartlyDone: it has not ended by itself, or not well."""
    if job["state"] == "done":
        return
    number, why = job["job"], f": {job['why']}" if job["why"] else ""
    more = f"; `vibemq-admin job resume {number}` goes on with it" if job["state"] in ("paused", "held") else ""
    raise PartlyDone(f"job {number} is {job['state']}{why}; {_progress(job)}{more}")


def require_all_read(job: int | str, damaged: int) -> None:
    """Of one that is done. Raises PartlyDone: some letters were damaged, and stay where they are."""
    if damaged:
        raise PartlyDone(
            f"job {job} is done; {count_text(damaged, 'more letter')} cannot be read and were left where they are"
        )


def _progress(job: dict[str, Any]) -> str:
    of = f" of {job['selected']:,}" if job["selected"] is not None else ""
    return f"{job['done']:,}{of} {VERBS.get(job['kind'], 'done')}"
