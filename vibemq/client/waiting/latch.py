"""Something that happens once, and that tasks may wait for."""

import asyncio

import anyio
from anyio.lowlevel import checkpoint


class Latch:
    """A client has several for each message, and most of them have nobody who waits; some are made where no event loop
    runs. On asyncio whoever waits does it on a future, elsewhere on an event of anyio."""

    __slots__ = ("_event", "_futures", "_happened")

    def __init__(self) -> None:
        self._happened = False
        self._futures: dict[asyncio.Future[None], None] | None = None
        """In the order in which they came."""
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        return self._happened

    @property
    def is_awaited(self) -> bool:
        return self._futures is not None or self._event is not None

    def set(self) -> None:
        self._happened = True
        if self._futures is not None:
            for future in self._futures:
                if not future.done():
                    future.set_result(None)
            self._futures = None
        if self._event is not None:
            self._event.set()
            self._event = None

    async def wait(self) -> None:
        if self._happened:
            await checkpoint()
            return
        loop = _loop_of_this_task()
        if loop is None:
            await self._wait_elsewhere()
            return
        future = self._new_future(loop)
        try:
            await future
        except BaseException:
            self._forget(future)
            raise

    async def wait_until(self, instant: float) -> bool:
        """As `wait`, no longer than until that instant of `anyio.current_time`. Whether it has happened."""
        loop = _loop_of_this_task()
        if self._happened or loop is None:
            with anyio.move_on_at(instant):
                await self.wait()
            return self._happened
        future = self._new_future(loop)
        # A timer of the loop costs less than half a scope of anyio's, which has to cancel whatever waits in it.
        timer = loop.call_at(instant, _end_waiting, future)
        try:
            await future
        finally:
            timer.cancel()
            if not self._happened:
                self._forget(future)
        return self._happened

    async def _wait_elsewhere(self) -> None:
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()

    def _new_future(self, loop: asyncio.AbstractEventLoop) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = loop.create_future()
        if self._futures is None:
            self._futures = {future: None}
        else:
            self._futures[future] = None
        return future

    def _forget(self, future: "asyncio.Future[None]") -> None:
        """A latch that nobody sets does not gather all who have ever waited."""
        if self._futures is not None:
            self._futures.pop(future, None)


def _loop_of_this_task() -> asyncio.AbstractEventLoop | None:
    """None: without a task of asyncio's it is another library's loop that runs here, as a guest."""
    loop = asyncio._get_running_loop()
    return None if loop is None or asyncio.current_task(loop) is None else loop


def _end_waiting(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
