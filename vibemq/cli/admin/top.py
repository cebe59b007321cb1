"""`vibemq-admin top`: what a broker does right now."""

from typing import Annotated, Any

import anyio
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from vibemq.cli.exits import plain, root_of
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, duration_option
from vibemq.cli.online import call
from vibemq.cli.output import Output, bytes_text, duration_text, table
from vibemq.client import Client
from vibemq.client.pages import every_item
from vibemq.errors import NotAuthorized

CONNECTIONS_SHOWN = 20
QUEUES_SHOWN = 50


def top(
    interval: Annotated[int, duration_option("--interval", "Time between two updates.", default="1s")] = 1_000,
    once: Annotated[bool, typer.Option("--once", help="Print once, after one interval, and end.")] = False,
    sort: Annotated[
        str, typer.Option("--sort", metavar="FIELD", help="Of the queues, such as -ready; - has the greatest first.")
    ] = "-in_rate",
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show queues, rates and connections until Ctrl-C; with --json or --once, print them once."""
    out = Output(json=json)
    seconds = max(interval, 100) / 1000

    async def work(mq: Client) -> None:
        whole = json or once or not out.console.is_terminal
        await anyio.sleep(seconds if whole else 0)
        seen = await look(mq, sort, whole=whole)
        if whole:
            out.emit(seen, screen(seen))
            return
        with Live(screen(seen), console=out.console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(screen(seen), refresh=True)
                await anyio.sleep(seconds)
                seen = await look(mq, sort, whole=False)

    try:
        call(url, timeout, work)
    except BaseException as error:
        # Ctrl-C is how the screen ends, so it is no interruption.
        if not isinstance(root_of(error), KeyboardInterrupt) or json or once or not out.console.is_terminal:
            raise


async def look(mq: Client, sort: str, *, whole: bool) -> dict[str, Any]:
    """`whole`: with all queues, not only as many as a screen shows. Only superusers are told of connections."""
    broker = await mq.admin("broker.overview")
    if whole:
        queues = await every_item(mq.admin, "queue.rows", "queues", sort=sort)
    else:
        queues = (await mq.admin("queue.rows", sort=sort, limit=QUEUES_SHOWN))["queues"]
    try:
        connections = await every_item(mq.admin, "connections.list", "connections")
    except NotAuthorized:
        connections = []
    return {"at": broker["sampled_at"] / 1000, "broker": broker, "queues": queues, "connections": connections}


def screen(seen: dict[str, Any]) -> RenderableType:
    broker, queues = seen["broker"], seen["queues"]
    rates, totals = broker["rates"], broker["totals"]
    is_told = broker["connections"] is not None
    connections = f"connections {len(seen['connections'])}  " if is_told else ""
    head = Text.assemble(
        ("VibeMQ ", "bold"),
        f"{broker['version']}  up {duration_text(max(0, broker['sampled_at'] - broker['started_at']))}",
        f"\n{connections}queues {totals['queues']:,}",
        f"  in {rates['in']:,.0f}/s  out {rates['out']:,.0f}/s  settled {rates['ack']:,.0f}/s",
    )
    for told in broker["sentences"]:
        sentence = f"{told['level']}: {told['text']} → {told['remedy']}"
        head.append(f"\n{plain(sentence)}", style="yellow")
    columns = (
        "queue",
        "state",
        "ready",
        "in flight",
        "delayed",
        "dead",
        "consumers",
        "size",
        "in/s",
        "out/s",
        "settled/s",
    )
    shown = table(columns, [_row(queue) for queue in queues])
    return Group(head, shown, _connections(seen["connections"])) if is_told else Group(head, shown)


def _connections(found: list[dict[str, Any]]) -> RenderableType:
    """Those that carry most, by name: the programs that make the rates above."""
    most = sorted(found, key=lambda one: -(one["bytes_received"] + one["bytes_sent"]))[:CONNECTIONS_SHOWN]
    rows = [
        (
            one.get("name") or "–",
            one["user"],
            one["protocol"],
            one["remote"],
            bytes_text(one["bytes_received"]),
            bytes_text(one["bytes_sent"]),
        )
        for one in most
    ]
    title = f"connections, {len(most)} of {len(found)}" if len(most) < len(found) else "connections"
    return table(("name", "user", "protocol", "from", "received", "sent"), rows, title=title)


def _row(queue: dict[str, Any]) -> tuple[object, ...]:
    return (
        queue["queue"],
        queue["state"].replace("_", " "),
        queue["ready"],
        queue["in_flight"],
        queue["delayed"],
        queue["dead"],
        queue["consumers"],
        bytes_text(queue["bytes"]),
        *(f"{queue[rate]:,.0f}" for rate in ("in_rate", "out_rate", "ack_rate")),
    )
