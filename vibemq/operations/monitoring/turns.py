"""Work on very many things in slices, between which the loop has its turn."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from heapq import heappush, heapreplace, merge
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

SLICE_S = 0.002
SORTED_AT_ONCE = 1_000

T = TypeVar("T")


async def in_slices(steps: Iterable[object]) -> float:
    """Take all steps; the loop is held for SLICE_S and one step at a time, however many such works there are at once.
    The processor time of it, in seconds: on a busy machine that is less than it took."""
    line = _LINES.setdefault(asyncio.get_running_loop(), _Line())
    await line.stand()
    spent_s = -time.thread_time()
    slice_ends = time.monotonic() + SLICE_S
    for _ in steps:
        if time.monotonic() >= slice_ends:
            spent_s += time.thread_time()
            await line.stand()
            spent_s -= time.thread_time()
            slice_ends = time.monotonic() + SLICE_S
    return spent_s + time.thread_time()


class _Line:
    """Those that want a slice: each turn of the loop has one, in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_taken = False
        """Whether this turn has its slice."""

    async def stand(self) -> None:
        """Until it is the caller's turn."""
        loop = asyncio.get_running_loop()
        if self._is_taken:
            self._waiting.append(waiter := loop.create_future())
            await waiter
        else:
            self._take(loop)

    def _take(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_taken = True
        loop.call_soon(self._call, loop)

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """The next one."""
        self._is_taken = False
        while self._waiting and not self._is_taken:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)
                self._take(loop)


_LINES: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()


class Largest(Generic[T]):
    """The few largest of very many that are told one after the other; of equals those that came first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: list[tuple[int, int, T]] = []
        """A heap: (size, minus when it came, item)."""
        self.count = 0
        """Of all that were told."""

    def add(self, size: int, item: T) -> None:
        self.count += 1
        if len(self._kept) < self._most:
            heappush(self._kept, (size, -self.count, item))
        elif size > self._kept[0][0]:
            heapreplace(self._kept, (size, -self.count, item))

    def items(self) -> list[T]:
        """The largest first."""
        return [item for _, _, item in sorted(self._kept, reverse=True)]


class Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


def sort_steps(items: Sequence[T], key: Callable[[T], Comparable], into: MutableSequence[T]) -> Iterator[None]:
    """Fill `into` with the items in order; of equals the first comes first. `key` is called twice for each."""
    pieces: list[list[T]] = []
    for first in range(0, len(items), SORTED_AT_ONCE):
        pieces.append(sorted(items[first : first + SORTED_AT_ONCE], key=key))
        yield
    if len(pieces) <= 1:
        into.extend(pieces[0] if pieces else ())
        return
    for number, item in enumerate(merge(*pieces, key=key)):
        into.append(item)
        if not number % 32:
            yield
