"""Measure a client that publishes single messages and waits for each, alone and beside others at full speed.

    python -m bench.mixed [--rounds 3] [--seconds 3] [--rate 250] [--cells alone,strong] [--spans]

The cells take turns, in one run. Latency is the client's, from the instant at which it sends a message to its confirm.
`--spans` has the broker note where each message is, and prints where its time went; that costs the broker something.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import vibemq
import vibemq.sync
from bench.common.accounting import cpu_seconds, machine_busy_s, process_tree
from bench.common.load import now, quantiles_ms
from bench.common.options import parsed, switches
from bench.common.reaper import REPOSITORY, Reaper
from bench.common.report import Journal, fsync_ms, table
from bench.common.servers import Plan, Server, free_port
from bench.mixed.clients import BULK, SMALL

WARM_UP_S = 0.3
SAMPLE_S = 0.01
LARGE_BYTES = 16 << 20
DURING_MIN = 100
"""Messages that met a checkpoint, of all rounds; of fewer no quantile is told."""
SPANS = ("sent", "received", "handled", "append", "appended", "asked", "begun", "flushed", "told", "written")
NO_CHECKPOINTS = {"checkpoint_ms": 3_600_000, "checkpoint_lag_bytes": 4 << 30}


@dataclass(frozen=True, slots=True)
class Mix:
    """What runs beside the small client."""

    durability: str = ""
    """Of the queue that the bulk is published to; empty: there is none."""
    consumer: bool = False
    rate: float = 0.0
    """Messages a second of the bulk; 0: full speed."""
    rows: int = 500
    settings: dict[str, int] = field(default_factory=dict)
    """Of the storage provider."""
    publishers: int = 1
    body_bytes: int = 0
    """Of large messages, one after the other, instead of frames of many rows; 0: there are none."""
    elsewhere: bool = False
    """The bulk goes to another broker on the same machine and disk, so that nothing but these is shared."""


MIXES = {
    "alone": Mix(),
    "strong": Mix("strong"),
    "weak": Mix("weak"),
    "transient": Mix("transient"),
    "strong-consumed": Mix("strong", consumer=True),
    "weak-consumed": Mix("weak", consumer=True),
    "transient-consumed": Mix("transient", consumer=True),
    "strong-three": Mix("strong", publishers=3),
    "large": Mix("strong", body_bytes=LARGE_BYTES),
    "large-consumed": Mix("strong", body_bytes=LARGE_BYTES, consumer=True),
    "large-elsewhere": Mix("strong", body_bytes=LARGE_BYTES, elsewhere=True),
    "steady": Mix("weak", rate=10_000, settings=NO_CHECKPOINTS),
    "steady-checkpoints": Mix("weak", rate=10_000, settings={"checkpoint_ms": 200}),
}


class Client:
    """One process of `bench.mixed.clients`."""

    def __init__(self, role: str, port: int, **options: Any) -> None:
        command = [sys.executable, "-m", "bench.mixed.clients", role, str(port), json.dumps(options)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=REPOSITORY)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the client {role!r} has not started")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def end(self) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        found: dict[str, Any] = json.loads(self._process.stdout.readline() or "{}")
        self._process.wait()
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class Watch:
    """When the checkpointer works: its processor time, every few milliseconds."""

    def __init__(self, broker: Sequence[int]) -> None:
        self._broker = list(broker)
        self.spans: list[tuple[float, float]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()

    def _sample(self) -> None:
        children = [pid for pid in process_tree(self._broker) if pid not in self._broker]
        at, used = now(), cpu_seconds(children)
        while not self._over.wait(SAMPLE_S):
            later, more = now(), cpu_seconds(children)
            if more > used:
                self.spans.append((at, later))
            at, used = later, more

    def end(self) -> list[tuple[float, float]]:
        self._over.set()
        self._thread.join()
        return self.spans


def main() -> None:
    options = _options()
    os.nice(options.nice)
    names = options.cells.split(",") if options.cells else list(MIXES)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with (
        Journal(options.output) as journal,
        Reaper() as reaper,
        tempfile.TemporaryDirectory(prefix="vibemq-bench-", dir=options.data_root) as folder,
    ):
        journal.write("options", **vars(options))
        for number in range(options.rounds):
            for name in names[number % len(names) :] + names[: number % len(names)]:
                run = measured(MIXES[name], options, Path(folder), reaper)
                found[name].append(run)
                journal.write("run", cell=name, **{key: value for key, value in run.items() if key != "spans"})
                print(f"{name}: {_line(run)}", file=sys.stderr, flush=True)
    print(table(("beside", *HEAD), [(name, *_row(runs)) for name, runs in found.items()]))
    if options.spans:
        print()
        head = ("p50 / mean / p99 ms", *(f"→ {name}" for name in SPANS[1:]), "KiB p50 / max")
        print(table(head, [(name, *_span_row(runs)) for name, runs in found.items()]))


HEAD = (
    "p50 ms",
    "p99 ms",
    "max ms",
    "during checkpoints p99",
    "bulk/s",
    "taken/s",
    "broker cores",
    "foreign",
    "flush ms",
)


def measured(mix: Mix, options: argparse.Namespace, root: Path, reaper: Reaper) -> dict[str, Any]:
    """One run of one cell with a broker of its own."""
    folder = Path(tempfile.mkdtemp(dir=root))
    trace = folder.with_name(f"{folder.name}.trace")
    port = free_port()
    server = Server("vibemq", _plan(mix, folder, port, trace if options.spans else None), folder, port, reaper)
    with ExitStack() as ends:
        ends.callback(server.stop)
        server.wait_until_open()
        of_bulk = _other_broker(mix, folder / "elsewhere", reaper, ends) if mix.elsewhere else server
        _create(mix, port, of_bulk.port)
        clients = _clients(mix, options, port, of_bulk.port)
        for client in clients:
            ends.callback(client.kill)
        for client in reversed(clients):
            client.go()
        time.sleep(WARM_UP_S)
        watch, began, cpu_s, busy_s = Watch(server.pids), now(), cpu_seconds(server.pids), machine_busy_s()[0]
        own = process_tree([server.pids[0], of_bulk.pids[0], *(client._process.pid for client in clients)])
        own_s = cpu_seconds(own)
        time.sleep(options.seconds)
        ended, cpu_s = now(), cpu_seconds(server.pids) - cpu_s
        foreign_s = machine_busy_s()[0] - busy_s - (cpu_seconds(own) - own_s)
        checkpoints = watch.end()
        results = [client.end() for client in clients]
        flush_ms = fsync_ms(folder)[0]
    latencies = [(at, took) for at, took in results[0]["latencies"] if began <= at < ended]
    during = [took for at, took in latencies if any(begin < at + took and at < end for begin, end in checkpoints)]
    lines = trace.read_text().splitlines() if options.spans else []
    return {
        "latency": quantiles_ms([took for _, took in latencies]),
        "during": during,
        "bulk_per_s": sum(result["per_s"] for result in results[1 : 1 + mix.publishers * bool(mix.durability)]),
        "taken_per_s": results[-1]["per_s"] if mix.consumer else 0.0,
        "broker_cores": cpu_s / (ended - began),
        "foreign_cores": foreign_s / (ended - began),
        "flush_ms": flush_ms,
        "spans": [message for message in map(json.loads, lines) if began <= message["sent"] < ended],
    }


def _plan(mix: Mix, folder: Path, port: int, trace: Path | None) -> Plan:
    pairs = "".join(f"{name} = {value}\n" for name, value in mix.settings.items())
    (folder / "vibemq.toml").write_text(f"[storage.settings]\n{pairs}" if pairs else "")
    start = [sys.executable, "-m", *(("bench.mixed.traced", str(trace)) if trace is not None else ("vibemq",))]
    serve = ["serve", "--data-dir", str(folder / "data"), "--port", str(port), "--no-http", "--log-level", "warning"]
    return Plan([*start, *serve, "--config", str(folder / "vibemq.toml")], {"PYTHONPATH": str(REPOSITORY)})


def _other_broker(mix: Mix, folder: Path, reaper: Reaper, ends: ExitStack) -> Server:
    """Open; it ends with `ends`."""
    folder.mkdir()
    port = free_port()
    server = Server("elsewhere", _plan(mix, folder, port, None), folder, port, reaper)
    ends.callback(server.stop)
    server.wait_until_open()
    return server


def _create(mix: Mix, port: int, bulk_port: int) -> None:
    with vibemq.sync.connect(f"vibemq://127.0.0.1:{port}") as mq:
        mq.create_queue(SMALL, durability="strong")
    with vibemq.sync.connect(f"vibemq://127.0.0.1:{bulk_port}") as mq:
        if mix.durability == "transient":
            mq.create_queue(BULK, durability="transient", max_messages=200_000, overflow="drop-oldest")
        elif mix.durability:
            mq.create_queue(BULK, durability=mix.durability)


def _clients(mix: Mix, options: argparse.Namespace, port: int, bulk_port: int) -> list[Client]:
    clients = [Client("small", port, rate=options.rate)]
    if mix.durability:
        clients += [_publisher(mix, options, bulk_port) for _ in range(mix.publishers)]
    if mix.consumer:
        clients.append(Client("take", bulk_port))
    return clients


def _publisher(mix: Mix, options: argparse.Namespace, port: int) -> Client:
    if mix.body_bytes:
        return Client("large", port, body_bytes=mix.body_bytes)
    return Client("bulk", port, rows=mix.rows, window_bytes=options.window_mib << 20, rate=mix.rate)


def _line(run: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value}" for name, value in zip(HEAD, _row([run]), strict=True))


def _row(runs: list[dict[str, Any]]) -> list[str]:
    def median(values: list[float], digits: int = 2) -> str:
        return f"{statistics.median(values):,.{digits}f}" if values else "–"

    latency = [run["latency"] for run in runs]
    during = [took for run in runs for took in run["during"]]
    return [
        *(median([each[name] for each in latency]) for name in ("p50_ms", "p99_ms", "max_ms")),
        f"{quantiles_ms(during)['p99_ms']:.2f}" if len(during) >= DURING_MIN else "–",
        *(median([run[name] for run in runs], 0) for name in ("bulk_per_s", "taken_per_s")),
        *(median([run[name] for run in runs]) for name in ("broker_cores", "foreign_cores", "flush_ms")),
    ]


def _span_row(runs: list[dict[str, Any]]) -> list[str]:
    """How long each step took, of all rounds together."""
    messages = [message for run in runs for message in run["spans"] if all(name in message for name in SPANS)]
    cells = []
    for before, after in pairwise(SPANS):
        spans_s = [max(0.0, message[after] - message[before]) for message in messages]
        took = quantiles_ms(spans_s)
        mean_ms = statistics.fmean(spans_s) * 1e3 if took else 0.0
        cells.append(f"{took['p50_ms']:.2f} / {mean_ms:.2f} / {took['p99_ms']:.2f}" if took else "–")
    sizes = sorted(message["append_bytes"] / 1024 for message in messages)
    return [*cells, f"{sizes[len(sizes) // 2]:,.0f} / {sizes[-1]:,.0f}" if sizes else "–"]


def _options() -> argparse.Namespace:
    parser = switches("mixed", __doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of all cells, in turn (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each run (3)")
    parser.add_argument("--rate", type=float, default=250.0, help="messages a second of the small client (250)")
    parser.add_argument("--window-mib", type=int, default=16, help="of a bulk publisher, unconfirmed (16)")
    parser.add_argument("--cells", default="", help=f"some of {', '.join(MIXES)}")
    parser.add_argument("--nice", type=int, default=0, help="of all processes; below 0 on a machine with other load")
    parser.add_argument("--spans", action="store_true", help="print where the time of a message goes in the broker")
    return parsed("mixed", parser, whose="the broker's")


if __name__ == "__main__":
    main()
