"""Work on very many things in slices, between which the loop has its turn."""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import merge
from typing import Any, Protocol, TypeVar

SLICE_S = 0.002
SORTED_AT_ONCE = 1_000

T = TypeVar("T")


async def in_slices(steps: Iterable[object]) -> None:
    """Take all steps; the loop is held for SLICE_S and one step at a time."""
    slice_ends = time.monotonic() + SLICE_S
    for _ in steps:
        if time.monotonic() >= slice_ends:
            await asyncio.sleep(0)
            slice_ends = time.monotonic() + SLICE_S


class Comparable(Protocol):
    def __lt__(self, other: Any, /) -> bool: ...


def sort_steps(items: Sequence[T], key: Callable[[T], Comparable], into: list[T]) -> Iterator[None]:
    """Fill `into` with the items in order; of equals the first comes first. `key` is called twice for each."""
    pieces: list[list[T]] = []
    for first in range(0, len(items), SORTED_AT_ONCE):
        pieces.append(sorted(items[first : first + SORTED_AT_ONCE], key=key))
        yield
    if len(pieces) <= 1:
        into += pieces[0] if pieces else []
        return
    for number, item in enumerate(merge(*pieces, key=key)):
        into.append(item)
        if not number % 32:
            yield
