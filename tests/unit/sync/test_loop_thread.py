"""The loop of a blocking client, and the way into it."""

import asyncio
import errno
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import pytest

from vibemq.errors import ClientForked, LocalProtocolError, NotConnected
from vibemq.sync import loop_thread
from vibemq.sync.loop_thread import Answer, LoopThread


@pytest.fixture
def loop() -> Iterator[LoopThread]:
    loop = LoopThread("of-a-test")
    yield loop
    loop.close()


async def doubled(number: int) -> int:
    await asyncio.sleep(0)
    return 2 * number


async def for_ever() -> None:
    await asyncio.Event().wait()


def test_an_answer_is_forgotten_when_it_is_given(loop: LoopThread) -> None:
    """Also one that is given long after its call, as that of a publish."""
    for number in range(100):
        assert loop.call_with_answer(lambda answer, n=number: loop._loop.call_soon(answer.give, n)) == number
        with pytest.raises(ZeroDivisionError):
            loop.call_with_answer(lambda answer: loop._loop.call_soon(answer.fail, ZeroDivisionError()))
    assert loop.call(lambda: len(loop._open)) == 1  # That of this call.
    assert not loop._open


def test_functions_and_coroutines_are_answered(loop: LoopThread) -> None:
    assert loop.call(threading.current_thread).name == "of-a-test"
    assert loop.call(doubled, 21) == 42


def test_errors_come_back(loop: LoopThread) -> None:
    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise KeyError("later")

    with pytest.raises(ValueError, match="invalid literal"):
        loop.call(int, "x")
    with pytest.raises(KeyError, match="later"):
        loop.call(fail_later)
    assert loop.call(doubled, 1) == 2


def test_posts_are_done_in_order_and_before_a_later_call(loop: LoopThread) -> None:
    seen: list[int] = []
    for number in range(1000):
        loop.post(lambda number=number: seen.append(number))  # type: ignore[misc]
    assert loop.call(lambda: list(seen)) == list(range(1000))


def test_an_answer_may_be_given_later(loop: LoopThread) -> None:
    def begin(answer: Answer) -> None:
        asyncio.get_running_loop().call_soon(answer.give, "later")

    assert loop.call_with_answer(begin) == "later"
    assert loop.call_with_answer(lambda answer: loop.run_in_task(answer, doubled(4))) == 8
    with pytest.raises(KeyError):
        loop.call_with_answer(lambda answer: answer.fail(KeyError("no")))


def test_many_threads(loop: LoopThread) -> None:
    results: list[int] = []

    def ask() -> None:
        results.extend(loop.call(doubled, number) for number in range(200))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == sorted(2 * number for number in range(200) for _ in range(8))


def test_the_loops_own_thread_does_not_wait_for_itself(loop: LoopThread) -> None:
    with pytest.raises(LocalProtocolError, match="would wait for itself"):
        loop.call(lambda: loop.call(doubled, 1))


def test_who_waits_when_it_is_closed_is_told(loop: LoopThread) -> None:
    told: list[BaseException] = []
    began = threading.Event()

    async def wait() -> None:
        began.set()
        await for_ever()

    def ask() -> None:
        try:
            loop.call(wait)
        except NotConnected as error:
            told.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    began.wait()
    loop.close()
    thread.join(60)
    assert [str(error) for error in told] == ["this client was closed while it was asked"]
    with pytest.raises(NotConnected, match="closed"):
        loop.call(doubled, 1)
    loop.close()


def test_an_interrupted_thread_cancels_what_it_waits_for(loop: LoopThread) -> None:
    handled: list[int] = []
    cancelled = threading.Event()

    def interrupted(*_: object) -> None:
        if not handled:
            handled.append(1)
            raise KeyboardInterrupt

    async def interrupt() -> None:
        try:
            # A signal that comes just before the thread begins to wait for its lock is not noticed until the next one.
            while not handled:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.sleep(0)
            await for_ever()
        finally:
            cancelled.set()

    before = signal.signal(signal.SIGINT, interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.call(interrupt)
        # Until then another signal may be on its way.
        assert cancelled.wait(60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert loop.call(doubled, 3) == 6


def test_a_handler_of_a_signal_may_use_it_at_any_moment(loop: LoopThread) -> None:
    """Also while the thread that it interrupts hands something over. Each call is interrupted once at most, so that it
    ends on a slow machine, too."""
    seen: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda *_: loop.post(lambda: seen.append(1)))
    try:
        for number in range(2000):
            signal.setitimer(signal.ITIMER_REAL, (1 + number % 200) / 1e6)
            assert loop.call(lambda number=number: number) == number  # type: ignore[misc]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert loop.call(lambda: list(seen))


HAND_OVER = LoopThread._hand_over.__code__
LINES = sorted({line for _, _, line in HAND_OVER.co_lines() if line is not None} - {HAND_OVER.co_firstlineno})


@pytest.mark.parametrize("wanted", LINES)
def test_a_handler_of_a_signal_waits_inside_a_hand_over(loop: LoopThread, wanted: int) -> None:
    """The handler comes where that line of it begins, in the same thread."""
    handled: list[int] = []

    def at_line(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code is not HAND_OVER:
            return None
        if event == "line" and frame.f_lineno == wanted and not handled:
            sys.settrace(None)
            handled.append(loop.call(doubled, 21))
        return at_line

    sys.settrace(at_line)
    try:
        assert loop.call(doubled, 1) == 2
    finally:
        sys.settrace(None)
    assert handled in ([], [42])


def test_an_exit_in_a_call_ends_neither_the_loop_nor_the_client(loop: LoopThread) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    for _ in range(3):
        with pytest.raises(SystemExit):
            loop.call(leave)
        with pytest.raises(SystemExit):
            loop.call(sys.exit, 3)
    assert loop.call(doubled, 2) == 4


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_breaks_answers_everybody(loop: LoopThread) -> None:
    def break_it() -> None:
        asyncio.get_running_loop().call_soon(sys.exit, 3)

    with pytest.raises(NotConnected, match="while it was asked"):
        loop.call_with_answer(lambda answer: break_it())
    for _ in range(3):
        with pytest.raises(NotConnected, match="closed"):
            loop.call(doubled, 1)
    loop.close()


def test_an_answer_that_nobody_gives_comes_with_the_end(loop: LoopThread) -> None:
    told: list[str] = []
    began = threading.Event()

    def ask() -> None:
        try:
            loop.call_with_answer(lambda answer: began.set())
        except NotConnected as error:
            told.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    began.wait()
    loop.close()
    thread.join(60)
    assert told == ["this client was closed while it was asked"]


def test_a_post_that_fails_is_logged_and_keeps_no_other_from_its_turn(
    loop: LoopThread, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[int] = []
    loop.post(lambda: int("x"))
    loop.post(lambda: seen.append(1))
    assert loop.call(lambda: list(seen)) == [1]
    assert "a call in the client's thread has failed" in caplog.text


def test_a_system_without_descriptors_refuses_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> asyncio.AbstractEventLoop:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("vibemq.sync.loop_thread._new_loop", refuse)
    with pytest.raises(NotConnected, match="cannot be made: Too many open files"):
        LoopThread("never")


def test_many_threads_close_it_while_others_ask() -> None:
    """Nobody waits for ever, whatever comes first."""
    for _ in range(30):
        loop, outcomes = LoopThread("short-lived"), Counter[str]()

        def ask(loop: LoopThread = loop, outcomes: "Counter[str]" = outcomes) -> None:
            try:
                while True:
                    loop.call(doubled, 1)
            except NotConnected:
                outcomes["told"] += 1

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        loop.close()
        for thread in threads:
            thread.join(60)
        assert outcomes["told"] == 4


def deep(depth: int, function: Callable[[], object]) -> object:
    return function() if depth == 0 else deep(depth - 1, function)


@pytest.mark.parametrize("kind", [asyncio.new_event_loop, loop_thread._new_loop])
def test_a_caller_deep_in_its_recursion_is_told_and_nothing_is_done(
    kind: Callable[[], asyncio.AbstractEventLoop], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it is that has no room left for a call, the caller does not wait for ever."""
    monkeypatch.setattr(loop_thread, "_new_loop", kind)
    loop, done, told = LoopThread("of-a-test"), list[int](), list[int]()

    def ask() -> None:
        for depth in range(sys.getrecursionlimit() - 80, sys.getrecursionlimit()):
            try:
                deep(depth, lambda depth=depth: loop.call(done.append, depth))  # type: ignore[misc]
            except RecursionError:
                told.append(depth)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert told
    assert sorted(done + told) == list(range(sys.getrecursionlimit() - 80, sys.getrecursionlimit()))
    assert loop.call(doubled, 21) == 42
    loop.close()


def test_closing_deep_in_a_recursion_is_told_and_can_be_repeated(loop: LoopThread) -> None:
    told: list[int] = []

    def close() -> None:
        for depth in range(sys.getrecursionlimit() - 1, sys.getrecursionlimit() - 40, -1):
            try:
                deep(depth, loop.close)
            except RecursionError:
                told.append(depth)

    thread = threading.Thread(target=close, daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert told
    loop.close()
    assert not loop._thread.is_alive()


def test_only_a_closed_loop_is_no_error(loop: LoopThread, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("of the test")

    with monkeypatch.context() as patch:
        patch.setattr(loop, "_loop", SimpleNamespace(call_soon_threadsafe=fail, is_closed=lambda: False))
        for use in (lambda: loop.call(done.append, 1), lambda: loop.post(lambda: done.append(1)), loop.close):
            with pytest.raises(RuntimeError, match="of the test"):
                use()
            loop._closed = False
        patch.setattr(loop, "_loop", SimpleNamespace(call_soon_threadsafe=fail, is_closed=lambda: True))
        with pytest.raises(NotConnected, match="closed"):
            loop.call(done.append, 1)
    assert loop.call(lambda: list(done)) == []


def test_in_a_child_it_is_the_parents(loop: LoopThread) -> None:
    other = LoopThread("of-the-parent")
    thread = other._thread
    other.abandon(None)
    for use in (lambda: other.call(doubled, 1), lambda: other.post(print)):
        with pytest.raises(ClientForked, match="connect in the child"):
            use()
    other._loop.call_soon_threadsafe(other._finish)
    thread.join(60)
