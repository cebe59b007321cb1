"""What looks at a broker while messages flow, each in a process of its own.

    python -m bench.web.readers KIND HTTP_PORT NATIVE_PORT

It prints a line when it has begun, goes on until it is terminated, and prints what it has seen as JSON.
"""

import json
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from subprocess import PIPE, Popen
from typing import Any

import anyio

from bench.web import consoles, hostile, streams, tailing
from bench.web.addresses import Addresses

Seen = dict[str, Any]
Reader = Callable[[Addresses, Seen, Callable[[], None]], Coroutine[Any, Any, None]]
"""It is given what it looks at, where to note what it has seen, and what to call when it has begun. It is cancelled."""

READERS: dict[str, Reader] = {
    "consoles": consoles.look,
    "search": streams.search,
    "export": streams.export,
    "filler": tailing.fill,
    "tail": tailing.tail,
    "prober": hostile.probe,
    "attack": hostile.attack,
}


@contextmanager
def reading(kind: str, addresses: Addresses) -> Iterator[Seen]:
    """It has begun when this is entered; what it has seen is there when this is left.

    Raises:
        SystemExit: it has ended by itself.
    """
    seen: Seen = {}
    reader = Popen([sys.executable, "-m", __name__, kind, *map(str, addresses)], stdout=PIPE, text=True)
    assert reader.stdout is not None
    try:
        if not reader.stdout.readline():
            raise SystemExit(f"{kind} has ended with code {reader.wait()}")
        yield seen
        if (code := reader.poll()) is not None:
            raise SystemExit(f"{kind} has ended with code {code}")
        reader.terminate()
        seen |= json.loads(reader.stdout.readline())
    finally:
        reader.kill()
        reader.wait()


async def main(kind: str, addresses: Addresses) -> None:
    seen: Seen = {}
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(READERS[kind], addresses, seen, lambda: print("reading", flush=True))
            await anext(aiter(signals))
            tasks.cancel_scope.cancel()
    print(json.dumps(seen), flush=True)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], Addresses(*map(int, sys.argv[2:])))
