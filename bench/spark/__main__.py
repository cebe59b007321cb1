"""Measure the Spark connector beside PostgreSQL over JDBC and the ceiling of Python data sources: 1 KiB, local[2]."""

import argparse
import os
import time
from pathlib import Path
from typing import Any

import vibemq.sync
from bench.common.lab import Lab
from bench.common.options import parsed, switches
from bench.common.peer import Guarantee
from bench.common.report import Journal, si, table
from bench.common.servers import Plan, Server, free_port
from bench.peers.vibemq_native import serve_command
from bench.spark.contests import SINK, SIZE, SOURCE, Contest, Contests, Processes
from bench.spark.jdbc import DRIVER, Postgres, jdbc_settings
from bench.spark.rate import Steady, floor, steady
from bench.spark.waiting import waited
from vibemq.demos.spark import tidy

IDLE_GOAL = 0.05
RATE = 100.0
RATE_GOALS = (("p50", 0.5, 180), ("p99", 0.99, 400))
CHECKPOINT_FILES = {
    "": None,
    " (no checksum files)": ("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs"),
    " (FileSystem API)": (
        "spark.sql.streaming.checkpointFileManagerClass",
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager",
    ),
}
"""Settings of Spark with which the two files of a batch are written faster on a local disk."""
SHOWN_US = 0.05
CHUNK = 5_000


def main() -> None:
    options = _options()
    if reason := tidy.why_no_spark():
        raise SystemExit(reason)
    driver, skipped = jdbc_settings(options.jdbc, options.fetch_jdbc)
    print(f"PostgreSQL over JDBC is skipped: {skipped}" if skipped else "PostgreSQL over JDBC is measured beside")
    began = time.monotonic()
    with Journal(options.output) as journal, Lab(options.data_root) as lab, tidy.folder() as folder:
        lab.reaper.remove_at_end(folder)
        spark = _session(folder, driver)
        lines = _throughput(options, spark, lab, folder, journal, beside=not skipped)
        lines += _waiting(options, spark, lab, folder, journal)
        tidy.end(spark)
    head = ["what", "ours", "beside", "ratio", "goal", "verdict"]
    print(f"\n{table(head, lines)}\n\n{time.monotonic() - began:.0f} s; {options.output}")


def _throughput(
    options: argparse.Namespace, spark: Any, lab: Lab, folder: Path, journal: Journal, *, beside: bool
) -> list[list[str]]:
    if options.only not in "reads writes":
        return []
    peer = lab.peer("vibemq", Guarantee.STRONG)
    url = f"vibemq://127.0.0.1:{peer.port}"
    reads = options.only in "reads"
    if reads:
        print(f"publishing {options.rows:,} messages …", flush=True)
        _fill(url, options.rows)
    postgres = Postgres(spark, lab, rows=options.rows if reads else 1, size=SIZE) if beside else None
    made = Contests(
        spark, url.partition("//")[2], folder, postgres, rows=options.rows, shared_workers=options.shared_workers
    )
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    processes = Processes(lab.server(peer).pids, jvm, postgres.pids if postgres else [])
    lines: list[list[str]] = []
    for contest in (made.reads(), made.writes()):
        if options.only in contest.name:
            _measure(contest, options.rounds, url, journal, processes)
            lines += _goals(contest)
    return lines


def _waiting(options: argparse.Namespace, spark: Any, lab: Lab, folder: Path, journal: Journal) -> list[list[str]]:
    """Brokers of their own: one that has just had work goes on tidying up."""
    lines = []
    if options.only in "waiting":
        found = waited(spark, _another(lab, "waiting"), folder, messages=options.messages, idle_s=options.idle)
        journal.write("waiting", **vars(found))
        idle = found.query_cpu
        lines.append(_goal("broker's core, a query waits", f"{idle:.1%}", "≤ 5 %", idle <= IDLE_GOAL))
        lines.append(["one message, publish to sink, p50", f"{found.p50_ms:.0f} ms", "", "", "", ""])
        lines.append(["one message, publish to sink, p90", f"{found.p90_ms:.0f} ms", "", "", "", ""])
    if options.only in "rate":
        lines += [line for files in CHECKPOINT_FILES for line in _rate(options, spark, lab, folder, journal, files)]
    return lines


def _rate(
    options: argparse.Namespace, spark: Any, lab: Lab, folder: Path, journal: Journal, files: str
) -> list[list[str]]:
    """Ours, and the same query over a source without a broker: the least that Spark needs."""
    for setting in filter(None, CHECKPOINT_FILES.values()):
        spark.conf.unset(setting[0])
    chosen = CHECKPOINT_FILES[files]
    if chosen is not None:
        spark.conf.set(*chosen)
    name = f"rate{files.replace(' ', '-')}"
    flow = steady(spark, _another(lab, name), folder / name, rate=RATE, seconds=options.seconds)
    least = floor(spark, folder / f"{name}-floor", rate=RATE, seconds=options.seconds)
    for found, source in ((flow, "ours"), (least, "floor")):
        journal.write("rate", files=files, source=source, load=os.getloadavg()[0], **vars(found))
        shown = ", ".join(f"{stage} {took:.0f}" for stage, took in found.stages_ms.items())
        print(
            f"  {RATE:.0f} messages/s{files}, {source}: {found.batches} batches; ms of a trigger: {shown}", flush=True
        )
    return [
        _latency(f"{RATE:.0f} messages/s, visible{files}, {percentile}", flow, least, share, most)
        for percentile, share, most in RATE_GOALS
    ]


def _latency(name: str, ours: Steady, least: Steady, share: float, most_ms: int) -> list[str]:
    at, beside = ours.percentile(share), least.percentile(share)
    verdict = "pass" if at <= most_ms else "fall short"
    return [name, f"{at:.0f} ms", f"{beside:.0f} ms", f"{at / beside:.2f}", f"≤ {most_ms} ms", verdict]


def _options() -> argparse.Namespace:
    parser = switches("spark", __doc__)
    parser.add_argument("--rows", type=int, default=500_000, help="messages to be read, and to be written (500000)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each contest, after one to warm up (3)")
    parser.add_argument("--messages", type=int, default=60, help="one after the other, of the latency (60)")
    parser.add_argument("--seconds", type=float, default=30.0, help="of a steady rate (30)")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of doing nothing (10)")
    parser.add_argument("--shared-workers", action="store_true", help="the ceiling in workers that ours has relieved")
    parser.add_argument("--jdbc", type=Path, help="jar of PostgreSQL's JDBC driver")
    parser.add_argument("--fetch-jdbc", action="store_true", help=f"let Spark load {DRIVER} from Maven Central")
    parser.add_argument("--only", default="", help="one of reads, writes, waiting, rate")
    return parsed("spark", parser, whose="the servers'")


def _session(folder: Path, more: dict[str, str]) -> Any:
    # Python workers look for modules where the session was started.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(Path.cwd()), os.environ.get("PYTHONPATH"))))
    java = {"spark__driver__extraJavaOptions": f"-Djava.io.tmpdir={folder / 'tmp'} {tidy.LASTING_JVM}"}
    return tidy.session("bench", "local[2]", folder, spark__driver__memory="2g", **java, **more)


def _fill(url: str, rows: int) -> None:
    body = bytes(range(256)) * (SIZE // 256)
    with vibemq.sync.connect(url) as mq:
        # A log: every stream of the benchmark finds all of it.
        mq.create_queue(SOURCE, mode="fan-out-with-ack", retention="log", durability="weak")
        for start in range(0, rows, CHUNK):
            mq.publish_many(SOURCE, [body] * min(CHUNK, rows - start))


def _another(lab: Lab, name: str) -> Server:
    folder, port = lab.folder / name, free_port()
    folder.mkdir()
    server = Server(f"vibemq-{name}", Plan(serve_command(folder, port)), folder, port, lab.reaper)
    server.wait_until_open()
    return server


def _measure(contest: Contest, rounds: int, url: str, journal: Journal, processes: Processes) -> None:
    for number in range(rounds + 1):
        for name, figures in contest.run(number, processes):
            load = os.getloadavg()[0]
            journal.write(
                "run", contest=contest.name, way=name, round=number, warm_up=number == 0, load=load, **figures._asdict()
            )
            parts = {"broker": figures.broker_us, "JVM": figures.jvm_us, "Python": figures.python_us}
            parts["PostgreSQL"] = figures.postgres_us
            shares = ", ".join(f"{part} {used:.1f}" for part, used in parts.items() if used >= SHOWN_US)
            print(f"  {name}: {si(figures.rate)}/s; us of processor a row: {shares}", flush=True)
            if number:
                contest.keep(name, figures)
            _remove_sinks(url)
    for goal in contest.goals:
        journal.write("ratio", **goal._asdict(), ratio=contest.ratio(goal))


def _remove_sinks(url: str) -> None:
    """The disk has an end, and a large queue costs whoever comes next."""
    with vibemq.sync.connect(url) as mq:
        for queue in [info.name for info in mq.list_queues()]:
            if queue.startswith(SINK):
                mq.delete_queue(queue)


def _goals(contest: Contest) -> list[list[str]]:
    return [
        [
            f"{goal.way} : {goal.beside}",
            f"{si(contest.median(goal.way).rate)}/s",
            f"{si(contest.median(goal.beside).rate)}/s",
            f"{contest.ratio(goal):.2f}",
            f"≥ {goal.times}",
            "pass" if contest.ratio(goal) >= goal.times else "fall short",
        ]
        for goal in contest.goals
    ]


def _goal(name: str, figure: str, goal: str, holds: bool) -> list[str]:
    return [name, figure, "", "", goal, "pass" if holds else "fall short"]


if __name__ == "__main__":
    main()
