"""Measure the Spark connector beside the ceiling of Spark's Python data sources; 1 KiB messages, local[2]."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import vibemq.sync
from bench.common.accounting import cpu_seconds
from bench.common.lab import Lab
from bench.common.options import parsed
from bench.common.peer import Guarantee
from bench.common.report import Journal, si, table
from bench.common.servers import Plan, Server, free_port
from bench.peers.vibemq_native import serve_command
from bench.spark.pairs import SINK, SIZE, SOURCE, Pair, Pairs
from bench.spark.waiting import Waited, waited
from vibemq.demos.spark import tidy

IDLE_GOAL, LATENCY_GOAL_MS = 0.05, 200.0
CHUNK = 5_000


def main() -> None:
    options = _options()
    if reason := tidy.why_no_spark():
        raise SystemExit(reason)
    began = time.monotonic()
    with Journal(options.output) as journal, Lab(options.data_root) as lab, tidy.folder() as folder:
        lab.reaper.remove_at_end(folder)
        peer = lab.peer("vibemq", Guarantee.STRONG)
        url, endpoint = f"vibemq://127.0.0.1:{peer.port}", f"127.0.0.1:{peer.port}"
        print(f"publishing {options.rows:,} messages …", flush=True)
        _fill(url, options.rows)
        spark = _session(folder)
        sizes = {"rows": options.rows, "written": options.written}
        pairs = Pairs(spark, endpoint, folder, **sizes, shared_workers=options.shared_workers).all()
        wanted = [pair for pair in pairs if options.only in pair.name]
        for pair in wanted:
            _measure(pair, options.rounds, url, journal, lab.server(peer).pids)
        found = None
        if options.only in "waiting":
            found = waited(spark, _another(lab), folder, messages=options.messages, idle_s=options.idle)
            journal.write("waiting", **vars(found))
        tidy.end(spark)
    print(f"\n{_table(wanted, found)}\n\n{time.monotonic() - began:.0f} s; {options.output}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="messages to be read (500000)")
    parser.add_argument("--written", type=int, default=200_000, help="rows to be written (200000)")
    parser.add_argument("--rounds", type=int, default=5, help="pairs per comparison, after one to warm up (5)")
    parser.add_argument("--messages", type=int, default=60, help="of the latency (60)")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of doing nothing (10)")
    parser.add_argument("--shared-workers", action="store_true", help="the ceiling in workers that ours has relieved")
    parser.add_argument("--only", default="", help="comparisons whose name holds this; 'waiting' is one")
    return parsed("spark", parser, whose="the broker's")


def _session(folder: Path) -> Any:
    # Python workers look for modules where the session was started.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    java = {"spark__driver__extraJavaOptions": f"-Djava.io.tmpdir={folder / 'tmp'} {tidy.LASTING_JVM}"}
    return tidy.session("bench", "local[2]", folder, spark__driver__memory="2g", **java)


def _fill(url: str, rows: int) -> None:
    body = bytes(range(256)) * (SIZE // 256)
    with vibemq.sync.connect(url) as mq:
        # A log: every stream of the benchmark finds all of it.
        mq.create_queue(SOURCE, mode="fan-out-with-ack", retention="log", durability="weak")
        for start in range(0, rows, CHUNK):
            mq.publish_many(SOURCE, [body] * min(CHUNK, rows - start))


def _another(lab: Lab) -> Server:
    folder, port = lab.folder / "waiting", free_port()
    folder.mkdir()
    server = Server("vibemq-waiting", Plan(serve_command(folder, port)), folder, port, lab.reaper)
    server.wait_until_open()
    return server


def _measure(pair: Pair, rounds: int, url: str, journal: Journal, brokers: list[int]) -> None:
    for number in range(rounds + 1):
        used = cpu_seconds(brokers)
        found = pair.run(number)
        ours, ceiling = found["ours"], found["ceiling"]
        broker_us = (cpu_seconds(brokers) - used) / pair.rows * 1e6
        load = os.getloadavg()[0]
        figures = {side: its._asdict() for side, its in found.items()} | {"broker_us": broker_us}
        journal.write("pair", name=pair.name, round=number, warm_up=number == 0, load=load, **figures)
        cost = f"{ours.cpu_us:.1f} us of processor a row ({broker_us:.1f} the broker's) of {ceiling.cpu_us:.1f} us"
        print(f"  {pair.name}: {si(ours.rate)}/s of {si(ceiling.rate)}/s; {cost}", flush=True)
        if number:
            pair.keep(found)
        if pair.name == "write":
            with vibemq.sync.connect(url) as mq:
                mq.delete_queue(f"{SINK}.{number}")
    journal.write("ratio", name=pair.name, ratio=pair.ratio, goal=pair.goal, verdict=pair.verdict)


def _table(pairs: list[Pair], found: Waited | None) -> str:
    rows = [
        [
            pair.name,
            f"{si(sorted(pair.rates['ours'])[len(pair.rates['ours']) // 2])}/s",
            f"{si(sorted(pair.rates['ceiling'])[len(pair.rates['ceiling']) // 2])}/s",
            f"{pair.ratio:.2f}",
            f"≥ {pair.goal}",
            pair.verdict,
        ]
        for pair in pairs
    ]
    if found is not None:
        idle = found.query_cpu
        rows.append(_goal("broker's core, a query waits", f"{idle:.1%}", "≤ 5 %", idle <= IDLE_GOAL))
        rows.append(
            _goal("publish to sink, p50", f"{found.p50_ms:.0f} ms", "≤ 200 ms", found.p50_ms <= LATENCY_GOAL_MS)
        )
        rows.append(["publish to sink, p90", f"{found.p90_ms:.0f} ms", "", "", "", ""])
    return table(["what", "ours", "ceiling", "ratio", "goal", "verdict"], rows)


def _goal(name: str, figure: str, goal: str, holds: bool) -> list[str]:
    return [name, figure, "", "", goal, "pass" if holds else "fall short"]


if __name__ == "__main__":
    main()
