"""Sorted lists that are kept for a while, so that their pages fit together although what they are sorted by moves."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

KEPT_S = 30.0
KEPT_MAX = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeptList(Generic[T]):
    number: int
    asked: object
    """What it is the answer to; compared."""
    items: T
    made_at: float


class KeptLists(Generic[T]):
    """The newest few."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._kept: deque[KeptList[T]] = deque()
        self._numbers = count(1)

    def find(self, number: int, asked: object) -> KeptList[T] | None:
        """None: there is no such list any more, or it is the answer to something else."""
        now = self._monotonic()
        while self._kept and now - self._kept[0].made_at > KEPT_S:
            self._kept.popleft()
        return next((kept for kept in self._kept if kept.number == number and kept.asked == asked), None)

    def newest(self, asked: object, fits: Callable[[T], bool]) -> KeptList[T] | None:
        """One that still is the answer."""
        return next((kept for kept in reversed(self._kept) if kept.asked == asked and fits(kept.items)), None)

    def add(self, asked: object, items: T) -> KeptList[T]:
        while len(self._kept) >= KEPT_MAX:
            self._kept.popleft()
        self._kept.append(KeptList(next(self._numbers), asked, items, self._monotonic()))
        return self._kept[-1]
