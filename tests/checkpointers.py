"""Checkpointers of brokers within the process of a test: forked from one that has imported all that they use. An
interpreter of its own for each takes longer to start than most of these tests. Tests of that process have real ones."""

import contextlib
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from tests.crash.forked_command import CONTEXT, ForkedProcess
from vibemq.storage.lmdb.checkpoint import checkpointer, checkpointer_process

_TESTS_PID = os.getpid()
ROOT = Path(__file__).parents[1]


class ForkedCheckpointer(ForkedProcess):
    """What a `CheckpointerLink` uses of the real one."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], **options: Any) -> None:
        arguments = tuple(command[command.index(checkpointer.__name__) + 1 :])
        orders, stdin = CONTEXT.Pipe(duplex=False)
        stdout, answers = CONTEXT.Pipe(duplex=False)
        with orders, stdin, stdout, answers:
            given = (arguments, dict(env), os.getcwd(), orders, answers)
            super().__init__("checkpointer", _become, given, daemon=False)
            self.stdin: IO[str] = open(os.dup(stdin.fileno()), "w", encoding="utf-8")  # noqa: SIM115
            self.stdout: IO[str] = open(os.dup(stdout.fileno()), encoding="utf-8")  # noqa: SIM115
        # It ends with its input. Else the end of this process would wait for it with the input open.
        multiprocessing.process._children.discard(self._process)  # type: ignore[attr-defined]

    def kill(self) -> None:
        self._process.kill()


def begin_to_fork() -> None:
    """The process that forks has imported all when this returns: else the storage thread of some broker would wait for
    it. The names of what it imports are those of the repository's root."""
    with contextlib.chdir(ROOT):
        first = CONTEXT.Process(target=int)
        first.start()
        first.join()


@contextmanager
def forked_checkpointers() -> Iterator[None]:
    real = checkpointer_process.subprocess
    forked = SimpleNamespace(PIPE=real.PIPE, TimeoutExpired=real.TimeoutExpired, Popen=_begin)
    checkpointer_process.subprocess = forked  # type: ignore[assignment]
    try:
        yield
    finally:
        checkpointer_process.subprocess = real


def _begin(command: Sequence[str], **options: Any) -> Any:
    """What a test has forked has no part in the process that forks."""
    begin = ForkedCheckpointer if os.getpid() == _TESTS_PID else subprocess.Popen
    return begin(command, **options)


def _become(
    arguments: Sequence[str], environment: Mapping[str, str], folder: str, orders: Connection, answers: Connection
) -> None:
    """In the child. Ends with its exit code."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.stdin, sys.stdout = open(orders.fileno()), open(answers.fileno(), "w")  # noqa: SIM115
    sys.exit(checkpointer.main(list(arguments)))
