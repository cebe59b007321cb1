"""Tasks begun from callbacks of the event loop, owned by the broker's task group.

Callbacks run outside of every task, where anyio cannot tell which loop it is on; so they leave a note here and a task
inside the group does the starting.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from anyio.abc import TaskGroup

from vibemq.errors import StorageFailed

log = logging.getLogger("vibemq.background_tasks")

Failed = Callable[[Exception], None]


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
