"""Blocking work in a thread of its own, which ends with it; the end of the program waits for none."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

import anyio

from vibemq.client.connecting.own_task import on_asyncio

R = TypeVar("R")


async def off_the_loop(work: Callable[[], R], name: str) -> R:
    """As `in_own_thread`, with any event loop."""
    if not on_asyncio():
        return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    return await in_own_thread(work, name)


async def in_own_thread(work: Callable[[], R], name: str) -> R:
    """Its result, on asyncio. Whoever is cancelled does not wait for it any more; it goes on.

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
        Thread(target=run, name=name, daemon=True).start()
    except RuntimeError as error:
        raise OSError(f"a thread cannot be started: {error}") from error
    return await asyncio.wrap_future(answer)
