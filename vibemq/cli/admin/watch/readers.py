"""`vibemq-admin consumer`, `cursor` and `transaction`: who reads a running broker's queues, and who writes together."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Queue, Timeout, Url
from vibemq.cli.online import ask_all
from vibemq.cli.output import Output, bytes_text, duration_text, instant_text, table

consumers = typer.Typer(help="Consumers of a running broker's queues.", no_args_is_help=True)
cursors = typer.Typer(help="Groups that read by ranges, of all queues.", no_args_is_help=True)
transactions = typer.Typer(help="Applications that commit transactions.", no_args_is_help=True)


@consumers.callback()
@cursors.callback()
@transactions.callback()
def _a_group_of_verbs() -> None:
    """Else an application with one verb is that verb."""


HELD_COLUMNS = ("in flight", "prefetch", "held for", "last ack")


def held(one: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a consumer holds, for `HELD_COLUMNS`."""
    no_timeout = one["in_flight"] and not one.get("ack_timeout_ms", 1)
    since = "no ack timeout" if no_timeout else _for(one["oldest_held_ms"])
    return (one["in_flight"], one["prefetch"], since, instant_text(one["last_ack_at"] or 0))


@consumers.command("ls")
def list_consumers(
    queue: Queue, url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False
) -> None:
    """List the consumers of a queue, what they hold and since when."""
    found = ask_all(url, timeout, "consumer.list", "consumers", queue=queue)
    columns = ("group", "client", "user", *HELD_COLUMNS, "connection")
    rows = [
        (
            one["group"] or "(default)",
            one["client"] or "–",
            one["user"] or "–",
            *held(one),
            one["connection"] or "–",
        )
        for one in found
    ]
    Output(json=json).emit_many(found, table(columns, rows, whole=True))


@cursors.command("ls")
def list_cursors(
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", metavar="TEXT", help="Only of queues whose names contain this.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", metavar="TEXT", help="Only groups whose names contain this.")
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List groups that read by ranges, as Spark does, those furthest behind first."""
    found = ask_all(url, timeout, "cursor.list", "cursors", queue=queue, group=group)
    columns = (
        "queue",
        "group",
        "user",
        "reader",
        "epoch",
        "acknowledged below",
        "behind",
        "size",
        "state",
        "lost",
        "quarantined",
    )
    rows = [
        (
            one["queue"],
            one["group"],
            one["user"] or "–",
            one["owner"] or "–",
            one["epoch"],
            one["committed"],
            one["backlog"],
            bytes_text(one["backlog_bytes"]),
            "EXPIRED" if one["expired"] else "",
            one["lost"],
            one["quarantined"],
        )
        for one in found
    ]
    Output(json=json).emit_many(found, table(columns, rows, whole=True))


@transactions.command("ls")
def list_transactions(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """List applications that commit transactions, their last versions and open stages."""
    found = ask_all(url, timeout, "transaction.list", "applications")
    columns = ("application", "user", "version", "committed", "open stages", "size", "oldest stage")
    rows = [
        (
            one["app"],
            one["user"] or "–",
            "–" if one["version"] is None else one["version"],
            instant_text(one["committed_at"] or 0),
            one["stage_count"],
            bytes_text(one["stage_bytes"]),
            _for(max((stage["age_ms"] for stage in one["stages"]), default=None)),
        )
        for one in found
    ]
    Output(json=json).emit_many(found, table(columns, rows, whole=True))


def _for(milliseconds: Any) -> str:
    return "–" if milliseconds is None else duration_text(milliseconds)
