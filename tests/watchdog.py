"""How long an event loop is held: processor time of its own thread between two of its turns.

Processor time and not time, so that other programs do not count; of one thread, so that a client in another one does
not count either. What the product does is the same each time and what disturbs it is not, so a call that held the loop
for too long is repeated, and the shortest of its longest holds counts. Limits are for a machine on which `WORK` takes
`WORK_S`; on a slower one they are longer by as much.
"""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")
HOLD_S_MAX = 0.010
"""Twice what no call shall take, for what other programs do to the caches of a busy machine."""
ATTEMPTS = 6
WORK_S = 0.0015
"""What `_work` takes on the machine that the limits are stated for."""
QUIET_TURNS = 30
"""Of the loop behind an answer: what it has left to do for the call is a part of it."""


class Watchdog:
    """The longest hold of the loop so far."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._stopped = False

    async def run(self) -> None:
        while not self._stopped:
            before = time.thread_time()
            await asyncio.sleep(0)
            self.longest_s = max(self.longest_s, time.thread_time() - before)

    def stop(self) -> None:
        self._stopped = True


@asynccontextmanager
async def watched() -> AsyncIterator[Watchdog]:
    """Cycles of this whole process are not looked for meanwhile: they are not the broker's."""
    watchdog = Watchdog()
    gc.disable()
    task = asyncio.create_task(watchdog.run())
    # The task has begun.
    await asyncio.sleep(0)
    try:
        yield watchdog
        for _ in range(QUIET_TURNS):
            await asyncio.sleep(0)
    finally:
        watchdog.stop()
        await task
        gc.enable()  # Only now: what has gathered meanwhile may be collected at once.


async def longest_hold_s(call: Callable[[T], Awaitable[object]], made: Callable[[int], Awaitable[T]]) -> float:
    """Of a call, at best, and as on the machine of the limits; `made` makes what an attempt is given."""
    best = float("inf")
    for attempt in range(ATTEMPTS):
        given = await made(attempt)
        before = slowness()
        async with watched() as watchdog:
            await call(given)
        best = min(best, watchdog.longest_s / min(before, slowness()))
        if best <= HOLD_S_MAX:
            break
    return best


def slowness() -> float:
    """How many times longer than there this machine takes for the same, at the moment."""
    return max(1.0, min(_work_s() for _ in range(5)) / WORK_S)


def _work_s() -> float:
    before = time.thread_time()
    _work()
    return time.thread_time() - before


def _work() -> None:
    """A fixed piece of what the broker does: small objects, dictionaries, calls."""
    by_number: dict[int, tuple[int, str]] = {}
    for number in range(3_000):
        by_number[number * 7_919 % 3_001] = (number, str(number))
    assert sorted(by_number.items())[0][0] >= 0
