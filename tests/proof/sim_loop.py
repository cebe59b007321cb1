"""A clock that moves when it is told, and threads of which exactly one runs at a time.

`VirtualLoop` is the part of an event loop that the committer needs. `Crew` runs blocking work (a flush, a checkpoint)
in threads that stop in the middle, at `park`, until they are resumed: so other work comes between, as on a real
machine, and the same seed still gives the same run.
"""

import _thread
import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from itertools import count
from typing import Any

from vibemq.testing.sim_disk import PowerCut


class Handle:
    __slots__ = ("callback", "cancelled")

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class VirtualLoop:
    """Callbacks in the order of their instants. `now` is in seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = count()
        self._heap: list[tuple[float, int, Handle]] = []

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., object], *arguments: Any, context: object = None) -> Handle:
        return self.call_later(0.0, callback, *arguments)

    def call_later(self, delay: float, callback: Callable[..., object], *arguments: Any) -> Handle:
        handle = Handle(lambda: callback(*arguments))
        heappush(self._heap, (self.now + delay, next(self._order), handle))
        return handle

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        raise AssertionError(f"an error that nobody took: {context}")

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)  # type: ignore[arg-type]  # all that a future asks of a loop is here

    def run_until(self, instant: float) -> None:
        """Run what is due, in order, until nothing is due at or before the instant."""
        while self._heap and self._heap[0][0] <= instant:
            at, _, handle = heappop(self._heap)
            self.now = max(self.now, at)
            if not handle.cancelled:
                handle.callback()
        self.now = max(self.now, instant)

    def run_one(self) -> bool:
        """Run the next callback, whenever it is due; False when there is none."""
        while self._heap:
            at, _, handle = heappop(self._heap)
            if not handle.cancelled:
                self.now = max(self.now, at)
                handle.callback()
                return True
        return False

    @contextmanager
    def running(self) -> Iterator[None]:
        """`asyncio.get_running_loop()` answers this loop."""
        asyncio._set_running_loop(self)  # type: ignore[arg-type]
        try:
            yield
        finally:
            asyncio._set_running_loop(None)


class Abandoned(BaseException):
    """Raised inside parked work that nobody will resume."""


class _Thread:
    """A thread that does one piece of work after another. Locks are the baton: whoever may run holds none."""

    def __init__(self) -> None:
        self.go = _thread.allocate_lock()
        self.back = _thread.allocate_lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] = lambda: None
        _thread.start_new_thread(self._run, ())

    def _run(self) -> None:
        while True:
            self.go.acquire()
            self.work()
            self.back.release()


_idle: list[_Thread] = []


class Worker:
    """One piece of blocking work. `error` is what it raised."""

    def __init__(self, crew: "Crew", work: Callable[[], object]) -> None:
        self._crew = crew
        self._work = work
        self._abandoned = False
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self._thread = _idle.pop() if _idle else _Thread()
        self._thread.work = self._run

    def resume(self) -> None:
        """Let it work until it parks again or ends. A power cut inside it is raised here."""
        if self.done:
            return
        self._crew.running.append(self)
        self._thread.go.release()
        self._thread.back.acquire()
        self._crew.running.pop()
        self._crew.parked[self] = None
        if self.ended():
            _idle.append(self._thread)
            del self._crew.parked[self]
            if isinstance(self.error, PowerCut):
                raise self.error

    def ended(self) -> bool:
        return self.done

    def park(self) -> None:
        self._thread.back.release()
        self._thread.go.acquire()
        if self._abandoned:
            raise Abandoned

    def abandon(self) -> None:
        """End it where it stands, as a kill would."""
        self._abandoned = True
        while not self.done:
            self.resume()

    def _run(self) -> None:
        try:
            self.result = self._work()
        except BaseException as error:
            self.error = error
        self.done = True


class Crew:
    """All workers of one simulated process."""

    def __init__(self) -> None:
        self.running: list[Worker] = []
        self.parked: dict[Worker, None] = {}

    def start(self, work: Callable[[], object]) -> Worker:
        worker = Worker(self, work)
        worker.resume()
        return worker

    def park(self) -> None:
        """Called in the middle of work: in a worker, let others go on; elsewhere, nothing."""
        if self.running and not self.running[-1]._abandoned:
            self.running[-1].park()

    def finish(self) -> None:
        """Let all work come to its end."""
        while self.parked:
            next(iter(self.parked)).resume()

    def abandon(self) -> None:
        for worker in list(self.parked):
            worker.abandon()


class CrewLock:
    """A lock that lets its holder go on instead of waiting for it for ever."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._held = False
        self._holder: Worker | None = None

    def __enter__(self) -> None:
        while self._held:
            if self._crew.running:
                self._crew.running[-1].park()
            else:
                assert self._holder is not None
                self._holder.resume()
        self._held = True
        self._holder = self._crew.running[-1] if self._crew.running else None

    def acquire(self, *, blocking: bool) -> bool:
        """Only for who does not wait."""
        assert not blocking
        if self._held:
            return False
        self.__enter__()
        return True

    def release(self) -> None:
        self._held = False
        self._holder = None

    def __exit__(self, *_: object) -> None:
        self.release()
