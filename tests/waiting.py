"""How tests wait: for a condition, looked at again and again, with a ceiling that no slow machine reaches.

`tests/unit/test_no_wall_time.py` refuses other waits and other readings of a clock.
"""

import inspect
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Protocol, TypeVar

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


class Killable(Protocol):
    """A process of this one's."""

    def kill(self) -> None: ...


@contextmanager
def killed_if_late(process: Killable) -> Iterator[None]:
    """What reads from a process that says nothing more reads its end at the ceiling, instead of waiting for ever."""
    timer = Timer(WAIT_S, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def exit_code_of(pid: int) -> int:
    """Wait for a forked child. One that is late is ended with SIGABRT, and says where it was if it still can."""
    handle = os.pidfd_open(pid)
    try:
        ended, _, _ = select.select([handle], [], [], WAIT_S)
        if not ended:
            signal.pidfd_send_signal(handle, signal.SIGABRT)
    finally:
        os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
