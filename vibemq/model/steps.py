"""Work that is done in steps, so that others have the loop in between."""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Yields behind each step, which takes about a millisecond."""


def at_once(steps: Generator[Any, None, T]) -> T:
    """What it returns, without a pause."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
