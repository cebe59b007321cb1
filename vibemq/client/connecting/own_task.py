"""Work in a task of its own, which belongs to no block and no other task: who starts it need not be who stops it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import anyio

logger = logging.getLogger(__name__)


class OwnTask:
    """Runs once, on asyncio or trio.

    Args:
        failed: called with what the work raises, in its task.
        cancelled: called in its task when somebody else than `stop` cancels that.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[None]],
        failed: Callable[[Exception], None],
        cancelled: Callable[[], None],
    ) -> None:
        self._work = work
        self._failed = failed
        self._cancelled = cancelled
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._task: object = None
        """The loop itself keeps only a weak reference."""

    def start(self) -> None:
        name = "vibemq client"
        if on_asyncio():
            task = self._task = asyncio.get_running_loop().create_task(self._run(), name=name)
            task.add_done_callback(self._is_over)
        else:
            import trio.lowlevel

            self._task = trio.lowlevel.spawn_system_task(self._run, name=name)

    @property
    def ended(self) -> bool:
        return self._ended.is_set()

    async def stop(self) -> None:
        """Cancel the work and wait for its end, also when the caller is cancelled."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self._ended.wait()

    def _is_over(self, task: object) -> None:
        """Also of one that was cancelled before its first step."""
        if not self.ended:
            self._cancelled()
            self._ended.set()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._work()
        except Exception as error:
            logger.exception("the client has failed in an unforeseen way")
            self._failed(error)
        except BaseException:
            # A shutdown that cancels all tasks of the loop, or the end of the loop itself.
            if not self._scope.cancel_called:
                self._cancelled()
            raise
        finally:
            self._ended.set()


def current_loop() -> Callable[[], object]:
    """What says which event loop it is called in, of the kind that runs now; it raises RuntimeError in none."""
    if on_asyncio():
        return asyncio.get_running_loop
    import trio.lowlevel

    return trio.lowlevel.current_trio_token


def on_asyncio() -> bool:
    try:
        import sniffio
    except ModuleNotFoundError:
        return True  # Who runs trio has it.
    return sniffio.current_async_library() == "asyncio"
