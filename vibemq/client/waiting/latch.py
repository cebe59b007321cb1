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
        self._futures: list[asyncio.Future[None]] | None = None
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

    async def wait(self) -> None:
        if self._happened:
            await checkpoint()
            return
        loop = asyncio._get_running_loop()
        # Without a task of asyncio's it is another library's loop that runs here, as a guest.
        if loop is None or asyncio.current_task(loop) is None:
            if self._event is None:
                self._event = anyio.Event()
            await self._event.wait()
            return
        future: asyncio.Future[None] = loop.create_future()
        if self._futures is None:
            self._futures = [future]
        else:
            self._futures.append(future)
        try:
            await future
        except BaseException:
            # A latch that nobody sets does not gather all who have ever waited.
            if self._futures is not None and future in self._futures:
                self._futures.remove(future)
            raise
