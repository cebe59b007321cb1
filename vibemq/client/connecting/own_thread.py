"""Blocking work in a thread of its own, which ends with it; the end of the program waits for none. asyncio only."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import TypeVar

from vibemq.client.connecting.greenlets import system_thread

R = TypeVar("R")


async def in_own_thread(work: Callable[[], R], name: str) -> R:
    """Its result. Whoever is cancelled does not wait for it any more; it goes on.

    Raises:
        OSError: there are no more threads; and what the work raises.
    """
    answer: concurrent.futures.Future[R] = concurrent.futures.Future()

    def run() -> None:
        answer.set_running_or_notify_cancel()
        try:
            result = work()
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)

    try:
        system_thread(run, name).start()
    except RuntimeError as error:
        raise OSError(f"a thread cannot be started: {error}") from error
    return await asyncio.wrap_future(answer)
