"""Password hashing in threads of its own: each takes tens of milliseconds and megabytes, so few run at a time, and
with less of a claim to the processors than the threads that serve messages. Hashes of new passwords are made beside the
checks of logins, which never wait for them."""

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from vibemq.auth.passwords import hash_password
from vibemq.errors import RateLimited

HASHED_TOGETHER_MAX = 2
HASHED_UNDER_ATTACK = 1
"""Together. After each that failed there is a rest as long as the check."""
REST_S_MAX = 0.2
MADE_TOGETHER_MAX = 1
TO_BE_MADE_MAX = 64
"""Hashes of new passwords that wait for their turn or are being made."""
NICENESS = 5

T = TypeVar("T")

log = logging.getLogger("vibemq.broker")


class HashingThreads:
    """Belongs to one event loop. Threads are made when they are needed; `close` ends them."""

    def __init__(self) -> None:
        self._priority_told = False
        self._checking = self._pool(HASHED_TOGETHER_MAX)
        self._making = self._pool(MADE_TOGETHER_MAX)
        self._to_be_made = 0

    def _pool(self, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, thread_name_prefix="vibemq-hashing", initializer=self._step_back)

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        """`work` checks a password."""
        return await asyncio.get_running_loop().run_in_executor(self._checking, lambda: work(*arguments))

    async def rest(self, seconds: float) -> None:
        """Leave the processors to others."""
        await asyncio.sleep(seconds)

    @property
    def makes_hashes(self) -> bool:
        """Whether a new password is being hashed, or waits for it."""
        return self._to_be_made > 0

    async def hash_password(self, password: str) -> str:
        """Of a new password. One that nobody waits for any more is not begun. Raises RateLimited."""
        if self._to_be_made >= TO_BE_MADE_MAX:
            raise RateLimited(f"{TO_BE_MADE_MAX} new passwords wait to be hashed already; try again later")
        self._to_be_made += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._making, hash_password, password)
        finally:
            self._to_be_made -= 1

    def close(self) -> None:
        """Begin nothing more; what runs is not waited for."""
        for threads in (self._checking, self._making):
            threads.shutdown(wait=False, cancel_futures=True)

    def _step_back(self) -> None:
        """Of a thread. One that cannot is used all the same: an error in here would end its pool."""
        # Only Linux has a priority for each thread; elsewhere this would slow the whole process down.
        if sys.platform == "linux":
            for step in (_leave_real_time, _be_nice):
                try:
                    step(threading.get_native_id())
                except OSError as error:
                    self._tell_priority(error)

    def _tell_priority(self, error: OSError) -> None:
        # A libc without it (musl), or a filter of system calls.
        if not self._priority_told:
            self._priority_told = True
            log.warning(
                "passwords are checked with the priority of the broker, because the system does not let it lower that "
                "of a thread: %s",
                error.strerror,
            )


def _leave_real_time(thread: int) -> None:
    if os.sched_getscheduler(thread) in (os.SCHED_FIFO, os.SCHED_RR):
        # Of a broker in real time: a hash would keep the loop from its processor until it is done.
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _be_nice(thread: int) -> None:
    # It has the niceness of the process, which not everybody may lower.
    if os.getpriority(os.PRIO_PROCESS, thread) < NICENESS:
        os.setpriority(os.PRIO_PROCESS, thread, NICENESS)
