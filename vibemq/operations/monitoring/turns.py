"""Work on very many things in slices, between which the loop has its turn."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from heapq import heappush, heapreplace, merge
from typing import Any, Generic, Protocol, TypeVar

SLICE_S = 0.002
SORTED_AT_ONCE = 1_000

T = TypeVar("T")


async def in_slices(steps: Iterable[object]) -> float:
    """Take all steps; the loop is held for SLICE_S and one step at a time. The processor time of it, in seconds: on a
    busy machine that is less than it took."""
    spent_s = -time.thread_time()
    slice_ends = time.monotonic() + SLICE_S
    for _ in steps:
        if time.monotonic() >= slice_ends:
            spent_s += time.thread_time()
            await asyncio.sleep(0)
            spent_s -= time.thread_time()
            slice_ends = time.monotonic() + SLICE_S
    return spent_s + time.thread_time()


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
