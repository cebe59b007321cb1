"""What 10,000 users with 100,000 permissions cost: the start of a broker, its memory, and the check of a publish.

    python -m bench.users

Two stores are made, one with a single user and one with all of them; that user has the same permissions in both. Starts
and publishes take turns between them, and what counts is the median.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import vibemq
from bench.common.accounting import memory_mib
from bench.common.options import parsed, switches
from bench.common.report import Journal, table
from bench.common.serving import PASSWORD, Served, serving
from tests.integration.access import cheap_hash
from vibemq.model.access import ResourceKind, Rule
from vibemq.model.accounts import StoredUser
from vibemq.model.records import UserStored
from vibemq.plugins import find

START_MAX_S, MIB_MAX, RATIO_MAX = 1.0, 30.0, 1.05
BATCH = 500
ACTIONS = ("publish", "subscribe", "create", "delete", "purge", "inspect")


def main() -> None:
    options = _options()
    names = ("one user", f"{options.users:,} users")
    starts: dict[str, list[float]] = {name: [] for name in names}
    busy: dict[str, list[float]] = {name: [] for name in names}
    memory: dict[str, list[float]] = {name: [] for name in names}
    costs: dict[str, list[float]] = {name: [] for name in names}
    with Journal(options.output) as journal, tempfile.TemporaryDirectory(dir=options.data_root) as folder:
        folders = {name: Path(folder) / str(number) for number, name in enumerate(names)}
        for name, count in zip(names, (1, options.users), strict=True):
            make_store(folders[name], count, options.permissions)
        for _ in range(options.rounds):
            for name in names:
                with serving(folders[name]) as served:
                    starts[name].append(served.ready_after_s)
                    busy[name].append(served.cpu_s)
                    memory[name].append(memory_mib([served.pid], children=False))
        with ExitStack() as stack:
            brokers = {name: stack.enter_context(serving(folders[name])) for name in names}
            for served in brokers.values():
                asyncio.run(publish(served, options.messages // 4))
            for number in range(2 * options.rounds):
                for name in names if number % 2 else reversed(names):
                    costs[name].append(asyncio.run(publish(brokers[name], options.messages)))
        journal.write("users", starts=starts, busy=busy, memory=memory, costs=costs)
    few, many = names
    slower = median(starts[many]) - median(starts[few])
    busier = median(busy[many]) - median(busy[few])
    grown = median(memory[many]) - median(memory[few])
    ratio = median(many_us / few_us for few_us, many_us in zip(costs[few], costs[many], strict=True))
    rows = [
        ["start", *(f"{median(starts[name]):.2f} s" for name in names), f"+ {slower:.2f} s", "< 1 s"],
        ["processor time of it", *(f"{median(busy[name]):.2f} s" for name in names), f"+ {busier:.2f} s", "< 1 s"],
        ["private memory", *(f"{median(memory[name]):.1f} MiB" for name in names), f"+ {grown:.1f} MiB", "≤ 30 MiB"],
        ["a publish", *(f"{median(costs[name]):.2f} µs" for name in names), f"x {ratio:.3f}", f"≤ {RATIO_MAX}"],
    ]
    verdicts = (slower < START_MAX_S, busier < START_MAX_S, grown <= MIB_MAX, ratio <= RATIO_MAX)
    verdict_rows = [[*row, "pass" if good else "fall short"] for row, good in zip(rows, verdicts, strict=True)]
    print(f"\n{table(['what', few, many, 'difference', 'goal', 'verdict'], verdict_rows)}")
    sys.exit(not all(verdicts))


def _options() -> argparse.Namespace:
    parser = switches("users", __doc__)
    parser.add_argument("--users", type=int, default=10_000)
    parser.add_argument("--permissions", type=int, default=10, help="of each user (10)")
    parser.add_argument("--rounds", type=int, default=5, help="starts, and pairs of twice as many publishes (5)")
    parser.add_argument("--messages", type=int, default=50_000, help="published in each round (50,000)")
    return parsed("users", parser, whose="the broker's")


def make_store(folder: Path, users: int, permissions: int) -> None:
    """Through the provider: the operations would hash and flush for every user."""
    plugin = find("storage", "lmdb")
    storage = plugin.create(folder, plugin.settings(ballast_bytes=0))
    storage.open()
    hashed = cheap_hash(PASSWORD)
    for first in range(0, users, 1000):
        numbers = range(first, min(users, first + 1000))
        storage.append([UserStored(user_of(number, permissions, hashed)) for number in numbers])
        storage.sync()
    storage.close()


def user_of(number: int, permissions: int, hashed: str) -> StoredUser:
    rules = tuple(
        Rule(ResourceKind.QUEUE, f"team-{number}.{place}.*", frozenset(ACTIONS[: 1 + (number + place) % len(ACTIONS)]))
        for place in range(permissions)
    )
    return StoredUser(f"user-{number}", hashed, False, rules, 1, 1)


async def publish(served: Served, messages: int) -> float:
    """Microseconds of the broker's processor time for a message of the first user."""
    url = f"vibemq://127.0.0.1:{served.port}"
    async with vibemq.connect(url, username="root", password=PASSWORD) as root:
        await root.create_queue("team-0.1.q", durability="transient", max_messages=1000, overflow="drop_oldest")
    async with vibemq.connect(url, username="user-0", password=PASSWORD) as mq:
        began = loop_s(served.pid)
        for _ in range(messages // BATCH):
            # One frame for each: the permission of each is asked.
            async with asyncio.TaskGroup() as tasks:
                for _ in range(BATCH):
                    tasks.create_task(_one(mq))
        return (loop_s(served.pid) - began) / messages * 1e6


def loop_s(pid: int) -> float:
    """Processor time of the main thread, to the nanosecond: the ticks of /proc/PID/stat are too coarse for a pair."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


async def _one(mq: vibemq.Client) -> None:
    await mq.publish("team-0.1.q", b"x" * 100)


if __name__ == "__main__":
    main()
