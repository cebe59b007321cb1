"""Threads around a storage provider.

    storage thread   open, maintain, close; and append and read when the provider's append may wait for the disk
    sync thread      sync: one flush at a time, beside everything else

A provider whose `blocking_append` is False is quick enough for the event loop and is called there: a hop to a thread
and back costs more than the write, and the hop back waits for the interpreter lock.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from anyio import to_thread

from vibemq.storage.interface import IStorageProvider

Result = TypeVar("Result")


class Store:
    """A provider and its threads. Every coroutine here raises what the provider raises."""

    def __init__(self, provider: IStorageProvider) -> None:
        self.provider = provider
        self.blocking = provider.blocking_append
        self._storage_thread = ThreadPoolExecutor(1, "vibemq-storage")
        self._sync_thread = ThreadPoolExecutor(1, "vibemq-sync")

    def begin(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run in the storage thread, behind what was begun before."""
        return asyncio.get_running_loop().run_in_executor(self._storage_thread, work)

    def begin_sync(self) -> "asyncio.Future[int]":
        return asyncio.get_running_loop().run_in_executor(self._sync_thread, self.provider.sync)

    async def call(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run one short verb where the provider wants to be called."""
        if not self.blocking:
            return work(*arguments)
        return await self.begin(lambda: work(*arguments))

    async def aside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a long verb that may run beside all others (a backup) in a thread of its own."""
        return await to_thread.run_sync(lambda: work(*arguments))

    async def maintain(self) -> None:
        await self.begin(self.provider.maintain)

    async def close(self) -> None:
        """Close the provider and end the threads."""
        try:
            await self.begin(self.provider.close)
        finally:
            self.abandon()

    def abandon(self) -> None:
        """End the threads without another word to the provider; its outcome is unknown."""
        self._storage_thread.shutdown(wait=False, cancel_futures=True)
        self._sync_thread.shutdown(wait=False, cancel_futures=True)
