"""Interrupts a call at each moment in turn at which a signal's handler may raise."""

import sys
from collections.abc import Callable, Iterator
from dis import opname
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import vibemq

OURS = str(Path(vibemq.__file__).parent)


class Interrupted(BaseException):
    """What the handler raises."""


def interrupted(work: Callable[[], object]) -> Iterator[int]:
    """Each step runs the work anew and interrupts it one moment later than before, in this thread. It ends with the run
    that comes to its end."""
    for wanted in count(1):
        if not _Interruption(wanted).comes_in(work):
            return
        yield wanted


class _Interruption:
    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._moments = 0
        self._calling: FrameType | None = None
        """A frame that has begun a call, unless the call has begun a frame of its own."""

    def comes_in(self, work: Callable[[], object]) -> bool:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            work()
        except Interrupted:
            return True
        finally:
            sys.settrace(before)
        return False

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        if event == "call":
            self._calling = None
            if not frame.f_code.co_filename.startswith(OURS):
                return None
            frame.f_trace_opcodes = True
            self._comes()
        elif event == "opcode":
            name = opname[frame.f_code.co_code[frame.f_lasti]]
            if self._calling is frame or name.startswith("JUMP_BACKWARD"):
                self._comes()
            self._calling = frame if name.startswith("CALL") else None
        return self._trace

    def _comes(self) -> None:
        """The interpreter looks for signals when a function begins, in loops, and after calls of what is written in C.
        The result of these is nowhere but on its stack then."""
        self._moments += 1
        if self._moments == self._wanted:
            sys.settrace(None)
            raise Interrupted
