"""`vibemq-admin group`: groups of a queue, above all the cursors of Spark jobs and other readers by range."""

import re
from typing import Annotated, Any

import typer

from vibemq.cli.exits import ExitCode, Usage
from vibemq.cli.flags import (
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    DryRun,
    Group,
    Json,
    Queue,
    Timeout,
    Url,
    Yes,
    duration_option,
    size_option,
)
from vibemq.cli.online import ask, ask_all
from vibemq.cli.output import Output, bytes_text, count_text, duration_text, facts, instant_text, table, would
from vibemq.errors import GroupNotFound, MessageNotFound

app = typer.Typer(help="Groups of a queue: positions and backlogs.", no_args_is_help=True)

Start = Annotated[str, typer.Argument(metavar="START", help="earliest, latest, sequence:N or time:MS (ms since 1970).")]
Hold = Annotated[
    int | None, duration_option("--hold", "Keep messages for this long after they are acknowledged; 0 = not at all.")
]
MaxLag = Annotated[
    int | None, duration_option("--max-lag", "The group expires when its oldest unread message is this old; 0 = never.")
]
MaxLagSize = Annotated[
    int | None, size_option("--max-lag-size", "The group expires when its backlog is this large; 0 = never.")
]
_RUN = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?")


@app.command("ls")
def list_groups(queue: Queue, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """List the groups of a queue with the backlog of each."""
    groups = ask_all(url, timeout, "group.list", "groups", queue=queue)
    columns = ("group", "kind", "acknowledged below", "waiting", "in flight", "consumers", "epoch", "user", "reader")
    rows = [_row(group) for group in groups]
    if any(group.get("where") for group in groups):
        with_filters = [(*row, group.get("where") or "-") for row, group in zip(rows, groups, strict=True)]
        Output(json=json).emit_many(groups, table((*columns, "filter"), with_filters))
    else:
        Output(json=json).emit_many(groups, table(columns, rows))


def _row(group: dict[str, Any]) -> tuple[object, ...]:
    kind = "cursor" if group["cursor"] else "consumers"
    if group.get("expired"):
        kind = "cursor, EXPIRED"
    counts = (group[name] for name in ("committed", "backlog_messages", "in_flight", "consumers", "epoch"))
    return (group["group"] or "(default)", kind, *counts, group.get("user") or "-", group.get("owner") or "-")


@app.command()
def show(
    queue: Queue, group: Group, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False
) -> None:
    """Show one cursor: positions, backlog, limits, lost messages."""
    found = ask(url, timeout, "group.offsets", queue=queue, group=group)
    out = Output(json=json)
    if json:
        out.emit(found, "")
    else:
        out.console.print(facts(_facts_of(found), title=f"group {group} of queue {queue}"))


def _facts_of(found: dict[str, Any]) -> list[tuple[str, object]]:
    return [
        ("state", "EXPIRED: seek it" if found["expired"] else "reading"),
        ("user", found.get("user") or "-"),
        ("reader", found["owner"] or "-"),
        ("epoch", found["epoch"]),
        ("acknowledged below", found["committed"]),
        ("kept from", found["head"]),
        ("readable below", found["tail"]),
        ("backlog", f"{count_text(found['backlog_messages'], 'message')}, {bytes_text(found['backlog_bytes'])}"),
        ("oldest", instant_text(found["oldest_at"])),
        ("joins without progress", found["joins"]),
        ("hold after ack", duration_text(found["hold_ms"]) if found["hold_ms"] else "none"),
        ("most lag", duration_text(found["max_lag_ms"]) if found["max_lag_ms"] else "no limit"),
        ("most backlog", bytes_text(found["max_lag_bytes"]) if found["max_lag_bytes"] else "no limit"),
        ("lost before it was read", _runs_text(found["lost"])),
        ("quarantined", _runs_text(found["quarantined"])),
    ]


def _runs_text(runs: list[list[int]]) -> str:
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs[:20])
    return shown + (f" and {len(runs) - 20} more" if len(runs) > 20 else "") or "none"


@app.command()
def create(
    queue: Queue,
    group: Group,
    start: Annotated[str, typer.Option("--start", help="earliest, latest, sequence:N or time:MS.")] = "earliest",
    hold: Hold = None,
    max_lag: MaxLag = None,
    max_lag_size: MaxLagSize = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Create a cursor before its first reader starts, so that no message is missed meanwhile.

    Example: vibemq-admin group create orders etl --start latest --hold 15m
    """
    known = {entry["group"] for entry in ask_all(url, timeout, "group.list", "groups", queue=queue)}
    if group in known:
        raise Usage(f"queue {queue!r} has a group {group!r} already; `group set` changes it, `group seek` moves it")
    limits: dict[str, Any] = _limits(hold, max_lag, max_lag_size)
    limits |= {"start": start, "owner": "vibemq-admin"}
    found = ask(url, timeout, "group.join", dry_run=dry_run, queue=queue, group=group, **limits)
    out = Output(json=json)
    verb = "would read" if dry_run else "reads"
    out.emit(found, f"group {group} of queue {queue}: {verb} from {found['committed']}")
    _note_beyond(out, found["committed"], found["tail"])


def _note_beyond(out: Output, at: int, end: int) -> None:
    """Of a group that stands behind the end of its queue, which is what a mistyped sequence does."""
    if at > end:
        span = f"message {end} is" if at == end + 1 else f"messages {end} to {at - 1} are"
        out.note(f"! the queue has not come so far yet: when they are published, {span} not for this group", "yellow")


@app.command("set")
def configure(
    queue: Queue,
    group: Group,
    hold: Hold = None,
    max_lag: MaxLag = None,
    max_lag_size: MaxLagSize = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Change how long a cursor keeps messages and how far it may lag; its reader continues.

    Example: vibemq-admin group set orders etl --hold 15m --max-lag 7d
    """
    limits = _limits(hold, max_lag, max_lag_size)
    if not limits:
        raise Usage("nothing to change; name at least one option, such as --hold 15m")
    found = ask(url, timeout, "group.set", dry_run=dry_run, queue=queue, group=group, **limits)
    Output(json=json).emit(found, f"group {group} of queue {queue}: {would('changed', dry_run=dry_run)}")


def _limits(hold: int | None, max_lag: int | None, max_lag_size: int | None) -> dict[str, int]:
    given = {"hold_ms": hold, "max_lag_ms": max_lag, "max_lag_bytes": max_lag_size}
    return {name: value for name, value in given.items() if value is not None}


@app.command("filter")
def filter_messages(
    queue: Queue,
    group: Group,
    where: Annotated[
        str | None, typer.Option("--where", help="""The condition on headers, such as 'region == "eu"'.""")
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Take the filter away: every message is the group's.")] = False,
    start: Annotated[
        str | None,
        typer.Option("--start", help="Where a group that is missing begins: earliest, latest, sequence:N or time:MS."),
    ] = None,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Give a group of a fan-out queue a filter. What does not match is acknowledged for the group by itself.

    The group is made if it is missing. A new filter counts for all that waits and for all that comes.

    Example: vibemq-admin group filter orders eu --where 'region == "eu"'
    """
    if (where is None) != none:
        raise Usage("say which messages are the group's with --where, or take its filter away with --none")
    if where == "":
        raise Usage("--where is empty; use --none to take the filter away")
    begin = {} if start is None else {"start": start}
    wanted = {"queue": queue, "group": group, "where": where or "", **begin}
    found = ask(url, timeout, "group.filter", dry_run=dry_run, **wanted)
    verb = "would have" if dry_run else "has"
    says = f"{verb} what matches {where}" if where else f"{verb} every message"
    Output(json=json).emit(found, f"group {group} of queue {queue}: {says}")


@app.command()
def seek(
    queue: Queue,
    group: Group,
    start: Start,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Move a group. A reader of the group is stopped; skipped messages count as read.

    A sequence that the queue does not keep any more is not reached: the group stands as near as it can (exit code 6).
    At a sequence that the queue has not reached yet the group waits, and messages before it count as read.

    Example: vibemq-admin group seek orders etl earliest
    """
    out = Output(json=json)
    before = _named(ask_all(url, timeout, "group.list", "groups", queue=queue), queue, group)
    if not dry_run:
        out.confirm(f"Move group {group} of queue {queue} from {before['committed']} to {start}?", yes=yes)
    end = ask(url, timeout, "group.offsets", queue=queue)["tail"] if start.startswith("sequence:") else None
    found = ask(url, timeout, "group.seek", dry_run=dry_run, queue=queue, group=group, start=start)
    to = found.get("committed", found.get("head"))
    asked = int(start.removeprefix("sequence:")) if start.startswith("sequence:") else to
    is_elsewhere = asked != to
    why = f", not to {asked}: the queue keeps messages from {to} on, or ends there" if is_elsewhere else ""
    done = would("moved", dry_run=dry_run)
    out.emit(found, f"group {group} of queue {queue}: {done} from {before['committed']} to {to}{why}")
    if end is not None:
        _note_beyond(out, to, end)
    if is_elsewhere:
        raise typer.Exit(ExitCode.PARTLY)


def _named(groups: list[dict[str, Any]], queue: str, group: str) -> dict[str, Any]:
    for entry in groups:
        if entry["group"] == group:
            return entry
    raise GroupNotFound(f"queue {queue!r} has no group {group!r}; `vibemq-admin group ls {queue}` lists those it has")


@app.command()
def quarantine(
    queue: Queue,
    group: Group,
    runs: Annotated[list[str], typer.Argument(metavar="SEQUENCES", help="17 or 20-25; may be repeated.")],
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Move messages of a cursor to the DLQ, for a job whose batch always fails. Checkpoints stay valid.

    Exit code 3 if none of the messages waits for the group.

    Example: vibemq-admin group quarantine orders etl 1041-1043
    """
    out = Output(json=json)
    wanted = [_run(text) for text in runs]
    count = sum(last - first + 1 for first, last in wanted)
    if not dry_run:
        out.confirm(f"Quarantine up to {count_text(count, 'message')} of queue {queue} for group {group}?", yes=yes)
    found = ask(url, timeout, "group.quarantine", dry_run=dry_run, queue=queue, group=group, runs=wanted)
    done = would("quarantined", dry_run=dry_run)
    out.emit(found, f"{count_text(found['quarantined'], 'message')} of queue {queue} {done} for group {group}")
    if not found["quarantined"]:
        named = f"{', '.join(runs)} {'is' if count == 1 else 'are'}"
        raise MessageNotFound(
            f"{named} not in queue {queue!r}, or not waiting for group {group!r} any more; `vibemq-admin group show "
            f"{queue} {group}` shows what is quarantined"
        )


def _run(text: str) -> tuple[int, int]:
    match = _RUN.fullmatch(text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise Usage(f"{text!r} is not a range of sequences; write 17 or 20-25")
    return first, last


@app.command("rm")
def remove(
    queue: Queue,
    group: Group,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Delete a group and its position; the queue no longer keeps messages for it."""
    out = Output(json=json)
    before = _named(ask_all(url, timeout, "group.list", "groups", queue=queue), queue, group)
    waiting = before["backlog_messages"]
    if not dry_run:
        out.confirm(f"Delete group {group} of queue {queue}, for which {count_text(waiting, 'message')} wait?", yes=yes)
    ask(url, timeout, "group.delete", dry_run=dry_run, queue=queue, group=group)
    verb = would("deleted", dry_run=dry_run)
    out.emit(
        {"queue": queue, "group": group, "deleted": not dry_run, "waiting": waiting, "dry_run": dry_run},
        f"group {group} of queue {queue} {verb}; it had {count_text(waiting, 'waiting message')}",
    )
