"""How long a start takes, and how much memory, with a million waiting messages of 1 KiB.

    python bench/lmdb_start.py [messages] [--journal]

With --journal the broker is "killed" before any checkpoint, so the start reads the journal instead of LMDB.
"""

import json
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
        if first % 20_000 == 1:
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


def main() -> None:
    numbers = [int(a) for a in sys.argv[1:] if a.isdigit()]
    count = numbers[0] if numbers else 1_000_000
    if "--child" in sys.argv:
        print(json.dumps(start(Path(sys.argv[sys.argv.index("--child") + 1]), count)))
        return
    folder = Path(tempfile.mkdtemp(prefix="vibemq-bench-"))
    try:
        print(json.dumps(fill(folder, count)))
        if "--journal" not in sys.argv:
            # Opened again, because fill() leaves as a crash would: nothing is closed.
            command = [sys.executable, __file__, str(count), "--child", str(folder)]
            subprocess.run([sys.executable, __file__, "--checkpoint", str(folder)], check=True)
        command = [sys.executable, __file__, str(count), "--child", str(folder)]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip())
    finally:
        shutil.rmtree(folder)


def checkpoint(folder: Path) -> None:
    provider = LmdbProvider(folder, LmdbSettings())
    provider.open()
    began = time.perf_counter()
    provider._driver.checkpoint_now()
    print(json.dumps({"checkpoint_s": time.perf_counter() - began, "store_mib": provider.stats().store_bytes >> 20}))
    provider.close()


if __name__ == "__main__":
    if "--checkpoint" in sys.argv:
        checkpoint(Path(sys.argv[-1]))
    else:
        main()
