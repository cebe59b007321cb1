"""Answers that the engine finds step by step, because to look at very much at once would hold the loop."""

import asyncio
from typing import TypeVar

from vibemq.model.steps import Steps

T = TypeVar("T")


async def in_turns(steps: Steps[T]) -> T:
    """What it returns; the loop has a turn wherever it yields."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
