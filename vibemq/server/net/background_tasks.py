"""Tasks begun from callbacks of the event loop, owned by the broker's task group.

Callbacks run outside of every task, where anyio cannot tell which loop it is on; so they leave a note here and a task
inside the group does the starting.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from anyio.abc import TaskGroup


class Errands:
    """`begin` may be called from anywhere on the loop; `run` starts what was begun, in order."""

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._begun: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._something = asyncio.Event()

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        self._begun.append(partial(work, *arguments))
        self._something.set()

    async def run(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            while self._begun:
                self._tasks.start_soon(self._begun.popleft())
