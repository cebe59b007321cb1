"""`vibemq-admin queue`: create, look at, change and remove queues of a running broker."""

from typing import Annotated, Any

import typer

from vibemq.cli.admin import queue_flags as flag
from vibemq.cli.admin.transfer.export_command import export
from vibemq.cli.admin.transfer.import_command import import_file
from vibemq.cli.admin.transfer.move_command import move
from vibemq.cli.exits import QueueMissing, Usage
from vibemq.cli.flags import (
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    DryRun,
    Json,
    Queue,
    Timeout,
    Url,
    Yes,
    duration_option,
    pair_option,
)
from vibemq.cli.messages import message_table
from vibemq.cli.online import ask, ask_all, call
from vibemq.cli.output import Output, bytes_text, count_text, facts, instant_text, table, would
from vibemq.cli.values import key_values
from vibemq.client import Client
from vibemq.errors import NotAuthorized
from vibemq.model.options import option_text, options_in_words
from vibemq.model.quantities import NUMBER_MAX

app = typer.Typer(help="Queues of a running broker.", no_args_is_help=True)
app.command()(move)
app.command()(export)
app.command("import")(import_file)

AtMostDeleted = Annotated[
    int | None,
    typer.Option(
        "--at-most",
        min=0,
        metavar="N",
        help="Fail, and change nothing, if the queue has more than N messages, with those that consumers hold.",
    ),
]
AtMostPurged = Annotated[
    int | None,
    typer.Option(
        "--at-most", min=0, metavar="N", help="Fail, and change nothing, if more than N messages are ready or delayed."
    ),
]
MissingOk = Annotated[bool, typer.Option("--missing-ok", help="Succeed also if the queue does not exist.")]


@app.command()
@flag.with_queue_options(flag.FIXED | flag.CHANGEABLE)
def create(
    queue: Queue,
    options: dict[str, Any],
    must_match: Annotated[
        bool, typer.Option("--must-match", help="Fail if the queue exists with other options.")
    ] = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Create a queue. An existing queue is not changed (see --must-match).

    Example: vibemq-admin queue create orders --durability strong --max-attempts 5 --ack-timeout 1m

    Example: vibemq-admin queue create prices --mode broadcast --durability weak --retain 1GiB
    """
    out = Output(json=json)
    created: bool | None
    there: dict[str, Any] | None = None
    try:
        there = ask(url, timeout, "queue.info", queue=queue)
        created = there is None
    except NotAuthorized:
        # Creating needs no `inspect`; whether it was there before then stays unknown.
        created = None
    ask(url, timeout, "queue.create", dry_run=dry_run, queue=queue, options=options, must_match=must_match)
    if created is None:
        verb = "would be created unless it exists" if dry_run else "exists now"
    elif created:
        verb = "would be created" if dry_run else "created"
    else:
        verb = "exists"
    wanted = flag.applied(options)
    different = {} if there is None else _different(there["options"], wanted)
    value = {"queue": queue, "created": created, "dry_run": dry_run, "options": wanted, "different": different}
    out.emit(value, f"queue {queue}: {verb}")
    if different:
        told = "; ".join(
            f"{name} is {option_text(name, has)}, not {option_text(name, wanted[name])}"
            for name, has in different.items()
        )
        out.note(f"! it has other options, and keeps them: {told}", style="yellow")


def _different(has: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """Those of the wanted options that the queue has otherwise, as it has them."""
    return {name: value for name, value in options_in_words(has).items() if name in wanted and wanted[name] != value}


@app.command()
@flag.with_queue_options(flag.CHANGEABLE)
def change(
    queue: Queue,
    options: dict[str, Any],
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Change options of an existing queue.

    Mode, retention and exclusive cannot be changed, nor the durability from or to transient: create another queue, and
    bring the messages there with `queue move`, or with `queue export` and `queue import`.

    Example: vibemq-admin queue change orders --max-attempts 10
    """
    if not options:
        raise Usage("nothing to change; name at least one option, such as --max-attempts 5")
    before = _info(url, timeout, queue)["options"]
    ask(url, timeout, "queue.change", dry_run=dry_run, queue=queue, changes=options)
    changes = flag.applied(options)
    lines = (
        f"{name}: {option_text(name, before.get(name))} → {option_text(name, value)}" for name, value in changes.items()
    )
    Output(json=json).emit(
        {"queue": queue, "changes": changes, "dry_run": dry_run},
        f"queue {queue}{' would change' if dry_run else ''}\n" + "\n".join(lines),
    )


@app.command("ls")
def list_queues(
    sort: Annotated[
        str | None,
        typer.Option(
            "--sort",
            metavar="FIELD",
            help="Sort by queue, or by a figure such as ready or in_rate; --sort=-ready: the greatest first.",
        ),
    ] = None,
    state: Annotated[
        str | None,
        typer.Option(
            "--state",
            metavar="WORD",
            help="Only queues that are idle, delayed, flowing, awaiting_acks, falling_behind, stuck, full, "
            "no_consumer.",
        ),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="TEXT", help="Only queues whose names contain this.")
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List all queues with their waiting messages; with --sort, --state or --name also their rates and states.

    Example: vibemq-admin queue ls --state falling-behind --sort=-ready
    """
    if sort is None and state is None and name is None:
        queues = ask_all(url, timeout, "queue.list", "queues")
        columns = ("queue", "mode", "durability", "ready", "in flight", "delayed", "dead", "consumers", "size")
        Output(json=json).emit_many(
            [flag.named(q) for q in queues], table(columns, [_list_row(info) for info in queues])
        )
        return
    chosen = {"name": name, "state": None if state is None else state.replace("-", "_")}
    rows = ask_all(url, timeout, "queue.rows", "queues", sort=sort or "queue", **chosen)
    headings = (
        "queue",
        "state",
        "ready",
        "in flight",
        "delayed",
        "dead",
        "in/s",
        "out/s",
        "ack/s",
        "consumers",
        "size",
    )
    Output(json=json).emit_many(rows, table(headings, map(_figures_row, rows)))


def _figures_row(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        row["queue"],
        row["state"].replace("_", " "),
        *(
            row[name]
            for name in ("ready", "in_flight", "delayed", "dead", "in_rate", "out_rate", "ack_rate", "consumers")
        ),
        bytes_text(row["bytes"]),
    )


def _list_row(info: dict[str, Any]) -> tuple[object, ...]:
    names = ("ready", "in_flight", "delayed", "dead", "consumers")
    if info.get("restricted"):
        # All but the name needs the permission `inspect`.
        return (info["name"], "–", "–", *("–" for _ in names), "–")
    options = options_in_words(info["options"])
    counts = (info[name] for name in names)
    return (info["name"], options["mode"], options["durability"], *counts, bytes_text(info["size"]))


@app.command()
def info(queue: Queue, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Show one queue: options, counts, groups."""
    found = _info(url, timeout, queue)
    out = Output(json=json)
    if json:
        out.emit(flag.named(found), "")
        return
    out.console.print(facts(_facts_of(found), title=f"queue {queue}"))
    out.console.print()
    out.console.print(facts(options_in_words(found["options"]).items(), title="options"))
    groups = found.get("groups") or []
    if groups:
        names = ("name", "durable", "head", "waiting", "in_flight", "consumers", "epoch")
        rows = [[group["name"] or "(default)", *(group[name] for name in names[1:])] for group in groups]
        out.console.print()
        out.console.print(table([name.replace("_", " ") for name in names], rows, title="groups"))


def _facts_of(found: dict[str, Any]) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = [
        (name.replace("_", " "), found[name]) for name in ("ready", "in_flight", "delayed", "dead", "consumers")
    ]
    pairs += [
        ("size", bytes_text(found["size"])),
        ("sequences", _sequences_text(found["first_sequence"], found["next_sequence"])),
        ("oldest", instant_text(found["oldest_at"])),
        ("created", instant_text(found["created_at"])),
    ]
    return pairs + [
        (f"{name.replace('_', ' ')} since start", count) for name, count in (found.get("counters") or {}).items()
    ]


def _sequences_text(first: int, following: int) -> str:
    return f"{first} up to {following - 1}" if first < following else f"none; the next one is {following}"


@app.command("rm")
def remove(
    queue: Queue,
    yes: Yes = False,
    dry_run: DryRun = False,
    missing_ok: MissingOk = False,
    at_most: AtMostDeleted = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Delete a queue with its messages, those that consumers hold included. Its dead letters stay until they are
    purged or replayed."""
    out = Output(json=json)
    found = ask(url, timeout, "queue.info", queue=queue)
    if found is None:
        if not missing_ok:
            raise QueueMissing(queue)
        out.emit({"queue": queue, "deleted": False, "dry_run": dry_run}, f"queue {queue} does not exist")
        return
    losing = found["ready"] + found["in_flight"] + found["delayed"]
    if not dry_run:
        out.confirm(f"Delete queue {queue} with {count_text(losing, 'unsettled message')}?", yes=yes)
    ask(url, timeout, "queue.delete", dry_run=dry_run, queue=queue, at_most=at_most)
    verb = would("deleted", dry_run=dry_run)
    out.emit(
        {"queue": queue, "deleted": not dry_run, "messages": losing, "dry_run": dry_run},
        f"queue {queue} {verb}, with {count_text(losing, 'unsettled message')}",
    )


@app.command()
def purge(
    queue: Queue,
    yes: Yes = False,
    dry_run: DryRun = False,
    at_most: AtMostPurged = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Delete all waiting messages, but not those that consumers hold."""
    out = Output(json=json)
    found = _info(url, timeout, queue)
    count = found["ready"] + found["delayed"]
    if not dry_run:
        out.confirm(f"Drop {count_text(count, 'waiting message')} of queue {queue}?", yes=yes)
    count = ask(url, timeout, "queue.purge", dry_run=dry_run, queue=queue, at_most=at_most)["count"]
    verb = would("dropped", dry_run=dry_run)
    out.emit(
        {"queue": queue, "count": count, "dry_run": dry_run}, f"{count_text(count, 'message')} of queue {queue} {verb}"
    )


@app.command()
def peek(
    queue: Queue,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number.")] = 10,
    start: Annotated[
        int, typer.Option("--from", metavar="SEQUENCE", min=0, max=NUMBER_MAX, help="First sequence to show.")
    ] = 0,
    newer_than: Annotated[
        int | None, duration_option("--newer-than", "Only what was published within this time, such as 1h.")
    ] = None,
    state: Annotated[
        str | None, typer.Option("--state", metavar="WORD", help="Only ready, delayed or in_flight; default: waiting.")
    ] = None,
    message_id: Annotated[str | None, typer.Option("--id", metavar="ID", help="Search: only with this id.")] = None,
    header: Annotated[
        list[str] | None,
        pair_option("--header", "-H", text="Search: only with this header; may be repeated."),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show stored messages without delivering them.

    A search looks at one message after the other, of all states if --state names none.
    """
    chosen: dict[str, Any] = {"queue": queue, "state": state, "message_id": message_id}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    if header:
        chosen["header"] = key_values(header)

    published = {} if newer_than is None else {"newer_than_ms": newer_than}

    async def work(mq: Client) -> list[dict[str, Any]]:
        if len(chosen) == 1:
            return list(await mq.admin("queue.peek", **chosen, **published, limit=limit, **{"from": start}))
        found: list[dict[str, Any]] = []
        after: int | None = start
        while after is not None and len(found) < limit:
            page = await mq.admin("queue.peek", **chosen, **published, limit=limit - len(found), **{"from": after})
            found += page["messages"]
            after = page["next"]
        return found

    messages = call(url, timeout, work)
    Output(json=json).emit_many(messages, message_table(messages))


def _info(url: str, timeout: float, queue: str) -> dict[str, Any]:
    found: dict[str, Any] | None = ask(url, timeout, "queue.info", queue=queue)
    if found is None:
        raise QueueMissing(queue)
    return found
