"""How long a start takes, and how much memory, with a million waiting messages of 1 KiB.

    python bench/lmdb_start.py [messages] [--journal]

With --journal the broker is "killed" before any checkpoint, so the start reads the journal instead of LMDB.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings

BATCH = 500


def memory_mib(kind: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(kind):
            return int(line.split()[1]) // 1024
    return 0


def fill(folder: Path, count: int) -> dict[str, float]:
    provider = LmdbProvider(folder, LmdbSettings())
    provider.open()
    provider.append([QueueCreated(1, "q", QueueOptions(), 0, "a"), GroupCreated(1, 0, "", True, 1)])
    rows = Rows.of([pack_row(f"message-{i:08}", b"x" * 1000) for i in range(BATCH)])
    began = time.perf_counter()
    worst = append_s = 0.0
    for first in range(1, count + 1, BATCH):
        start = time.perf_counter()
        provider.append([MessagesAdded(1, first, 1000 + first, rows)])
        took = time.perf_counter() - start
        append_s += took
        worst = max(worst, took)
        provider.sync()
        if first % 20_000 == 1 and "--journal" not in sys.argv:
            provider.maintain()
    return {"fill_s": time.perf_counter() - began, "append_s": append_s, "append_worst_ms": worst * 1000}


def start(folder: Path, count: int) -> dict[str, float]:
    began = time.perf_counter()
    provider = LmdbProvider(folder, LmdbSettings())
    state = provider.open()
    opened = time.perf_counter()
    assert state.queues[1].next_sequence == count + 1
    figures = {"open_s": opened - began, "rss_anon_mib": memory_mib("RssAnon"), "rss_file_mib": memory_mib("RssFile")}
    next_sequence, found = 1, 0
    while parts := provider.read(1, next_sequence, count, 1 << 18):
        found += sum(part.rows.count for part in parts)
        next_sequence = parts[-1].first_sequence + parts[-1].rows.count
    figures |= {"drain_s": time.perf_counter() - opened, "drained": found, "rss_anon_after_mib": memory_mib("RssAnon")}
    provider.close()
    return figures


def checkpoint(folder: Path, count: int) -> dict[str, float]:
    provider = LmdbProvider(folder, LmdbSettings())
    provider.open()
    began = time.perf_counter()
    provider.checkpoint()
    figures = {"checkpoint_s": time.perf_counter() - began, "store_mib": provider.stats().store_bytes >> 20}
    provider.close()
    return figures


PHASES = {"fill": fill, "checkpoint": checkpoint, "start": start}


def main() -> None:
    flags = ["--journal"] if "--journal" in sys.argv else []
    if len(sys.argv) > 3 and sys.argv[1] in PHASES:
        print(json.dumps(PHASES[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))))
        sys.stdout.flush()
        # As a crash would: the journal is left as it is.
        os._exit(0)
    count = next((int(argument) for argument in sys.argv[1:] if argument.isdigit()), 1_000_000)
    folder = Path(tempfile.mkdtemp(prefix="vibemq-bench-"))
    try:
        for phase in PHASES:
            if phase != "checkpoint" or not flags:
                subprocess.run([sys.executable, __file__, phase, str(folder), str(count), *flags], check=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
