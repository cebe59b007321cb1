"""Measure starts with very many messages, dead letters, delayed messages and queues, and subscribers that join.

Every store is filled through its provider, started after a clean stop, and once more after kill -9. Goals are of wall
time; on a machine with other load compare the processor time.
"""

import argparse
import asyncio
import resource
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.common.options import parsed, switches
from bench.common.report import Journal, table
from bench.scale import stores
from bench.scale.broker import Broker
from bench.scale.subscribers import join_and_stop


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    fill: stores.Fill
    counts: tuple[int, ...]
    seconds: float
    mib: float | None = None
    providers: tuple[str, ...] = ("lmdb",)


CASES = (
    Case("messages", stores.messages, (10**6, 10**7, 10**8), 3.0),
    Case("dead letters", stores.dead_letters, (10**5, 10**6), 3.0, providers=("lmdb", "sqlite")),
    Case("delayed", stores.delayed, (10**5, 10**6), 4.0, 100.0),
    Case("queues", stores.queues, (10**4, 10**5), 10.0, 300.0, ("lmdb", "sqlite")),
    Case("used queues", stores.used_queues, (10**5,), 10.0, 300.0, ("lmdb", "sqlite")),
)
SUBSCRIBERS = 10_000
JOIN_S, STOP_S = 6.0, 10.0
CONNECTIONS_BESIDE = 100
FALLS_SHORT = "fall short"


def main() -> None:
    options = _options()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    rows: list[list[str]] = []
    with Journal(options.output) as journal:
        for case in CASES:
            if options.only in case.name:
                for row in _starts(case, options, journal):
                    print("  " + "  ".join(row), flush=True)
                    rows.append(row)
        if options.only in "subscribers":
            rows += _subscribers(options, journal)
    print(f"\n{table(['what', 'start', 'processor', 'private', 'goal', 'verdict'], rows)}")
    if short := [row[0] for row in rows if row[-1] == FALLS_SHORT]:
        raise SystemExit(f"{len(short)} fall short of their goals: {', '.join(short)}")


def _options() -> argparse.Namespace:
    parser = switches("scale", __doc__)
    parser.add_argument("--power", type=int, default=8, help="largest number of anything, as a power of ten (8)")
    parser.add_argument("--only", default="", help="cases whose name holds this: " + ", ".join(c.name for c in CASES))
    return parsed("scale", parser, whose="the broker's")


def _starts(case: Case, options: argparse.Namespace, journal: Journal) -> Iterator[list[str]]:
    for provider in case.providers:
        for count in (count for count in case.counts if count <= 10**options.power):
            with tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=options.data_root) as folder:
                data = Path(folder) / "data"
                stores.build(data, provider, case.fill, count)
                for ended in ("a clean stop", "kill -9"):
                    broker = Broker(data, provider)
                    start = broker.start
                    broker.kill()
                    journal.write("start", case=case.name, provider=provider, count=count, ended=ended, **asdict(start))
                    yield _row(case, f"{count:,} {case.name}, {provider}, after {ended}", asdict(start))


def _row(case: Case, name: str, start: dict[str, float]) -> list[str]:
    seconds, mib = start["seconds"], start["rss_anon_mib"]
    holds = seconds < case.seconds and (case.mib is None or mib < case.mib)
    goal = f"< {case.seconds:g} s" + ("" if case.mib is None else f", < {case.mib:g} MiB")
    figures = [f"{seconds:.2f} s", f"{start['cpu_s']:.2f} s", f"{mib:.0f} MiB"]
    return [name, *figures, goal, "pass" if holds else FALLS_SHORT]


def _subscribers(options: argparse.Namespace, journal: Journal) -> list[list[str]]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = min(SUBSCRIBERS, 10**options.power, hard - CONNECTIONS_BESIDE)
    with tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=options.data_root) as folder:
        broker = Broker(Path(folder) / "data", "lmdb", connections_max=count + CONNECTIONS_BESIDE)
        found = asyncio.run(join_and_stop(broker, count))
    journal.write("subscribers", count=count, **asdict(found))
    joined = [f"{found.join_s:.2f} s", f"{found.join_cpu_s:.2f} s", f"{found.rss_anon_mib:.0f} MiB", f"< {JOIN_S:g} s"]
    stopped = [f"{found.stop_s:.2f} s", "–", "–", f"< {STOP_S:g} s"]
    return [
        [f"{count:,} subscribers of a fan-out queue join", *joined, "pass" if found.join_s < JOIN_S else FALLS_SHORT],
        ["stop with all of them connected", *stopped, "pass" if found.stop_s < STOP_S else FALLS_SHORT],
    ]


if __name__ == "__main__":
    main()
