"""`vibemq-admin dlq replay`: has the broker put dead letters back, as fast as asked for, and looks on."""

import hashlib
import math
import os
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
import typer

from vibemq.cli.admin.dlq import pages
from vibemq.cli.admin.dlq.filters import AtMost, Detach, Filters, Note, filtered
from vibemq.cli.admin.dlq.replay_plan import PlanFile
from vibemq.cli.admin.jobs.following import UNFINISHED, follow, require_all_read, require_done
from vibemq.cli.exits import PartlyDone, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, queue_names
from vibemq.cli.online import call, require_queue
from vibemq.cli.output import Output, count_text
from vibemq.client import Client
from vibemq.client.address import parse
from vibemq.errors import JobNotFound, JobStateConflict, PreconditionFailed, VibeMQError

Canary = Annotated[
    int | None,
    typer.Option(
        "--canary", min=0, max=1_000, help="Replay so many first, and the others only if none of these dies again."
    ),
]
MaxReady = Annotated[
    int | None, typer.Option("--max-ready", min=0, help="Wait while the target has more messages ready.")
]
StopAfter = Annotated[
    int | None,
    typer.Option("--stop-after-dead-again", min=1, metavar="N", help="Hold the job when N letters died again."),
]

LETTERS_MAX = 10**15
"""Of one job."""
_GUARDS = {"canary": "--canary", "max_ready": "--max-ready", "stop_after_dead_again": "--stop-after-dead-again"}


@filtered
def replay(
    filters: Filters,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="QUEUE",
            help="Replay to this queue; default: the queue of each dead letter.",
            autocompletion=queue_names,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", "-n", min=1, max=LETTERS_MAX, help="Maximum number, oldest first.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", min=0.1, help="Maximum number per second; default: unlimited.")
    ] = None,
    canary: Canary = None,
    max_ready: MaxReady = None,
    stop_after_dead_again: StopAfter = None,
    at_most: AtMost = None,
    note: Note = "",
    fresh: Annotated[
        bool,
        typer.Option("--fresh", help="Make a new selection; cancel an unfinished job of the same command."),
    ] = False,
    detach: Detach = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Publish dead letters again, as new messages without attempts.

    The broker does it as a job, which survives crashes of the command and of the broker, and creates no duplicates.
    After an interruption the same command of the same user goes on with the job, and --limit counts both runs
    together; guards that the job does not have, such as another --canary, are refused, and its --note stays. A job
    that is held, because its letters died again, is not continued: exit code 6. Letters that cannot be read stay
    where they are: exit code 6, too.

    Example: vibemq-admin dlq replay --queue orders --reason rejected --rate 100 --limit 50
    """
    if rate is not None and not math.isfinite(rate):
        raise Usage(f"--rate is {rate}; give a number of messages per second, or leave it out for no limit")
    out = Output(json=json)
    wanted = {
        "rate": rate,
        "canary": canary,
        "max_ready": max_ready,
        "stop_after_dead_again": stop_after_dead_again,
        "at_most": at_most,
        "note": note,
    }
    target = parse(url)
    command = _Replay(filters, to, limit, f"{target.host}:{target.port}", wanted, fresh=fresh, dry_run=dry_run)
    job, left, resumed = call(url, timeout, command.begin)
    place = f" to {to}" if to else ""
    if job is None:
        answer = {"count": left, "to": to, "dry_run": True, "resumed": resumed}
        out.emit(answer, f"{filters.chosen(left)} would be replayed{place}")
        return
    if resumed or not detach:
        _tell(out, job, left, resumed=resumed)
    if detach:
        out.emit(job, f"job {job['job']} replays {count_text(left, 'dead letter')}{place}")
        return
    before = job["done"] if resumed else 0
    ended = follow(url, timeout, job, out)
    require_done(ended)
    count = ended["done"] - before
    answer = {"count": count, "to": to, "dry_run": False, "resumed": resumed, "job": ended["job"]}
    again = f"; {ended['dead_again']:,} died again" if ended["dead_again"] else ""
    out.emit(answer, f"{count_text(count, 'dead letter')} replayed{place}{again}")
    require_all_read(ended["job"], ended["damaged"])


class _Replay:
    """One command line: its job is begun, or the job of an earlier run of the same command line goes on."""

    def __init__(
        self,
        filters: Filters,
        to: str | None,
        limit: int | None,
        broker: str,
        wanted: dict[str, Any],
        *,
        fresh: bool,
        dry_run: bool,
    ) -> None:
        """`wanted`: further arguments of the job; None where an option was left out."""
        self._filters = filters
        self._to = to
        self._limit = limit
        self._wanted = wanted
        self._fresh = fresh
        self._dry_run = dry_run
        self._same = {**filters.arguments, "to": to, "limit": limit}
        self._file = PlanFile.of(broker, self._same)
        self._old = self._file.load()
        """What a replay of an earlier version has left to do."""

    async def begin(self, mq: Client) -> tuple[dict[str, Any] | None, int, bool]:
        """(the job, letters that it has left to do, whether an earlier run has begun it); None in a dry run."""
        unfinished = await _unfinished(mq, self._same)
        if unfinished and not self._fresh:
            earlier = unfinished[0]
            self._refuse_other_guards(earlier)
            self._refuse_more(earlier)
            if self._dry_run:
                return None, _left(earlier), True
            return await _gone_on_with(mq, earlier, self._wanted["rate"]), _left(earlier), True
        meant, most, resumed = self._letters()
        count, _ = await pages.count(mq, meant, most, self._to)
        if not count and not resumed:
            # Letters outlive their queue, so this is asked last.
            await require_queue(mq, self._filters.queue)
        if self._dry_run:
            return None, count, resumed
        given = {"to": self._to, "limit": most, **self._wanted}
        arguments = {name: value for name, value in given.items() if value is not None}
        job = await mq.admin("job.start", kind="replay", filter=meant, key=_key(self._same), **arguments)
        if self._old is not None:
            self._file.forget()
        # Only now: a start that is refused changes nothing. Until then both may go on; no letter is replayed twice.
        await _cancel(mq, [earlier["job"] for earlier in unfinished], job["job"])
        return job, count, resumed

    def _refuse_other_guards(self, job: dict[str, Any]) -> None:
        """Raises Usage: what was asked for would not hold. A job's guards stay as it was started with them."""
        # No canary is one of 0 letters.
        has = {**job, "canary": job["canary"] or 0}
        guards = ((option, self._wanted[name], has[name]) for name, option in _GUARDS.items())
        lacking = [f"{option} {value}" for option, value, kept in guards if value not in (None, kept)]
        if lacking:
            number = job["job"]
            verb = "resume" if job["state"] in ("paused", "held") else "follow"
            raise Usage(
                f"job {number} of the same selection has not ended, and was started without {', '.join(lacking)}; go "
                f"on with it as it is with `vibemq-admin job {verb} {number}`, or make a new selection with "
                "--fresh"
            )

    def _refuse_more(self, job: dict[str, Any]) -> None:
        """Raises PreconditionFailed, as the broker does for a new job."""
        most = self._wanted["at_most"]
        if most is not None and (job["selected"] is None or _left(job) > most):
            left = "an unknown number of" if job["selected"] is None else f"{_left(job):,}"
            raise PreconditionFailed(
                f"job {job['job']} of the same selection has not ended, and has {left} dead letters left, more than "
                f"--at-most {most:,}; nothing was done. Leave --at-most out to go on with it, or make a new selection "
                "with --fresh"
            )

    def _letters(self) -> tuple[dict[str, Any], int | None, bool]:
        """(the filter, how many at most, whether they are what an earlier version has left to do)."""
        meant = self._filters.arguments
        old = self._old
        if old is None or self._fresh:
            return meant, self._limit, False
        # Ages were measured when the letters were chosen; ids ascend with the time.
        meant = {name: value for name, value in meant.items() if name not in ("older_than_ms", "newer_than_ms")}
        span = {"from_id": old.runs[0][0], "to_id": old.runs[-1][1], "until": old.newest_dead_at}
        return {**meant, **span}, None, True


def _tell(out: Output, job: dict[str, Any], left: int, *, resumed: bool) -> None:
    if resumed:
        out.note(
            f"continuing a replay that is not done, job {job['job']}: {left:,} left (--fresh makes a new selection)"
        )
    else:
        out.note(f"job {job['job']} replays {count_text(left, 'dead letter')}", style="dim")


def _left(job: dict[str, Any]) -> int:
    return max(0, int(job["selected"] or 0) - int(job["done"]) - int(job["skipped"]) - int(job["damaged"]))


def _mark(same: dict[str, Any]) -> str:
    """Of all jobs that this command line has started."""
    return f"dlq-replay-{hashlib.sha256(orjson.dumps(same, option=orjson.OPT_SORT_KEYS)).hexdigest()[:32]}-"


def _key(same: dict[str, Any]) -> str:
    return f"{_mark(same)}{os.urandom(8).hex()}"


async def _unfinished(mq: Client, same: dict[str, Any]) -> list[dict[str, Any]]:
    """Jobs of the same command line and user that have not ended, the latest first. There are several where a --fresh
    was interrupted."""
    mark, place = _mark(same), dict[str, Any]()
    unfinished: list[dict[str, Any]] = []
    user = (await mq.admin("user.self"))["user"]
    while True:
        found = await mq.admin("job.list", **place)
        unfinished += (
            job
            for job in found["jobs"]
            if job["state"] in UNFINISHED and job["user"] == user and (job["key"] or "").startswith(mark)
        )
        if found["next"] is None:
            return unfinished
        place = {"after": found["next"]}


async def _cancel(mq: Client, earlier: Sequence[str], fresh: str) -> None:
    """Raises PartlyDone: `fresh` goes on, and not all of those before it were cancelled."""
    left: dict[str, VibeMQError] = {}
    for number in earlier:
        try:
            await mq.admin("job.change", job=number, state="cancelled")
        except (JobStateConflict, JobNotFound):
            pass  # It has ended meanwhile.
        except VibeMQError as error:
            left[number] = error
    if left:
        told = "; ".join(
            f"job {number}, whose place it takes, was not cancelled: {error}; do so with `vibemq-admin job cancel "
            f"{number}`"
            for number, error in left.items()
        )
        raise PartlyDone(f"job {fresh} has begun, and {told}; look on with `vibemq-admin job follow {fresh}`")


async def _gone_on_with(mq: Client, job: dict[str, Any], rate: float | None) -> dict[str, Any]:
    """Raises PartlyDone: its own guards hold it, and whoever lets it go on says so."""
    if job["state"] == "held":
        require_done(job)
    given = {} if rate is None else {"rate": rate}
    changed: dict[str, Any] = await mq.admin("job.change", job=job["job"], state="running", **given)
    return changed
