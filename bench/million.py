"""A million waiting messages: how long the broker takes to start, and what memory it needs while they are drained.

    python bench/million.py [--messages 1000000] [--size 1024]

Prints one JSON line: publish rate, start-up seconds (process start to "ready"), peak private memory (RssAnon) of the
broker and of its checkpointer while the backlog is drained, drain rate, bytes on disk before and after `compact`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

import vibemq

BATCH = 1000


class Broker:
    """`vibemq serve` as a child; remembers how long it took to be ready."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(self.data_dir)]
        started = time.perf_counter()
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--http-port", "0"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event = json.loads(line)
            if event.get("protocol") == "native":
                self.url = f"vibemq://127.0.0.1:{event['port']}"
            if event["event"] == "ready":
                break
        self.start_s = time.perf_counter() - started

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(timeout=60)

    def private_kib(self) -> dict[str, int]:
        """RssAnon of the broker and of its children, KiB."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        found = {"broker": rss_anon_kib(self.process.pid)}
        for child in children:
            found["checkpointer"] = rss_anon_kib(int(child))
        return found


def rss_anon_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1])
    return 0


def disk_mib(folder: Path) -> float:
    """Blocks really used, MiB (the map is sparse)."""
    return sum(f.stat().st_blocks * 512 for f in folder.rglob("*") if f.is_file()) / 2**20


async def publish(url: str, messages: int, size: int) -> float:
    body = b'"' + b"x" * (size - 2) + b'"'
    started = time.perf_counter()
    async with vibemq.connect(url) as mq:
        await mq.create_queue("million")
        for _ in range(0, messages, BATCH * 10):
            await mq.publish_many("million", [body] * (BATCH * 10))
    return messages / (time.perf_counter() - started)


async def drain(broker: Broker, messages: int) -> tuple[float, dict[str, int]]:
    peak: dict[str, int] = {}
    taken = 0
    started = time.perf_counter()
    async with vibemq.connect(broker.url) as mq, mq.subscribe("million", prefetch=5000) as subscription:
        async for batch in subscription.batches():
            batch.ack_all()
            before, taken = taken, taken + len(batch)
            if taken // 20_000 != before // 20_000:
                for name, kib in broker.private_kib().items():
                    peak[name] = max(peak.get(name, 0), kib)
            if taken >= messages:
                break
    return taken / (time.perf_counter() - started), peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vibemq-million-") as folder:
        data_dir = Path(folder) / "data"
        broker = Broker(data_dir)
        publish_rate = anyio.run(publish, broker.url, arguments.messages, arguments.size)
        at_publish = broker.private_kib()
        broker.stop()
        broker.start()
        start_s = broker.start_s
        waiting = broker.private_kib()
        drain_rate, peak = anyio.run(drain, broker, arguments.messages)
        broker.stop()
        before = disk_mib(data_dir)
        admin = [str(Path(sys.executable).with_name("vibemq-admin")), "compact", "--data-dir", str(data_dir), "--json"]
        subprocess.run(admin, check=True, stdout=subprocess.DEVNULL)
        print(
            json.dumps(
                {
                    "messages": arguments.messages,
                    "size": arguments.size,
                    "publish_per_s": round(publish_rate),
                    "private_mib_after_publish": mib(at_publish),
                    "start_s": round(start_s, 2),
                    "private_mib_waiting": mib(waiting),
                    "drain_per_s": round(drain_rate),
                    "private_mib_peak_draining": mib(peak),
                    "disk_mib_before_compact": round(before, 1),
                    "disk_mib_after_compact": round(disk_mib(data_dir), 1),
                }
            )
        )


def mib(kib: dict[str, int]) -> dict[str, float]:
    return {name: round(value / 1024, 1) for name, value in kib.items()}


if __name__ == "__main__":
    main()
