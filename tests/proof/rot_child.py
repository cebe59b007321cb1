"""Many pieces of work in one forked child, and a new one from where the last one died."""

import faulthandler
import gc
import os
import pickle
import signal
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import IO, TypeVar

from tests.proof.forked import ChildDied, fork

T = TypeVar("T")
R = TypeVar("R")
_SIZE = struct.Struct("!Q")
ALARM_S = 40
"""A child that works for ever on one piece is ended."""


def map_in_forks(work: Callable[[T], R], items: Sequence[T], *, per_child: int = 64) -> Iterator[R | Exception]:
    """What `work` answers or raises for each item, in order; `ChildDied` for one that killed its child.

    A child that an exception came out of answers nothing more: what it left open must not spoil the next piece. Call it
    without threads around; leave the iterator alone or run it to its end.
    """
    at = 0
    while at < len(items):
        for answer in _one_child(work, items[at : at + per_child]):
            at += 1
            yield answer


def _one_child(work: Callable[[T], R], items: Sequence[T]) -> Iterator[R | Exception]:
    pid, ours = fork(lambda pipe: _child(work, items, pipe))
    answered, failed, ended = 0, False, False
    try:
        with open(ours, "rb") as pipe:
            while data := _read(pipe):
                answer = pickle.loads(data)
                answered += 1
                failed = isinstance(answer, Exception)
                yield answer
            ended = True
    finally:
        if not ended:
            # Nobody waits for the other answers.
            os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if answered < len(items) and not failed:
        yield ChildDied(f"the child ended with code {code}", code)


def _read(pipe: IO[bytes]) -> bytes:
    """One pickled answer; b"" when the child has ended."""
    head = pipe.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return b""
    size = _SIZE.unpack(head)[0]
    data = pipe.read(size)
    return data if len(data) == size else b""


def _child(work: Callable[[T], R], items: Sequence[T], pipe: int) -> None:
    """Never returns."""
    # What the parent has would only be touched, and so copied.
    gc.freeze()
    # The parent tells of a death better than a page of frames.
    faulthandler.disable()
    try:
        for item in items:
            signal.alarm(ALARM_S)
            try:
                answer: object = work(item)
            except Exception as error:
                _write(pipe, RuntimeError(f"{type(error).__name__}: {error}"))
                break
            _write(pipe, answer)
    finally:
        # Not sys.exit: nothing of the parent's may be flushed or closed twice.
        os._exit(0)


def _write(pipe: int, answer: object) -> None:
    data = pickle.dumps(answer)
    left = memoryview(_SIZE.pack(len(data)) + data)
    while left:
        left = left[os.write(pipe, left) :]
