"""An event loop in a daemon thread, and the way into it for every other thread.

What is handed over waits in a deque, and one wake-up of the loop takes all that is there; whoever waits for an answer
waits on a plain lock. That costs a fraction of a portal with its futures and task groups.

A process that is forked has the objects and not the thread. `_abandoned` keeps them, so that nothing of theirs is ever
finalised in the child: the loop's selector is shared with the parent, which must not notice.
"""

import asyncio
import contextlib
import contextvars
import importlib
import importlib.util
import itertools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from threading import Lock, get_ident
from typing import Any, TypeVar, TypeVarTuple, overload

from vibemq.client.connecting.forking import FORKED
from vibemq.client.connecting.greenlets import (
    acquire,
    system_selector,
    system_thread,
    taken_lock,
    threads_are_greenlets,
    wait_s_max,
)
from vibemq.errors import ClientForked, LocalProtocolError, NotConnected, VibeMQError

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

CLOSED = "this client is closed; make another with vibemq.sync.connect"
_abandoned: list[object] = []


class Answer:
    """One outcome that one thread waits for. The first one counts."""

    __slots__ = ("_error", "_lock", "_open", "_result", "done", "given")

    def __init__(self) -> None:
        self._open: set[Answer] | None = None
        self._lock = taken_lock()
        self._result: Any = None
        self._error: BaseException | None = None
        self.done = False
        self.given = False
        """Done, with a result."""

    def note(self, open_answers: "set[Answer]") -> None:
        """Be in the set until there is an outcome."""
        self._open = open_answers
        open_answers.add(self)

    def give(self, result: Any) -> None:
        if not self.done:
            self._result = result
            self.given = True
            self._finish()

    def fail(self, error: BaseException) -> None:
        if not self.done:
            self._error = error
            self._finish()

    def _finish(self) -> None:
        self.done = True
        if self._open is not None:
            self._open.discard(self)
        self._lock.release()

    def wait(self) -> Any:
        """Raises what was failed with, or what interrupts the thread."""
        acquire(self._lock)
        if self._error is not None:
            try:
                raise self._error
            finally:
                # The traceback would keep this frame, and with it the answer.
                self._error = None
        return self._result

    @property
    def result(self) -> Any:
        """Once it is given."""
        return self._result


class LoopThread:
    """Started at once; `close` ends it.

    No lock is held while anything is handed over, because a signal's handler may come in between at any point, use the
    client as well, and wait.

    Args:
        name: of the thread.

    Raises:
        NotConnected: the operating system refuses the loop or the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: deque[list[Any]] = deque()
        """A call, None when it was withdrawn, and the answer that somebody waits for, or None."""
        self._numbers = itertools.count(1)
        self._asked = 0
        """Number of a wake-up that the loop has been asked for, not always the newest."""
        self._taken = 0
        """The highest number of one that has come: what was handed over before it is, or will be, taken by it."""
        self._open: set[Answer] = set()
        """Of calls that have begun."""
        self._closed = False
        self._ended = False
        """The loop takes no more calls: whoever hands one over later refuses it."""
        self.inherited = False
        """Of the parent, in a forked child."""
        self._coming = False
        """The loop takes what was handed over by itself before long; see `come_back`."""
        self._parked: set[Lock] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._context = contextvars.Context()
        """Of everything that runs in the loop: none of its callers', who may be in another one's loop (trio's, say)."""
        try:
            self._loop = _new_loop()
        except OSError as error:
            raise NotConnected(f"the client's event loop cannot be made: {error.strerror or error}") from error
        self._end: asyncio.Future[None] = self._loop.create_future()
        self._ident = 0
        """Of the thread, once it runs."""
        self._thread = system_thread(self._run, name)
        try:
            self._thread.start()
        except RuntimeError as error:
            if isinstance(error, RecursionError):
                raise
            self._loop.close()
            raise NotConnected(f"the client's thread cannot be started: {error}") from error

    @overload
    def call(self, function: Callable[[*Ts], Awaitable[R]], *args: *Ts) -> R: ...

    @overload
    def call(self, function: Callable[[*Ts], R], *args: *Ts) -> R: ...

    def call(self, function: Callable[[*Ts], Any], *args: *Ts) -> Any:
        """Call it in the loop and wait for its result, awaited if it is awaitable. A thread that is interrupted while
        it waits, by Ctrl-C for example, cancels it.

        Raises:
            NotConnected: this is closed.
            ClientForked: it is the parent's.
            LocalProtocolError: the caller is the loop's own thread, which would wait for itself.
        """
        return self._wait_for(_Call(function, args, self))

    def call_or_undo(self, function: Callable[[], Awaitable[R]], undo: Callable[[R], object]) -> R:
        """As `call`, of what must not be done if the thread has no result of it: if it is interrupted too late to
        cancel it, `undo` is called with the result, in the loop."""
        return self._wait_for(_Call(function, (), self, undo=undo))  # type: ignore[no-any-return]

    def _wait_for(self, call: "_Call") -> Any:
        try:
            self._begin(call.begin, call.answer)
            return call.answer.wait()
        except BaseException as error:
            if call.may_be_withdrawn and not isinstance(error, RecursionError):
                # Closed meanwhile, it is cancelled anyway, and what interrupts the thread is what counts.
                with contextlib.suppress(VibeMQError):
                    self.post(call.withdraw)
            raise

    def call_with_answer(self, begin: Callable[[Answer], object]) -> Any:
        """As `call`, for what needs no task: `begin` is called in the loop and sees to it that the answer is given some
        time; when the loop ends before, it is NotConnected."""
        answer = Answer()
        self._begin(partial(self._ask, begin, answer), answer)
        return answer.wait()

    def run_in_task(self, answer: Answer, work: Coroutine[Any, Any, Any]) -> None:
        """Called in the loop: have a task give the answer."""
        _Call(lambda: work, (), self, answer).begin()

    def post(self, call: Callable[[], object]) -> None:
        """Have it called in the loop soon, in the order of the posts. What it raises is logged.

        Raises:
            NotConnected: this is closed.
            ClientForked: it is the parent's.
        """
        self._hand_over(call, None)

    def post_lazily(self, call: Callable[[], object]) -> None:
        """As `post`, without a wake-up when the loop comes back by itself: see `come_back`."""
        self._hand_over(call, None, lazily=True)

    def come_back(self, after_s: float, gather: Callable[[Callable[[], None]], object]) -> None:
        """Called in the loop: after so long, take what was handed over meanwhile, by a call of `gather` with what
        takes it."""
        if not self._coming:
            self._coming = True
            self._loop.call_later(after_s, self._come, gather)

    def park(self, places: "deque[Lock]", found: Callable[[], object], timeout: float | None) -> None:
        """Wait until something in the loop releases a lock that was put into `places`, or the loop ends; not at all if
        `found` says so once the lock is there.

        Raises:
            NotConnected: the loop has ended.
            LocalProtocolError: the caller is the loop's own thread, which would wait for itself.
        """
        self._check_thread()
        lock = taken_lock()
        self._parked.add(lock)
        places.append(lock)
        try:
            if self._ended:
                raise NotConnected(CLOSED)
            if not found():
                most = wait_s_max()
                lock.acquire(timeout=most if timeout is None else min(timeout, most))
        finally:
            self._parked.discard(lock)
            with contextlib.suppress(ValueError):
                places.remove(lock)

    @property
    def has_calls(self) -> bool:
        """Whether something that was handed over has not been carried out yet."""
        return bool(self._calls)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Called in the loop: have a task do it. When the loop ends before, it is cancelled."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def later(self, after_s: float, call: Callable[[*Ts], object], *args: *Ts) -> None:
        """Called in the loop: have it called after so long."""
        self._loop.call_later(after_s, call, *args)

    def check_caller(self) -> None:
        """
        Raises:
            NotConnected: this is closed.
            ClientForked: it is the parent's.
            LocalProtocolError: the caller is the loop's own thread, which would wait for itself.
        """
        self.check()
        self._check_thread()

    def check(self) -> None:
        """
        Raises:
            NotConnected: this is closed.
            ClientForked: it is the parent's.
        """
        if self.inherited:
            raise ClientForked(FORKED)
        if self._closed:
            raise NotConnected(CLOSED)

    def close(self) -> None:
        """What still runs is cancelled; returns when the thread has ended. Closing twice is fine."""
        self._closed = True
        if self.inherited:
            return
        try:
            self._loop.call_soon_threadsafe(self._finish)
        except RuntimeError as error:
            if isinstance(error, RecursionError) or not self._loop.is_closed():
                raise
        if get_ident() != self._ident:
            self._thread.join()

    def join(self) -> None:
        """Wait for the end of the thread, which something in it brings about."""
        self._thread.join()

    def abandon(self, belongings: object) -> None:
        """In a forked child, where the thread does not exist: never touch any of it again, nor of what runs in it."""
        self.inherited = True
        self._closed = True
        _abandoned.append((self, belongings))

    @property
    def closed(self) -> bool:
        return self._closed

    def _begin(self, call: Callable[[], object], answer: Answer) -> None:
        self._check_thread()
        self._hand_over(call, answer)

    def _check_thread(self) -> None:
        # The system gives the number of a thread that has ended to others.
        if not self._closed and get_ident() == self._ident:
            raise LocalProtocolError(
                "this is the client's own thread, which would wait for itself; a blocking client cannot be used by "
                "code that it runs, such as a callback of on_connection_change: use another client there"
            )

    def _hand_over(self, call: Callable[[], object], answer: Answer | None, *, lazily: bool = False) -> None:
        self.check()
        entry = [call, answer]
        try:
            self._calls.append(entry)
            # A wake-up that was asked for and has not come takes this call as well. It is noted after it was asked for,
            # so that what is noted always comes. A note that is too low costs one wake-up more.
            # The loop notes that it has come before it takes.
            if self._asked <= self._taken and not (lazily and self._coming):
                number = next(self._numbers)
                self._loop.call_soon_threadsafe(self._take, number, context=self._context)
                self._asked = number
            if self._ended:
                self._refuse()
        except BaseException as error:
            # At the limit of recursion every call raises, so this is none.
            entry[0] = None
            if error.__class__ is not RuntimeError or not self._loop.is_closed():
                raise
            raise NotConnected(CLOSED) from None

    # -- in the thread ----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        self._ident = get_ident()
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                runner.run(self._live())
        finally:
            self._closed = True
            self._ended = True
            self._refuse()
            for answer in list(self._open):
                answer.fail(NotConnected("this client was closed while it was asked"))
            for lock in list(self._parked):
                with contextlib.suppress(RuntimeError):  # It is released already.
                    lock.release()

    async def _live(self) -> None:
        await self._end

    def _finish(self) -> None:
        self._take(self._taken)
        if not self._end.done():
            self._end.set_result(None)

    def _come(self, gather: Callable[[Callable[[], None]], object]) -> None:
        self._coming = False
        if self._calls:
            gather(self._take_again)

    def _take_again(self) -> None:
        self._take(self._taken)

    def _take(self, number: int) -> None:
        # Noted before the calls are counted: whoever adds one later asks for another wake-up.
        self._taken = max(self._taken, number)
        for _ in range(len(self._calls)):
            call, answer = self._calls[0]
            try:
                if call is None:
                    continue
                if answer is not None:
                    answer.note(self._open)
                call()
            except Exception:
                logger.exception("a call in the client's thread has failed")
            finally:
                # Not before: see `has_calls`.
                self._calls.popleft()

    def _refuse(self) -> None:
        """Nobody takes what was handed over."""
        with contextlib.suppress(IndexError):  # Several threads may empty it together.
            while True:
                _, answer = self._calls.popleft()
                if answer is not None:
                    answer.fail(NotConnected(CLOSED))

    def _ask(self, begin: Callable[[Answer], object], answer: Answer) -> None:
        try:
            begin(answer)
        except BaseException as error:
            answer.fail(error)


class _Call:
    """One call that a thread waits for."""

    __slots__ = ("_args", "_function", "_loop", "_task", "_undo", "_withdrawn", "answer")

    def __init__(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        loop: LoopThread,
        answer: Answer | None = None,
        undo: Callable[[Any], object] | None = None,
    ) -> None:
        self._function = function
        self._args = args
        self._loop = loop
        self._undo = undo
        self._withdrawn = False
        self._task: asyncio.Task[Any] | None = None
        self.answer = answer or Answer()

    def begin(self) -> None:
        try:
            result = self._function(*self._args)
        except BaseException as error:
            self.answer.fail(error)
            return
        if asyncio.iscoroutine(result):
            self._go_on(result)
        else:
            self.answer.give(result)

    def _go_on(self, work: Coroutine[Any, Any, Any]) -> None:
        """The answer is the work's result."""
        task = self._task = asyncio.get_running_loop().create_task(self._answered(work))
        self._loop._tasks.add(task)
        task.add_done_callback(partial(self._ended, work))

    @property
    def may_be_withdrawn(self) -> bool:
        return not self.answer.done or (self._undo is not None and self.answer.given)

    def withdraw(self) -> None:
        """The thread that waited is gone."""
        self._withdrawn = True
        if self._undo is not None and self.answer.given:
            self._undo(self.answer.result)
        elif self._task is not None:
            self._task.cancel()

    async def _answered(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            # Also SystemExit, which would end the loop and not the thread that waits.
            self.answer.fail(error)
        else:
            self.answer.give(result)
            if self._withdrawn and self._undo is not None:
                # It was too late to cancel it.
                self._undo(result)

    def _ended(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[Any]) -> None:
        self._loop._tasks.discard(task)
        work.close()  # Cancelled before its first step, it was never begun.
        self.answer.fail(NotConnected("this client was closed while it was asked"))


def _new_loop() -> asyncio.AbstractEventLoop:
    """Raises OSError."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.SelectorEventLoop(system_selector()) if threads_are_greenlets() else asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop
