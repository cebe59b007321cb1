"""A broker's life in a task of its own, which belongs to no block and no other task: who starts it need not be who
stops it, and nobody's cancellation tears it apart.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator

import anyio
from anyio.abc import TaskGroup

from vibemq.errors import StorageFailed

log = logging.getLogger("vibemq.broker")


class Ending:
    """What `Broker.stop` returns. The broker ends whether or not anybody awaits it."""

    def __init__(self, ended: Callable[[], Awaitable[None]]) -> None:
        self._ended = ended

    def __await__(self) -> Generator[object, None, None]:
        yield from self._ended().__await__()


class BrokerLife:
    """Begins once and ends once.

    Args:
        begin: starts everything; what goes on belongs to the task group.
        finish: drains and closes; may call `fail`.
        abandon: lets go of everything without another word to storage.
        last: what is to be done when no task of the broker runs any more.
    """

    def __init__(
        self,
        begin: Callable[[TaskGroup], Awaitable[None]],
        finish: Callable[[], Awaitable[None]],
        abandon: Callable[[], Awaitable[None]],
        last: Callable[[], Awaitable[None]],
    ) -> None:
        self._begin = begin
        self._finish = finish
        self._abandon = abandon
        self._last = last
        self.failure: BaseException | None = None
        """What storage failed with."""
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopping = asyncio.Event()
        self._failed = asyncio.Event()
        self._begun = asyncio.Event()
        """The start is over, well or badly."""
        self._is_running = False
        self._ended = asyncio.Event()
        self._error: BaseException | None = None
        """What the end has to be told with."""
        self._when_broken: Callable[[], object] | None = None

    async def start(self) -> None:
        """Return when everything has begun; raise what has prevented it, with nothing left behind."""
        if self._task is not None:
            raise RuntimeError("a broker is started once, and this one has been; make another Broker")
        self._loop = _running_loop()
        self._scope = anyio.CancelScope()
        self._task = self._loop.create_task(self._run(), name="vibemq broker")
        try:
            await self._begun.wait()
        except BaseException:
            self._scope.cancel()
            with anyio.CancelScope(shield=True):
                await self._ended.wait()
            raise
        if not self._is_running:
            error, self._error = self._error, None
            assert error is not None
            raise error

    def stop(self) -> Ending:
        """Begin the end, if the broker was started and has not ended. Any thread may call it, and the handler of a
        signal: neither wakes the loop by itself."""
        if self._loop is not None and not self._ended.is_set():
            with contextlib.suppress(RuntimeError):  # The loop has ended meanwhile, and the broker with it.
                self._loop.call_soon_threadsafe(self._stopping.set)
        return Ending(self.ended)

    @property
    def is_elsewhere(self) -> bool:
        """Whether the loop of the broker runs, and whoever asks is not called by it."""
        return self._loop is not None and self._loop.is_running() and asyncio._get_running_loop() is not self._loop

    async def ended(self) -> None:
        """Return when nothing is left; raise what has ended the broker if that was not `stop`."""
        if self._task is None:
            return
        if self._loop is not asyncio.get_running_loop():
            raise RuntimeError("the broker runs in another event loop; wait for it where it was started")
        await self._ended.wait()
        if self._is_running and self._error is not None:
            raise self._error

    def fail(self, error: BaseException) -> None:
        """Nobody knows what is on disk: end without another word to storage."""
        self.failure = error
        self._failed.set()

    def when_broken(self, told: Callable[[], object] | None) -> None:
        """`told` is called once the broker has ended by itself."""
        self._when_broken = told
        if told is not None and self._error is not None:
            told()

    async def _run(self) -> None:
        assert self._scope is not None
        try:
            with self._scope:
                await self._live()
        except Exception as error:
            if self._is_running and not isinstance(error, StorageFailed):
                # Somebody may wait for the end, or nobody; it must not go unseen.
                log.critical("the broker has ended in an unforeseen way", exc_info=error)
            self._error = error
        finally:
            self._begun.set()
            self._ended.set()
            if self._error is not None and self._when_broken is not None:
                self._when_broken()

    async def _live(self) -> None:
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._guard, tasks)
                await self._begin_and_end(tasks)
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                if not self._is_running:
                    # Behind the tasks: one that trips over what is closed under it would hide the error that counts.
                    await self._abandon()
                await self._last()
        if self.failure is not None:
            raise _as_storage_failure(self.failure)

    async def _begin_and_end(self, tasks: TaskGroup) -> None:
        try:
            await self._begin(tasks)
        except BaseException as error:
            # For who has called start; the group would wrap it.
            self._error = error
            return
        self._is_running = True
        self._begun.set()
        try:
            await self._stopping.wait()
        except asyncio.CancelledError:
            # Storage has failed, or a task of the group; or the event loop ends, and nobody has stopped the broker.
            log.debug("the broker's task was cancelled")
        with anyio.CancelScope(shield=True):
            await (self._finish() if self.failure is None else self._abandon())

    async def _guard(self, tasks: TaskGroup) -> None:
        # What fails may fail in a callback, which belongs to no task and cancels none.
        await self._failed.wait()
        tasks.cancel_scope.cancel()


def _running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "a broker needs a running asyncio event loop; under trio run it in a thread of its own, with asyncio.run()"
        ) from None


def _as_storage_failure(error: BaseException) -> StorageFailed:
    if isinstance(error, StorageFailed):
        return error
    failure = StorageFailed(f"storage failed in an unforeseen way: {error!r}")
    failure.__cause__ = error
    return failure
