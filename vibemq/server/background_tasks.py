"""Tasks begun from callbacks of the event loop, owned by the broker's task group.

Callbacks run outside of every task, where anyio cannot tell which loop it is on; so they leave a note here and a task
inside the group does the starting.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from anyio.abc import TaskGroup

from vibemq.errors import ShuttingDown, StorageFailed, VibeMQError, forget_frames

log = logging.getLogger("vibemq.background_tasks")

Failed = Callable[[Exception], None]
Outcome = TypeVar("Outcome")


class BackgroundTasks:
    """`begin` may be called from anywhere on the loop; `run` starts what was begun, in order.

    An exception ends its own task only: a task group would cancel all others, and with them the broker. StorageFailed
    is the exception to this; it goes to `fatal`.
    """

    def __init__(self, tasks: TaskGroup, fatal: Callable[[BaseException], None]) -> None:
        self._tasks = tasks
        self._fatal = fatal
        self._begun: deque[tuple[Callable[[], Coroutine[Any, Any, None]], Failed | None]] = deque()
        self._something = asyncio.Event()

    def begin(
        self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, failed: Failed | None = None
    ) -> None:
        """`failed` is called with an exception that the work lets through; without it the log has to do."""
        self._begun.append((partial(work, *arguments), failed))
        self._something.set()

    def outcome_of(
        self, work: Callable[..., Coroutine[Any, Any, Outcome]], *arguments: Any
    ) -> "asyncio.Future[Outcome]":
        """Begin work that goes on to its end also when nobody waits for it any more: wait for it with `asyncio.shield`.

        The future has what the work answers or raises; ShuttingDown when the broker stops before. Keep it under no
        name while you wait: a refusal has the frame of who waits in its traceback, and only the cycle collector would
        free them.
        """
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        # A future that is abandoned must not complain about the error that nobody has heard.
        outcome.add_done_callback(lambda done: done.cancelled() or done.exception())
        self.begin(_settle, outcome, work, *arguments)
        return outcome

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._begun:
                self._tasks.start_soon(self._carry_out, *self._begun.popleft())

    async def _carry_out(self, work: Callable[[], Coroutine[Any, Any, None]], failed: Failed | None) -> None:
        try:
            await work()
        except StorageFailed as error:
            self._fatal(error)
        except Exception as error:
            if failed is None:
                log.exception("a task begun for a connection failed")
            else:
                failed(error)


async def _settle(
    outcome: "asyncio.Future[Any]", work: Callable[..., Coroutine[Any, Any, Any]], *arguments: Any
) -> None:
    try:
        outcome.set_result(await work(*arguments))
    except VibeMQError as error:
        forget_frames(error)
        outcome.set_exception(error)
    except BaseException as error:
        # Who waits was not cancelled, and must not be told that it was.
        stopped = ShuttingDown("the broker is stopping; what was asked for may not have been carried out")
        outcome.set_exception(error if isinstance(error, Exception) else stopped)
        raise
