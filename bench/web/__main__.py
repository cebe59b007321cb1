"""The HTTP API of a large broker: how long requests take, what holds the loop, and what it costs the messages when
somebody looks.

    python -m bench.web [--queues 10000] [--letters 1000000] [--connections 1000] [--asks 40]
    python -m bench.web --asks 0 --cases consoles,search,export,tail,hostile --pairs 9 --seconds 20

The store is filled through a provider's own appends. Requests are asked one after the other, of a broker in a process
of its own, which measures the processor time of its loop's thread between two turns. Then publishes and
acknowledgements of 1 KiB messages are counted with and without what a case brings, in turn, on a broker that does not
measure itself: its loop would never rest. The broker has one core, the load and the readers, which are processes of
their own, have the others. The end is 1 when a goal was missed.
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from bench.common.options import switches
from bench.common.watched import WatchedBroker, watched_broker
from bench.scale.stores import build
from bench.scale.subscribers import Subscriber
from bench.web.cases import CASES
from bench.web.pages import ask_pages
from bench.web.pairs import compare
from bench.web.stores import store

CORES = sorted(os.sched_getaffinity(0))
HTTP = {"port": 0, "requests_per_second": 0}
"""Requests come as fast as they are answered."""


@asynccontextmanager
async def connections(broker: WatchedBroker, count: int) -> AsyncIterator[None]:
    """So many are open meanwhile."""
    opened = [Subscriber() for _ in range(count)]
    for at in range(0, count, 100):
        await asyncio.gather(*(one.connect(broker.ports[0]) for one in opened[at : at + 100]))
    yield


async def ask(broker: WatchedBroker, given: argparse.Namespace) -> None:
    async with connections(broker, given.connections):
        await ask_pages(broker, given.asks, given.letters // 2)


async def compare_all(broker: WatchedBroker, given: argparse.Namespace) -> list[str]:
    """What is not as it should be, in sentences."""
    wrong: list[str] = []
    async with connections(broker, given.connections):
        for name in given.cases:
            wrong += [f"{name}: {one}" for one in await compare(broker, CASES[name], given.pairs, given.seconds)]
    return wrong


@contextmanager
def on_two_sides(folder: Path, *, watched: bool) -> Iterator[WatchedBroker]:
    """The broker has the first core, this process and those that it starts have the others."""
    first, *others = CORES
    on_cores([first])
    limits = {"max_connections": 20_000}
    with watched_broker(watched=watched, folder=folder, http=HTTP, limits=limits) as broker:
        on_cores(others or [first])
        yield broker


def on_cores(cores: Iterable[int]) -> None:
    """This process from now on, and those that it starts."""
    os.sched_setaffinity(0, cores)


def case_names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := set(names) - CASES.keys():
        raise argparse.ArgumentTypeError(f"there is no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return names


def main() -> None:
    parser = switches("web", __doc__)
    parser.add_argument("--queues", type=int, default=10_000)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--connections", type=int, default=1_000)
    parser.add_argument("--asks", type=int, default=40, help="of each request; 0: none")
    parser.add_argument("--cases", type=case_names, default=["consoles"], help=f"some of {','.join(CASES)}")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        build(folder, "lmdb", lambda count: store(given.queues, count), given.letters)
        if given.asks:
            with on_two_sides(folder, watched=True) as broker:
                asyncio.run(ask(broker, given))
        if given.pairs:
            with on_two_sides(folder, watched=False) as broker:
                wrong = asyncio.run(compare_all(broker, given))
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
