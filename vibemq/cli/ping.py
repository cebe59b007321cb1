"""`vibemq ping`: measures the round-trip time to a broker."""

from typing import Annotated

import anyio
import typer

from vibemq.cli.flags import DEFAULT_TIMEOUT, DEFAULT_URL, Json, Timeout, Url, duration_option
from vibemq.cli.online import call
from vibemq.cli.output import Output
from vibemq.client import Client


def ping(
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Number of pings.")] = 4,
    interval: Annotated[int, duration_option("--interval", "From one to the next.", default="200ms")] = 200,
    url: Url = DEFAULT_URL,
    timeout: Timeout = DEFAULT_TIMEOUT,
    json: Json = False,
) -> None:
    """Measure the round-trip time to the broker."""
    out = Output(json=json)

    async def work(mq: Client) -> tuple[str, list[float]]:
        laps: list[float] = []
        for number in range(count):
            if number:
                await anyio.sleep(interval / 1000)
            laps.append(1000 * await mq.ping())
            if not json:
                out.console.print(f"{number + 1}: {laps[-1]:.2f} ms")
        return mq.server_version, laps

    version, laps = call(url, timeout, work)
    summary = {"min_ms": min(laps), "median_ms": median(laps), "max_ms": max(laps)}
    out.emit(
        {"server_version": version, "count": len(laps), **{name: round(value, 3) for name, value in summary.items()}},
        f"broker {version}: min {min(laps):.2f} ms, median {median(laps):.2f} ms, max {max(laps):.2f} ms",
    )


def median(values: list[float]) -> float:
    """The middle value, the upper one of two; values must not be empty."""
    return sorted(values)[len(values) // 2]
