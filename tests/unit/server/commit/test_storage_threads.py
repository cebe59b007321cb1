"""The threads of a store: there from the start; the sync thread runs one flush at a time, heard on the loop."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, cast

import pytest

from tests.waiting import wait_until
from vibemq.errors import StorageFailed
from vibemq.server.commit.storage_threads import LARGE_THREADS, Store
from vibemq.storage.interface import IStorageProvider

pytestmark = pytest.mark.anyio


class Disk:
    """A provider of which only `sync` is used; it waits until it is let go."""

    blocking_append = False
    in_flight_max = 1
    concurrent_reads = False

    def __init__(self) -> None:
        self.go = threading.Event()
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None

    def sync(self) -> int:
        self.threads.append(threading.current_thread())
        assert self.go.wait(60)
        if self.error is not None:
            raise self.error
        return 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def store(disk: Disk) -> Any:
    store = Store(cast("IStorageProvider", disk))
    yield store
    disk.go.set()
    store.abandon()


async def test_the_loop_goes_on_while_a_flush_runs_and_hears_of_its_end(store: Store, disk: Disk) -> None:
    told: asyncio.Future[tuple[BaseException | None, threading.Thread]] = asyncio.get_running_loop().create_future()
    store.begin_sync(lambda error, _: told.set_result((error, threading.current_thread())))
    await asyncio.sleep(0)
    assert not told.done()
    disk.go.set()
    assert await told == (None, threading.current_thread())
    assert disk.threads[0] is not threading.current_thread()


class InTurns(Disk):
    """Its housekeeping has three parts, and something is appended during the first."""

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []
        self.append_in_between: Callable[[], object] = lambda: None

    def maintain(self) -> None:
        self.done.append("begun")
        self.append_in_between()

    def maintain_on(self) -> bool:
        self.done.append("gone on")
        return len(self.done) < 4


async def test_an_append_comes_between_the_parts_of_a_round_of_housekeeping() -> None:
    disk = InTurns()
    store = Store(cast("IStorageProvider", disk))
    loop = asyncio.get_running_loop()
    begin_append = partial(store.begin_append, partial(disk.done.append, "appended"))

    def append() -> None:
        begun = threading.Event()
        loop.call_soon_threadsafe(lambda: (begin_append(), begun.set()))
        assert begun.wait(60)

    disk.append_in_between = append
    try:
        await store.maintain()
    finally:
        store.abandon()
    assert disk.done == ["begun", "appended", "gone on", "gone on"]


async def test_what_a_flush_raises_is_told(store: Store, disk: Disk) -> None:
    disk.error = StorageFailed("the disk is gone")
    disk.go.set()
    with pytest.raises(StorageFailed, match="the disk is gone"):
        await store.sync()


async def test_flushes_run_one_after_the_other_in_one_thread(store: Store, disk: Disk) -> None:
    disk.go.set()
    for _ in range(3):
        await store.sync()
    assert len(set(disk.threads)) == 1


async def test_an_abandoned_store_flushes_no_more(store: Store, disk: Disk) -> None:
    told: list[BaseException | None] = []
    first = asyncio.Event()
    store.begin_sync(lambda *_: first.set())
    store.begin_sync(lambda error, _: told.append(error))
    while not disk.threads:
        await asyncio.sleep(0)
    store.abandon()
    disk.go.set()
    await first.wait()
    disk.threads[0].join(60)
    assert not disk.threads[0].is_alive()
    assert len(disk.threads) == 1
    assert told == []


def test_a_loop_that_is_closed_is_told_nothing(store: Store, disk: Disk) -> None:
    async def begin() -> None:
        store.begin_sync(lambda *_: None)
        while not disk.threads:
            await asyncio.sleep(0)

    asyncio.run(begin())
    disk.go.set()
    disk.threads[0].join(60)
    assert not disk.threads[0].is_alive()


def no_thread(thread: threading.Thread) -> NoReturn:
    raise RuntimeError("can't start new thread")


async def test_what_has_begun_needs_no_thread_any_more(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.begin_threads()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    disk.go.set()
    await store.sync()
    both = threading.Barrier(LARGE_THREADS)
    store.large_rows = cast("Any", object())
    await asyncio.gather(*(store.begin_large(both.wait) for _ in range(LARGE_THREADS)))
    for pool in (store._storage_thread, store._read_thread, store._scattered_thread, store._letters_thread):
        assert await asyncio.wrap_future(pool.submit(lambda: "done")) == "done"


def test_a_store_that_gets_too_few_threads_leaves_none(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start, begun = threading.Thread.start, list[threading.Thread]()

    def start_four(thread: threading.Thread) -> None:
        if len(begun) == 4:
            no_thread(thread)
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_four)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        store.begin_threads()
    wait_until(lambda: not any(thread.is_alive() for thread in begun))


async def test_flushes_that_find_no_thread_of_their_own_wait_for_another(
    store: Store, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.in_flight_max = 2
    store.begin_threads()
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    flushes = [asyncio.ensure_future(store.sync()) for _ in range(2)]
    while not disk.threads:
        await asyncio.sleep(0)
    disk.go.set()
    await asyncio.gather(*flushes)
    assert len(set(disk.threads)) == 1
