"""Counts what Python executes: the same on every machine, however busy, for one version of Python."""

import gc
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any


def calls(work: Callable[[], object]) -> int:
    """Calls of Python functions, and of C functions by Python code."""
    number = 0

    def note(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal number
        if event in ("call", "c_call"):
            number += 1

    before = sys.getprofile()
    with _no_collection():
        sys.setprofile(note)
        try:
            work()
        finally:
            sys.setprofile(before)
    return number


@contextmanager
def _no_collection() -> Iterator[None]:
    """What others have left behind may run code of its own when it is collected. It is left behind until the end:
    collecting it first would look through all that the process holds, which in a run of all tests is a million objects.
    """
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def instructions(work: Callable[[], object]) -> Counter[str]:
    """Bytecode instructions by function."""
    # From 3.12 on tracing misses the instructions of some frames, and there is something better.
    with _no_collection():
        executed = _monitored(work) if sys.version_info >= (3, 12) else _traced(work)
    named: Counter[str] = Counter()
    for code, number in executed.items():
        named[f"{code.co_filename}:{code.co_qualname}"] += number
    return named


class _Steps:
    """Counts the instructions of one function. A closure's own variable, since the hash of a code object is that of all
    its constants, which would be most of what is done for an instruction."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        number = 0

        def step(_frame: FrameType, event: str, _argument: Any) -> None:
            nonlocal number
            if event == "opcode":
                number += 1

        self.step = step
        self.number = lambda: number


def _traced(work: Callable[[], object]) -> "Counter[CodeType]":
    entered: dict[int, _Steps] = {}

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        code = frame.f_code
        steps = entered.get(id(code))
        if steps is None:
            steps = entered[id(code)] = _Steps(code)
        return steps.step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
    executed: Counter[CodeType] = Counter()
    for steps in entered.values():
        executed[steps.code] += steps.number()
    return executed


def _monitored(work: Callable[[], object]) -> "Counter[CodeType]":
    executed: Counter[CodeType] = Counter()
    monitoring: Any = getattr(sys, "monitoring")  # noqa: B009  # mypy looks at this file as Python 3.11

    def step(code: CodeType, _offset: int) -> None:
        executed[code] += 1

    monitoring.use_tool_id(monitoring.PROFILER_ID, "vibemq hot path")
    try:
        monitoring.register_callback(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION, step)
        monitoring.set_events(monitoring.PROFILER_ID, monitoring.events.INSTRUCTION)
        work()
    finally:
        monitoring.set_events(monitoring.PROFILER_ID, 0)
        monitoring.free_tool_id(monitoring.PROFILER_ID)
    return executed
