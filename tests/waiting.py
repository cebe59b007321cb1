"""How tests wait: for a condition, looked at again and again, with a ceiling that no slow machine reaches.

`tests/unit/test_no_wall_time.py` refuses other waits and other readings of a clock.
"""

import inspect
import time
from collections.abc import Callable
from typing import TypeVar

import anyio

WAIT_S = 60.0
LOOK_S = 0.01
T = TypeVar("T")


def wait_until(holds: Callable[[], T], told: Callable[[], object] = str) -> T:
    """Block until the condition holds, and return what it is then; `told` says at the ceiling what was seen instead."""
    end = time.monotonic() + WAIT_S
    while not (result := holds()):
        assert time.monotonic() < end, f"{holds} did not come true within {WAIT_S:.0f} s {told()}"
        time.sleep(LOOK_S)
    return result


async def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds, a plain or an async function, under asyncio and trio."""
    with anyio.move_on_after(WAIT_S):
        while True:
            result = holds()
            if inspect.isawaitable(result):
                result = await result
            if result:
                return
            await anyio.sleep(LOOK_S)
    raise AssertionError(f"{holds} did not come true within {WAIT_S:.0f} s")
