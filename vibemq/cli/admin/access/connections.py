"""`vibemq-admin connections` and `whoami`: who is connected to a running broker."""

from typing import Annotated, Any

import typer

from vibemq.cli.admin.access import rules
from vibemq.cli.admin.access.users import rule_table
from vibemq.cli.admin.watch.readers import HELD_COLUMNS, held
from vibemq.cli.exits import NotFound, Usage
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, DryRun, Json, Timeout, Url, Yes, user_names
from vibemq.cli.online import ask, ask_all, ask_all_or_own, call
from vibemq.cli.output import Output, bytes_text, count_text, facts, instant_text, table, would
from vibemq.cli.values import whole_number
from vibemq.client import Client
from vibemq.errors import NotAuthorized

app = typer.Typer(help="Connections of a running broker.", no_args_is_help=True)


@app.command("ls")
def list_connections(
    sort: Annotated[
        str | None,
        typer.Option("--sort", metavar="FIELD", help="A field, such as unsettled; -unsettled has the greatest first."),
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", metavar="USER", help="Only of this user.", autocompletion=user_names),
    ] = None,
    protocol: Annotated[str | None, typer.Option("--protocol", metavar="NAME", help="Only of this protocol.")] = None,
    name: Annotated[
        str | None,
        typer.Option("--name", metavar="TEXT", help="Only those whose client's name or address contains this."),
    ] = None,
    stuck: Annotated[bool, typer.Option("--stuck", help="Only those that do not read what they are sent.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List connections, oldest first or sorted. Users who are no superusers see their own.

    Example: vibemq-admin connections ls --sort=-unsettled --user spark
    """
    chosen: dict[str, Any] = {"user": user, "protocol": protocol, "name": name}
    if sort is not None:
        chosen |= {"sort": sort.removeprefix("-"), "descending": sort.startswith("-")}
    if stuck:
        chosen["stuck"] = True
    asked = ask_all_or_own if user is None else ask_all
    found = asked(url, timeout, "connections.list", "connections", **chosen)
    rows = [
        (
            each["connection_id"],
            each["user"],
            each.get("name", ""),
            each["protocol"],
            each["remote"],
            instant_text(each["since"]),
            bytes_text(each["bytes_received"]),
            bytes_text(each["bytes_sent"]),
            each.get("consumers", "–"),
            each.get("unsettled", "–"),
        )
        for each in found
    ]
    columns = (
        "connection",
        "user",
        "name",
        "protocol",
        "remote",
        "since",
        "received",
        "sent",
        "consumers",
        "unsettled",
    )
    Output(json=json).emit_many(found, table(columns, rows, whole=True))


@app.command("consumers")
def list_consumers_of(
    connection: Annotated[
        str, typer.Argument(metavar="CONNECTION", help="Of the connection, as `connections ls` shows it.")
    ],
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            metavar="USER",
            help="Only if it is of this user. Who is no superuser gives the own name.",
            autocompletion=user_names,
        ),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List what a connection consumes: of which queues, what it holds and since when."""
    found = ask_all(url, timeout, "connections.consumers", "consumers", connection_id=connection, user=user)
    rows = [(one["queue"], one["group"] or "(default)", *held(one)) for one in found]
    Output(json=json).emit_many(found, table(("queue", "group", *HELD_COLUMNS), rows, whole=True))


@app.command()
def close(
    connection: Annotated[
        str | None, typer.Argument(metavar="[CONNECTION]", help="Of one connection, as `connections ls` shows it.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option(
            "--user",
            "-u",
            metavar="USER",
            help="In place of one connection: all of this user. Who is no superuser gives the own name.",
            autocompletion=user_names,
        ),
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why; the client is told.")] = "",
    fail: Annotated[
        bool,
        typer.Option("--fail", help="Count a failed attempt of each message that it holds; else they are released."),
    ] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Close one connection, or all of a user. A client may connect again: revoke its token or change its password
    first, if it shall stay away. Users who are no superusers close their own. Exit code 3 if there is no such
    connection.

    Example: vibemq-admin connections close --user spark --reason "new password"
    """
    if (connection is None) == (user is None):
        raise Usage("name either one connection, or a user with --user")
    out = Output(json=json)
    if connection is None and not dry_run:
        out.confirm(f"Close all connections of user {user}?", yes=yes)
    how = {"reason": reason, **({"mode": "fail"} if fail else {}), **({"dry_run": True} if dry_run else {})}

    async def work(mq: Client) -> dict[str, Any]:
        if connection is None:
            return dict(await mq.admin("connections.close", user=user, **how))
        try:
            return dict(await mq.admin("connections.close", connection_id=connection, **how))
        except NotAuthorized:
            # A superuser's right; everybody may close one that is their own.
            own = (await mq.admin("user.self"))["user"]
            found = dict(await mq.admin("connections.close", connection_id=connection, user=own, **how))
            if not found["closed"]:
                raise
            return found

    found = call(url, timeout, work)
    if not found["closed"]:
        raise NotFound(
            f"there is no connection {connection!r}; `vibemq-admin connections ls` lists those there are"
            if connection is not None
            else f"user {user!r} has no other connection"
        )
    verb = "hold" if dry_run else "held"
    held = f", which {verb} {count_text(found['unsettled'], 'message')}" if found.get("unsettled") else ""
    out.emit(found, f"{count_text(found['closed'], 'connection')} {would('closed', dry_run=dry_run)}{held}")


@app.command()
def redirect(
    to: Annotated[str, typer.Argument(metavar="HOST:PORT", help="Where the client shall connect.")],
    connection: Annotated[
        str | None, typer.Option("--connection", "-c", metavar="CONNECTION", help="As `connections ls` shows it.")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", "-u", metavar="USER", help="All connections of this user.", autocompletion=user_names),
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Tell a client to connect to another server. It gets no more messages here, and is closed after 30 s if it stays.
    Only EventMesh clients over TCP can be told. Exit code 3 if there is no such connection.

    Example: vibemq-admin connections redirect 10.0.0.7:10000 --user billing
    """
    if (connection is None) == (user is None):
        raise Usage("name either one connection with --connection, or a user with --user")
    host, _, text = to.rpartition(":")
    port = whole_number(text)
    if not host or port is None or not 1 <= port <= _PORT_MAX:
        raise Usage(f"{to!r} is no place to connect to; write HOST:PORT")
    place = {"connection_id": connection} if user is None else {"user": user}
    found = ask(url, timeout, "connections.redirect", host=host.strip("[]"), port=port, **place)
    if not found["redirected"]:
        raise NotFound("there is no such connection, or none whose protocol can be told to go elsewhere")
    Output(json=json).emit(found, f"{count_text(found['redirected'], 'connection')} redirected")


_PORT_MAX = 65_535


def whoami(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Show as which user the broker knows you, and what you may do."""
    found = ask(url, timeout, "user.self")
    out = Output(json=json)
    if json:
        out.emit(found, "")
        return
    narrowed = found["narrowed_to"]
    pairs = [
        ("user", found["user"] if found["authentication"] else "nobody: this broker has no authentication"),
        ("superuser", found["superuser"]),
        ("access token", found["token"]),
    ]
    if narrowed is not None:
        pairs.append(("no more than", " ".join(map(rules.rule_of, narrowed)) or "nothing"))
    out.console.print(facts(pairs))
    if found["permissions"]:
        out.console.print()
        out.console.print(rule_table(found["permissions"], title="permissions"))
