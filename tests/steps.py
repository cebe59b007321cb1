"""Work that is done in steps, all at once."""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")


def result_of(steps: Generator[Any, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
