"""Threads around a storage provider.

    storage thread   maintain, close; and append when the provider's append may wait for the disk
    read thread      everything else of such a provider, so that reads do not stand behind commits; the storage thread
                     when the provider cannot do both at the same time
    sync threads     sync: as many flushes at a time as the provider says, beside everything else; woken by a queue and
                     heard on the loop, because a future on either side costs a lone message more than all the rest of
                     the way

A read in a thread of its own may overtake an append, so deliveries are told, and `read` and `read_rows` begun, once the
rows that they name are appended (`unwritten.py`).

A provider whose `blocking_append` is False is quick enough for the event loop and is called there: a hop to a thread
and back costs more than the write, and the hop back waits for the interpreter lock.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from anyio import to_thread

from vibemq.model.runs import Run
from vibemq.server.commit.unwritten import Unwritten
from vibemq.storage.interface import IStorageProvider

Result = TypeVar("Result")
Told = Callable[[BaseException | None], None]
"""Hears how a flush ended."""


class Store:
    """A provider and its threads. Every coroutine here raises what the provider raises."""

    def __init__(self, provider: IStorageProvider) -> None:
        self.provider = provider
        self.blocking = provider.blocking_append
        self.unwritten = Unwritten()
        """What a read would not find yet."""
        self._storage_thread = ThreadPoolExecutor(1, "vibemq-storage")
        aside = provider.concurrent_reads
        self._read_thread = ThreadPoolExecutor(1, "vibemq-read") if aside else self._storage_thread
        self._flusher = Flusher(provider)

    def begin(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run in the read thread, behind what was begun there before."""
        return asyncio.get_running_loop().run_in_executor(self._read_thread, work)

    def begin_append(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run in the storage thread, behind what was begun there before."""
        return asyncio.get_running_loop().run_in_executor(self._storage_thread, work)

    def begin_sync(self, told: Told) -> None:
        """Flush beside the loop; `told` is called on it at the end, with what `sync` has raised or None."""
        self._flusher.begin(told)

    async def sync(self) -> None:
        """The same, for whoever can wait."""
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.begin_sync(lambda error: None if ended.done() else ended.set_result(error))
        error = await ended
        if error is not None:
            raise error

    async def call(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run one short verb where the provider wants to be called."""
        if not self.blocking:
            return work(*arguments)
        return await self.begin(lambda: work(*arguments))

    async def read(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """The same for a verb that reads: it finds everything that was decided before the call."""
        await self.unwritten.written()
        return await self.call(work, *arguments)

    async def read_rows(
        self, work: Callable[..., Result], queue_id: int, runs: Sequence[Run], *arguments: Any
    ) -> Result:
        """The same for `work(queue_id, runs, …)`: it waits only while rows of these runs are still to be written."""
        await self.unwritten.written(queue_id, runs)
        return await self.call(work, queue_id, runs, *arguments)

    async def aside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a long verb that may run beside all others (a backup) in a thread of its own."""
        return await to_thread.run_sync(lambda: work(*arguments))

    async def maintain(self) -> None:
        await self.begin_append(self.provider.maintain)

    async def close(self) -> None:
        """Close the provider and end the threads."""
        try:
            await self.begin_append(self.provider.close)
        finally:
            self.abandon()

    async def give_back(self) -> None:
        """Close the provider after a start that has not succeeded: behind all that was begun, an `open` included that
        nobody waits for any more."""
        await self.begin_append(lambda: None)
        while self._flusher.busy:
            await self.sync()
        await self.begin(self.provider.close)

    def abandon(self) -> None:
        """End the threads without another word to the provider; its outcome is unknown."""
        self._storage_thread.shutdown(wait=False, cancel_futures=True)
        self._read_thread.shutdown(wait=False, cancel_futures=True)
        self._flusher.end()


class Flusher:
    """The sync threads; each starts with the first flush that finds no idle one."""

    def __init__(self, provider: IStorageProvider) -> None:
        self._provider = provider
        self._asked: SimpleQueue[tuple[asyncio.AbstractEventLoop, Told] | None] = SimpleQueue()
        self._threads: list[Thread] = []
        self._under_way = 0
        self._ended = False

    @property
    def busy(self) -> bool:
        """Whether a flush was begun of whose end nobody has heard."""
        return self._under_way > 0

    def begin(self, told: Told) -> None:
        self._under_way += 1
        if len(self._threads) < min(self._under_way, self._provider.in_flight_max):
            # It waits for nobody at the interpreter's end: a disk may never answer.
            thread = Thread(target=self._run, name="vibemq-sync", daemon=True)
            self._threads.append(thread)
            thread.start()
        self._asked.put((asyncio.get_running_loop(), told))

    def end(self) -> None:
        """Whoever waits for a flush now is told nothing."""
        self._ended = True
        for _ in self._threads or (None,):
            self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None and not self._ended:
            loop, told = asked
            error: BaseException | None = None
            try:
                self._provider.sync()
            except BaseException as failure:
                error = failure
            try:
                loop.call_soon_threadsafe(self._tell, told, error)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                return  # There is nobody to tell.

    def _tell(self, told: Told, error: BaseException | None) -> None:
        self._under_way -= 1
        told(error)
