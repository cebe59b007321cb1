"""Something that happens once, and that tasks may wait for."""

import anyio
from anyio.lowlevel import checkpoint


class Latch:
    """An event of anyio, which is made only when somebody waits. A client has several for each message, and most of
    them have nobody who waits; some are made where no event loop runs."""

    __slots__ = ("_event", "_happened")

    def __init__(self) -> None:
        self._happened = False
        self._event: anyio.Event | None = None

    def is_set(self) -> bool:
        return self._happened

    def set(self) -> None:
        self._happened = True
        if self._event is not None:
            self._event.set()

    async def wait(self) -> None:
        if self._happened:
            await checkpoint()
            return
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
