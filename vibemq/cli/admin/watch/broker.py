"""`vibemq-admin broker`: how a running broker is, how it was, and how it is set."""

from typing import Annotated, Any

import typer

from vibemq.cli.exits import Usage, plain
from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, queue_names
from vibemq.cli.online import ask
from vibemq.cli.output import Output, bytes_text, duration_text, facts, instant_text, table

app = typer.Typer(help="State, history and settings of a running broker.", no_args_is_help=True)

RANGES = ("15m", "6h", "48h")


@app.command()
def overview(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """Show whether all is well, what waits, and how fast messages come and go."""
    found = ask(url, timeout, "broker.overview")
    from rich.console import Group

    Output(json=json).emit(found, Group(*_overview(found)))


def _overview(found: dict[str, Any]) -> list[Any]:
    told = [f"{one['level']}: {plain(one['text'])}\n      → {plain(one['remedy'])}" for one in found["sentences"]] or [
        "All is well."
    ]
    oldest, totals, rates = found["oldest"], found["totals"], found["rates"]
    pairs: list[tuple[str, object]] = [
        ("oldest message", f"{duration_text(oldest['age_ms'])} in {oldest['queue']}" if oldest else "–"),
        ("rates", ", ".join(f"{name.replace('_', ' ')} {rate:,.1f}/s" for name, rate in rates.items())),
        *((name.replace("_", " "), bytes_text(n) if name == "bytes" else f"{n:,}") for name, n in totals.items()),
        *((died_text(dead), dead["count"]) for dead in found["dead_recent"]),
        *((f"behind: {one['queue']}/{one['group']}", one["backlog"]) for one in found["cursors_behind"]),
    ]
    for name, value in (found["latency"] or {}).items():
        pairs.append((name.removesuffix("_ms").replace("_", " "), "–" if value is None else f"{value:g} ms"))
    return [*told, "", facts(pairs)]


def died_text(dead: dict[str, Any]) -> str:
    """`dlq groups` shows the error of a fingerprint, and `dlq ls --fingerprint` the letters."""
    of = f", fingerprint {dead['fingerprint']}" if dead["fingerprint"] else ""
    return f"new dead letters in {dead['queue']}{of}"


@app.command()
def settings(
    changed: Annotated[bool, typer.Option("--changed", help="Only those that are no defaults.")] = False,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """List every setting, where its value comes from, and what makes a change of it count."""
    found = [
        one for one in ask(url, timeout, "broker.settings")["settings"] if not (changed and one["origin"] == "default")
    ]
    # A number as it is written in the settings: 2925 is a port.
    rows = [(one["name"], _written(one["value"]), one["origin"], one["when"]) for one in found]
    Output(json=json).emit_many(found, table(("setting", "value", "from", "changes count after"), rows, whole=True))


@app.command()
def listeners(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """List where the broker listens, with what each listener has refused since the start of the broker."""
    found = ask(url, timeout, "listeners.list")["listeners"]
    rows = [
        (
            one["protocol"],
            f"{one['host']}:{one['port']}",
            "yes" if one["tls"] else "no",
            instant_text(one["certificate_until"] or 0),
            one["connections"],
            "–" if one["refused"] is None else one["refused"],
            "–" if one["handshakes_failed"] is None else one["handshakes_failed"],
        )
        for one in found
    ]
    columns = ("protocol", "address", "TLS", "certificate until", "connections", "refused", "handshakes failed")
    Output(json=json).emit_many(found, table(columns, rows))


@app.command()
def backups(url: Url = DEFAULT_URL, timeout: Timeout = DEFAULT_TIMEOUT, json: Json = False) -> None:
    """List the latest backups that the broker has written, and whether their folders are still there."""
    found = ask(url, timeout, "backup.list")["backups"]
    rows = [
        (
            instant_text(one["at"]),
            one["target"],
            bytes_text(one.get("size_bytes", 0)),
            one.get("user", ""),
            "yes" if one["is_there"] else "no",
        )
        for one in found
    ]
    Output(json=json).emit_many(found, table(("time", "folder", "size", "by", "there"), rows, whole=True))


def _written(value: Any) -> Any:
    return value if isinstance(value, bool) or not isinstance(value, int | float) else str(value)


def figure_text(name: str, figure: float | None) -> str:
    if figure is None:
        return "–"
    if name.endswith("_bytes"):
        return bytes_text(figure)
    return f"{figure:,.3f}".rstrip("0").rstrip(".")


@app.command()
def history(
    queue: Annotated[
        str | None, typer.Argument(metavar="[QUEUE]", help="Left out: the whole broker.", autocompletion=queue_names)
    ] = None,
    range_: Annotated[str, typer.Option("--range", metavar="TIME", help="How far back: 15m, 6h or 48h.")] = "15m",
    series: Annotated[
        list[str] | None, typer.Option("--series", "-s", metavar="NAME", help="Only this figure; may be repeated.")
    ] = None,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Show the figures of the last 15 minutes, 6 hours or 48 hours.

    Example: vibemq-admin broker history orders --range 6h --series ready --series in
    """
    if range_ not in RANGES:
        raise Usage(f"--range must be one of {', '.join(RANGES)}, not {range_!r}")
    found = ask(url, timeout, "history.get", queue=queue, range=range_, series=series or None)
    names = list(found["series"])
    rows = []
    for number, figures in enumerate(zip(*found["series"].values(), strict=True)):
        if any(figure is not None for figure in figures):
            at = found["from_at"] + number * found["step_ms"]
            rows.append((instant_text(at), *map(figure_text, names, figures)))
    Output(json=json).emit(found, table(("time", *names), rows, whole=True))
