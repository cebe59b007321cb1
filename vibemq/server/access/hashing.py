"""Password hashing in threads of its own: each takes tens of milliseconds and megabytes, so few run at a time, and
with less of a claim to the processors than the threads that serve messages."""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vibemq.auth.passwords import hash_password

HASHED_TOGETHER_MAX = 2
HASHED_UNDER_ATTACK = 1
"""Together. After each that failed there is a rest as long as the check."""
REST_S_MAX = 0.2
NICENESS = 5

T = TypeVar("T")


class HashingThreads:
    """Belongs to one event loop. Threads are made when they are needed; `close` ends them."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(
            HASHED_TOGETHER_MAX, thread_name_prefix="vibemq-hashing", initializer=_step_back
        )

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """`work` hashes a password or checks one."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: work(*arguments))

    async def rest(self, seconds: float) -> None:
        """Leave the processors to others."""
        await asyncio.sleep(seconds)

    async def hash_password(self, password: str) -> str:
        return await self.run(hash_password, password)

    def close(self) -> None:
        """Begin nothing more; what runs is not waited for."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _step_back() -> None:
    # Only Linux has a priority for each thread; elsewhere this would slow the whole process down.
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.sched_getscheduler(thread) in (os.SCHED_FIFO, os.SCHED_RR):
            # Of a broker in real time: a hash would keep the loop from its processor until it is done.
            os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
