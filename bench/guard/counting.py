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
    """What others have left behind may run code of its own when it is collected."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
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


def _traced(work: Callable[[], object]) -> "Counter[CodeType]":
    executed: Counter[CodeType] = Counter()

    def step(frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "opcode":
            executed[frame.f_code] += 1
        return step

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return step

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        work()
    finally:
        sys.settrace(before)
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
