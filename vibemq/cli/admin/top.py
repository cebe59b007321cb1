"""`vibemq-admin top`: what a broker does right now."""

import time
from typing import Annotated, Any

import anyio
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from vibemq.cli.admin.queue_flags import named
from vibemq.cli.exits import root_of
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, duration_option
from vibemq.cli.online import call
from vibemq.cli.output import Output, bytes_text, duration_text, table
from vibemq.client import Client
from vibemq.client.pages import every_item

CONNECTIONS_SHOWN = 20
RATES = ("published", "delivered", "settled", "dead_lettered")


def top(
    interval: Annotated[int, duration_option("--interval", "Time between two updates.", default="1s")] = 1_000,
    once: Annotated[bool, typer.Option("--once", help="Print once, after one interval, and end.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show queues, rates and connections until Ctrl-C; with --json or --once, print them once."""
    out = Output(json=json)
    seconds = max(interval, 100) / 1000

    async def work(mq: Client) -> None:
        before = await snapshot(mq)
        await anyio.sleep(seconds)
        after = await snapshot(mq)
        if json or once or not out.console.is_terminal:
            rated = with_rates(before, after)
            out.emit({**rated, "queues": [named(queue) for queue in rated["queues"]]}, screen(rated))
            return
        with Live(screen(with_rates(before, after)), console=out.console, screen=True, auto_refresh=False) as live:
            while True:
                await anyio.sleep(seconds)
                before, after = after, await snapshot(mq)
                live.update(screen(with_rates(before, after)), refresh=True)

    try:
        call(url, timeout, work)
    except BaseException as error:
        # Ctrl-C is how the screen ends, so it is no interruption.
        if not isinstance(root_of(error), KeyboardInterrupt) or json or once or not out.console.is_terminal:
            raise


async def snapshot(mq: Client) -> dict[str, Any]:
    return {
        "at": time.time(),
        "monotonic": time.monotonic(),
        "broker": await mq.admin("broker.info"),
        "queues": await every_item(mq.admin, "queue.list", "queues"),
        "connections": await every_item(mq.admin, "connections.list", "connections"),
    }


def with_rates(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The later snapshot, each queue with `rates` per second since the earlier one (none below 0: it restarted)."""
    seconds = max(0.001, after["monotonic"] - before["monotonic"])
    earlier = {queue["name"]: queue.get("counters") or {} for queue in before["queues"]}
    queues = []
    for queue in after["queues"]:
        counters, old = queue.get("counters") or {}, earlier.get(queue["name"], {})
        rates = {name: round(max(0, counters.get(name, 0) - old.get(name, 0)) / seconds, 1) for name in RATES}
        queues.append({**queue, "rates": rates})
    shown = {name: value for name, value in after.items() if name != "monotonic"}
    return {**shown, "queues": queues}


def screen(rated: dict[str, Any]) -> RenderableType:
    broker, queues = rated["broker"], rated["queues"]
    totals = {name: sum(queue["rates"][name] for queue in queues) for name in RATES}
    head = Text.assemble(
        ("VibeMQ ", "bold"),
        f"{broker.get('version', '')}  up {_uptime(broker)}  {broker.get('data_dir', '')}",
        f"\nconnections {len(rated['connections'])}  queues {len(queues)}",
        f"  in {totals['published']:,.0f}/s  out {totals['delivered']:,.0f}/s  settled {totals['settled']:,.0f}/s",
    )
    busiest = sorted(queues, key=lambda q: (-sum(q["rates"].values()), -q["ready"], q["name"]))
    columns = ("queue", "ready", "in flight", "delayed", "dead", "consumers", "size", "in/s", "out/s", "settled/s")
    return Group(head, table(columns, [_row(queue) for queue in busiest]), _connections(rated["connections"]))


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
    rates = queue["rates"]
    return (
        queue["name"],
        queue["ready"],
        queue["in_flight"],
        queue["delayed"],
        queue["dead"],
        queue["consumers"],
        bytes_text(queue["size"]),
        f"{rates['published']:,.0f}",
        f"{rates['delivered']:,.0f}",
        f"{rates['settled']:,.0f}",
    )


def _uptime(broker: dict[str, Any]) -> str:
    for name, factor in (("uptime_ms", 1), ("uptime_seconds", 1000), ("uptime", 1000)):
        if isinstance(broker.get(name), int | float):
            return duration_text(broker[name] * factor)
    return "–"
