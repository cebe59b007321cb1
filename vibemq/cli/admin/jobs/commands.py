"""`vibemq-admin job`: work that the broker does by itself, such as replays of dead letters."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vibemq.cli.admin.jobs.following import follow as follow_job
from vibemq.cli.admin.jobs.following import require_all_read, require_done
from vibemq.cli.admin.jobs.results import save_result
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, Yes
from vibemq.cli.online import ask, ask_all
from vibemq.cli.output import Output, facts, instant_text, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = typer.Typer(help="Jobs of a running broker: replay, purge and export of dead letters.", no_args_is_help=True)

Number = Annotated[str, typer.Argument(metavar="JOB", help="Number of the job, as `job ls` shows it.")]
Rate = Annotated[
    float | None, typer.Option("--rate", min=0, help="Maximum number of letters per second from now on; 0: no limit.")
]


@app.command("ls")
def list_jobs(
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="STATE",
            help="Only jobs that are queued, running, waiting, paused, held, done, cancelled or failed.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List jobs, the latest first: your own, and those on queues that you may inspect."""
    given = {} if state is None else {"state": state}
    found = ask_all(url, timeout, "job.list", "jobs", **given)
    columns = ("job", "kind", "state", "done", "of", "died again", "user", "created", "note")
    rows = [
        (
            job["job"],
            job["kind"],
            job["state"],
            f"{job['done']:,}",
            "" if job["selected"] is None else f"{job['selected']:,}",
            f"{job['dead_again']:,}",
            job["user"],
            instant_text(job["created_at"]),
            job["note"],
        )
        for job in found
    ]
    Output(json=json).emit_many(found, table(columns, rows))


@app.command()
def show(job: Number, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Show one job. Exit code 3 if there is none."""
    _emit(ask(url, timeout, "job.show", job=job), json=json)


@app.command()
def pause(
    job: Number,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Stop a job between two of its steps; `job resume` goes on with it."""
    _emit_changed(ask(url, timeout, "job.change", dry_run=dry_run, job=job, state="paused"), json=json)


@app.command()
def resume(
    job: Number,
    rate: Rate = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Go on with a job that was paused or is held, perhaps at another rate. A running job gets the rate.

    Of a job that is held because letters have died again, those that have died so far are not held against it any more.

    Example: vibemq-admin job resume 17 --rate 100
    """
    given: dict[str, Any] = {} if rate is None else {"rate": rate}
    _emit_changed(ask(url, timeout, "job.change", dry_run=dry_run, job=job, state="running", **given), json=json)


@app.command()
def cancel(
    job: Number,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """End a job. What it has done stays done, and its other letters stay where they are."""
    _emit_changed(ask(url, timeout, "job.change", dry_run=dry_run, job=job, state="cancelled"), json=json)


@app.command()
def follow(job: Number, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Look on until a job has ended. Exit code 6 if it has not done all of its work."""
    found = follow_job(url, timeout, ask(url, timeout, "job.show", job=job), Output(json=json))
    _emit(found, json=json)
    require_done(found)
    require_all_read(found["job"], found["damaged"])


@app.command()
def result(
    job: Number,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="NDJSON file to write; - is stdout.")],
    yes: Yes = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Fetch the file of an export: a JSON object per letter, and a last line with their number.

    Example: vibemq-admin job result 17 letters.ndjson
    """
    out = Output(json=json)
    out.confirm_overwrite(file, yes=yes)
    save_result(url, timeout, job, file, out)


@app.command()
def discard(
    job: Number,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Delete the file of an export in the broker. Without this it is deleted seven days after the job has ended."""
    found = ask(url, timeout, "job.discard", dry_run=dry_run, job=job)
    verb = "would be" if dry_run else "is"
    Output(json=json).emit(found, f"the file of job {job} ({found['size_bytes']:,} bytes) {verb} deleted")


def target_text(job: dict[str, Any]) -> str:
    if job["to"] and job["to"] != job["filter"].get("queue"):
        return str(job["to"])
    return "its own queue" if "queue" in job["filter"] else "the queues they died in"


def _emit(job: dict[str, Any], *, json: bool) -> None:
    Output(json=json).emit(job, _sheet(job))


def _emit_changed(job: dict[str, Any], *, json: bool) -> None:
    if job.get("dry_run"):
        Output(json=json).note(f"job {job['job']} would be changed to this")
    _emit(job, json=json)


def _sheet(job: dict[str, Any]) -> "RenderableType":
    filters = ", ".join(f"{name}={value}" for name, value in job["filter"].items()) or "all dead letters"
    of = "" if job["selected"] is None else f" of {job['selected']:,}"
    rows: list[tuple[str, str]] = [
        ("job", job["job"]),
        ("kind", job["kind"]),
        ("state", job["state"] + (f": {job['why']}" if job["why"] else "")),
        ("letters", filters),
        *([("to", target_text(job))] if job["kind"] == "replay" else []),
        ("done", f"{job['done']:,}{of}"),
        ("skipped", f"{job['skipped']:,}"),
        ("damaged", f"{job['damaged']:,}"),
        *_of_kind(job),
        ("rate", f"{job['rate_now']:g}/s now, " + (f"at most {job['rate']:g}/s" if job["rate"] else "no limit")),
        ("user", job["user"]),
        *([("note", job["note"])] if job["note"] else []),
        *(("", f"{instant_text(event['at'])} {event['event']} {event['detail']}".rstrip()) for event in job["events"]),
    ]
    return facts(rows)


def _of_kind(job: dict[str, Any]) -> list[tuple[str, str]]:
    if job["kind"] != "export_dead":
        again = f"{job['dead_again']:,}" + ("" if job["dead_again_exact"] else " or more")
        gone = job.get("canary_gone", 0)
        told = [("gone", f"{gone:,} of its canary: neither settled nor dead")] if gone else []
        return [("died again", again), *told]
    if job["size_bytes"] is None:
        return [("file", "none")]
    fetched = f": vibemq-admin job result {job['job']} FILE" if job["has_result"] else ""
    return [("file", f"{job['size_bytes']:,} bytes{fetched}")]
