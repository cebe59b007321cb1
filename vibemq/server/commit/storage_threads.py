"""Threads around a storage provider.

    storage thread   maintain, close; and append when the provider's append may wait for the disk
    read thread      everything else of such a provider, so that reads do not stand behind commits; the storage thread
                     when the provider cannot do both at the same time
    scattered thread messages far apart from each other, read by the blocks in which they stand
    letters thread   pages of dead letters, among which there may be large ones
    large threads    rows above 1 MiB: written ahead of their record, and read back
    sync threads     sync: as many flushes at a time as the provider says, beside everything else; woken by a queue and
                     heard on the loop, because a future on either side costs a lone message more than all the rest of
                     the way. A small flush of a quick disk needs no thread: `flush_place.py`

A read in a thread of its own may overtake an append, so deliveries are told, and `read` and `read_rows` begun, once the
rows that they name are appended (`unwritten.py`).

All of them run before the first client is served: a process may be allowed so many threads (`TasksMax=`,
`--pids-limit`), and a pool that finds none left raises, and keeps what it was given all the same.

A provider whose `blocking_append` is False is quick enough for the event loop and is called there: a hop to a thread
and back costs more than the write, and the hop back waits for the interpreter lock.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from anyio import to_thread

from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.rows import LargeRow
from vibemq.model.runs import Run
from vibemq.model.stored import DeadPage, DeadPageWanted, Slice
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.commit.unwritten import Unwritten
from vibemq.storage.interface import FlushesAtOnce, IStorageProvider, MaintainsInTurns, PicksRows, PreparesRows
from vibemq.storage.reading import Piece, ReadsRows, read_scattered

LARGE_THREADS = 2
"""At a time, so that a slow disk does not keep large reads behind large writes."""

Result = TypeVar("Result")
Told = Callable[[BaseException | None, float], None]
"""Hears how a flush ended, and how many seconds it took in its thread."""


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
        self._try_sync = provider.try_sync if isinstance(provider, FlushesAtOnce) else flushes_in_a_thread
        self.memory: MessageMemory | None = None
        """For large rows from their read until the socket has taken them; None = any amount."""
        self._large_threads = ThreadPoolExecutor(LARGE_THREADS, "vibemq-large")
        self._scattered_thread = ThreadPoolExecutor(1, "vibemq-scattered")
        self.picks: Callable[[int], bool] = provider.picks if isinstance(provider, PicksRows) else picks_nothing
        """Whether `begin_scattered` serves for the queue of that id."""
        self._letters_thread = ThreadPoolExecutor(1, "vibemq-letters")
        self.room_is_ready: Callable[[], bool] = getattr(provider, "room_is_ready", _always)
        """Whether the provider takes megabytes at once; while it does not, those who send much wait."""
        self._find_large = getattr(provider, "first_large", None)
        self.large_rows: ReadsRows = LargeRows(provider) if hasattr(provider, "read_large") else provider
        """Reads a large row beside everything else, in the thread that asks."""

    def begin_threads(self) -> None:
        """Before anything is asked of them. Raises RuntimeError: the system gives no more; none is left then."""
        pools = {self._storage_thread, self._read_thread, self._scattered_thread, self._letters_thread}
        try:
            for pool in pools:
                begin_all(pool, 1)
            begin_all(self._large_threads, LARGE_THREADS)
            self._flusher.begin_thread()
        except RuntimeError:
            self.abandon()
            raise

    def first_large(self, queue_id: int, runs: Sequence[Run]) -> tuple[int, int] | None:
        """(sequence, size) of the first row in the runs that is above `LARGE_ROW_BYTES`, where the provider knows."""
        return None if self._find_large is None else self._find_large(queue_id, runs)

    def begin_scattered(self, queue_id: int, runs: Sequence[Run], rows: int, max_bytes: int) -> "asyncio.Future[Piece]":
        """See `read_scattered`."""
        provider: Any = self.provider
        work = partial(read_scattered, provider, queue_id, runs, rows, max_bytes)
        return asyncio.get_running_loop().run_in_executor(self._scattered_thread, work)

    def begin_large(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Read a large row through `large_rows`."""
        if self.large_rows is self.provider:
            return self.begin(work)
        return asyncio.get_running_loop().run_in_executor(self._large_threads, work)

    def begin_prepare(self, row: LargeRow) -> "asyncio.Future[None] | None":
        """Write a large row ahead of its record; None when the provider writes it with the record."""
        if not isinstance(self.provider, PreparesRows):
            return None
        return asyncio.get_running_loop().run_in_executor(self._large_threads, self.provider.prepare, row)

    async def prepared(self, make: Callable[[], bytes]) -> LargeRow:
        """A large row that `make` makes in a thread, written ahead of its record where the provider can."""
        row = await asyncio.get_running_loop().run_in_executor(self._large_threads, lambda: LargeRow(make()))
        future = self.begin_prepare(row)
        if future is not None:
            await future
        return row

    async def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """As the provider's, behind the appends of everything decided so far. Of letters nobody knows how large they
        are before they are read."""
        return await self._ask_letters(self.provider.dead_page, wanted)

    async def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        """The same: groups of dead letters."""
        return await self._ask_letters(self.provider.dead_groups, wanted)

    async def dead_queues(self, after: int, limit: int, name: str | None = None) -> list[tuple[int, str]]:
        """The same: queues that have dead letters."""
        return await self._ask_letters(self.provider.dead_queues, after, limit, name)

    async def _ask_letters(self, work: Callable[..., Result], *arguments: Any) -> Result:
        if self.large_rows is self.provider:
            return await self.read(work, *arguments)
        await self.unwritten.written()
        return await asyncio.get_running_loop().run_in_executor(self._letters_thread, partial(work, *arguments))

    def begin(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run in the read thread, behind what was begun there before."""
        return asyncio.get_running_loop().run_in_executor(self._read_thread, work)

    def begin_append(self, work: Callable[[], Result]) -> "asyncio.Future[Result]":
        """Run in the storage thread, behind what was begun there before."""
        return asyncio.get_running_loop().run_in_executor(self._storage_thread, work)

    def begin_sync(self, told: Told) -> None:
        """Flush beside the loop; `told` is called on it at the end, with what `sync` has raised or None."""
        self._flusher.begin(told)

    def sync_at_once(self) -> float | None:
        """Flush in this thread, and return how many seconds it took; None, and nothing is done, when the provider does
        no such thing or is flushing elsewhere."""
        began = time.perf_counter()
        return None if self._try_sync() is None else time.perf_counter() - began

    async def sync(self) -> None:
        """The same, for whoever can wait."""
        ended: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self.begin_sync(lambda error, _: None if ended.done() else ended.set_result(error))
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
        if not self.blocking and self.first_large(queue_id, runs) is not None:
            # Megabytes of a row hold up the loop.
            return await self.begin_large(lambda: work(queue_id, runs, *arguments))
        return await self.call(work, queue_id, runs, *arguments)

    async def aside(self, work: Callable[..., Result], *arguments: Any) -> Result:
        """Run a long verb that may run beside all others (a backup) in a thread of its own."""
        return await to_thread.run_sync(lambda: work(*arguments))

    async def maintain(self) -> None:
        """One round of housekeeping; what is appended meanwhile comes in between its parts."""
        await self.begin_append(self.provider.maintain)
        if isinstance(self.provider, MaintainsInTurns):
            while await self.begin_append(self.provider.maintain_on):
                pass

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
        self._large_threads.shutdown(wait=False, cancel_futures=True)
        self._scattered_thread.shutdown(wait=False, cancel_futures=True)
        self._letters_thread.shutdown(wait=False, cancel_futures=True)
        self._read_thread.shutdown(wait=False, cancel_futures=True)
        self._flusher.end()


def begin_all(pool: ThreadPoolExecutor, threads: int) -> None:
    """A pool makes a thread for what it is given while all others are busy. Raises RuntimeError."""
    go_on = Event()
    try:
        for _ in range(threads):
            pool.submit(go_on.wait)
    finally:
        go_on.set()


def _always() -> bool:
    return True


def picks_nothing(queue_id: int) -> bool:
    """Of a provider that is no `PicksRows`."""
    return False


def flushes_in_a_thread() -> None:
    """Of a provider that is no `FlushesAtOnce`."""


class LargeRows:
    """Reads single rows as a provider reads them, without the turn that its other reads take."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        slices: list[Slice] = self._provider.read_large(queue_id, first)
        return slices


class Flusher:
    """The sync threads: one from the start, each other with the first flush that finds no idle one."""

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

    def begin_thread(self) -> None:
        """Raises RuntimeError."""
        # It waits for nobody at the interpreter's end: a disk may never answer.
        thread = Thread(target=self._run, name="vibemq-sync", daemon=True)
        thread.start()
        self._threads.append(thread)

    def begin(self, told: Told) -> None:
        if len(self._threads) < min(self._under_way + 1, self._provider.in_flight_max):
            self._begin_another()
        self._under_way += 1
        self._asked.put((asyncio.get_running_loop(), told))

    def _begin_another(self) -> None:
        try:
            self.begin_thread()
        except RuntimeError:
            # The flush waits for those that there are.
            if not self._threads:
                raise

    def end(self) -> None:
        """Whoever waits for a flush now is told nothing."""
        self._ended = True
        for _ in self._threads or (None,):
            self._asked.put(None)

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None and not self._ended:
            loop, told = asked
            error: BaseException | None = None
            began = time.perf_counter()
            try:
                self._provider.sync()
            except BaseException as failure:
                error = failure
            took_s = time.perf_counter() - began
            try:
                loop.call_soon_threadsafe(self._tell, told, error, took_s)
            except RuntimeError:
                if not loop.is_closed():
                    raise
                return  # There is nobody to tell.

    def _tell(self, told: Told, error: BaseException | None, took_s: float) -> None:
        self._under_way -= 1
        told(error, took_s)
