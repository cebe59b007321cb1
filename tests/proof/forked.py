"""Work in a forked child: a store that is opened there can crash, leak or hang without harm to anybody."""

import gc
import os
import pickle
import select
import signal
import sys
import warnings
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
CHILD_TIMEOUT_S = 60.0


class ChildDied(Exception):
    """The sentence says how; `code` is that of `os.waitstatus_to_exitcode`."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


def in_fork(work: Callable[[], T]) -> T:
    """What `work` returns in a child, pickled back. Call it without threads and event loops around.

    Raises:
        ChildDied: killed by a signal (SIGBUS, say), or by the timeout.
        Exception: whatever `work` raised.
    """
    pid, ours = fork(lambda pipe: _child(work, pipe))
    try:
        data = _read_all(ours, pid)
    finally:
        os.close(ours)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if not data:
        raise ChildDied(f"the child ended with code {code} and said nothing", code)
    outcome = pickle.loads(data)
    if isinstance(outcome, _Raised):
        raise outcome.error
    result: T = outcome.value
    return result


def fork(child: Callable[[int], object]) -> tuple[int, int]:
    """(pid, the end of a pipe to read) of a child that runs `child` with the other end, and must not come back."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Newer interpreters warn about threads, and a test runner has some.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        os.close(ours)
        child(theirs)
    os.close(theirs)
    return pid, ours


class _Returned:
    def __init__(self, value: object) -> None:
        self.value = value


class _Raised:
    def __init__(self, error: Exception) -> None:
        self.error = error


def _child(work: Callable[[], object], pipe: int) -> None:
    """Never returns."""
    # It would only touch, and so copy, what the parent has.
    gc.disable()
    try:
        try:
            outcome: object = pickle.dumps(_Returned(work()))
        except Exception as error:
            outcome = pickle.dumps(_Raised(_told(error)))
        data = memoryview(bytes(outcome))  # type: ignore[call-overload]
        while data:
            data = data[os.write(pipe, data) :]
    finally:
        # Not sys.exit: nothing of the parent's may be flushed or closed twice.
        os._exit(0)


def _told(error: Exception) -> Exception:
    """An error that survives pickling: its class may take other arguments than its sentence."""
    return RuntimeError(f"{type(error).__name__}: {error}")


def _read_all(pipe: int, pid: int) -> bytes:
    pieces: list[bytes] = []
    while True:
        if not select.select([pipe], [], [], CHILD_TIMEOUT_S)[0]:
            os.kill(pid, signal.SIGKILL)
            return b""
        piece = os.read(pipe, 1 << 20)
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
