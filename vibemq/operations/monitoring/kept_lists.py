"""Sorted lists that are kept for a while, so that their pages fit together although what they are sorted by moves."""

import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import Generic, TypeVar

import orjson
from pydantic import ConfigDict, TypeAdapter, ValidationError

from vibemq.errors import InvalidPayload

KEPT_S = 30.0
KEPT_MAX = 16
KEYS_CONFIG = ConfigDict(defer_build=True)
"""Of adapters of keys: they are built when the first place is read, not while the broker starts."""

T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class ListPlace(Generic[K]):
    """Where a list goes on: in the list of that number, or, when it is gone, behind that key."""

    number: int = 0
    position: int = 0
    last: K | None = None
    """What the last row of the page before is sorted by; None: at the beginning."""

    def text(self) -> str:
        return f"{self.number}:{self.position}:{orjson.dumps(self.last).decode()}"

    @classmethod
    def read(cls, text: int | str | None, keys: TypeAdapter[K], operation: str) -> "ListPlace[K]":
        """Of what `text` has written. Raises InvalidPayload."""
        if text is None:
            return cls()
        try:
            number, position, last = str(text).split(":", 2)
            place = cls(int(number), int(position), keys.validate_json(last))
        except (ValueError, ValidationError):
            raise not_as_it_was(operation) from None
        if place.number < 1 or place.position < 0:
            raise not_as_it_was(operation)
        return place


def not_as_it_was(operation: str) -> InvalidPayload:
    return InvalidPayload(f"argument after of {operation} must be `next` of the page before, as it was")


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
        # A page of before a restart is not taken for one of a list that was made since.
        self._numbers = count(1 + secrets.randbits(48))

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
