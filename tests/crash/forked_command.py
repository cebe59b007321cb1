"""`vibemq` and `vibemq-admin` in processes of their own, forked from one that has imported everything: imports cost
more than all else that a broker does to start."""

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import IO, Protocol

from tests.crash.spare_checkpointer import keep_a_spare_checkpointer
from vibemq import cli

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.crash.imported"])


class Child(Protocol):
    """A process of this one's, however it was started."""

    @property
    def pid(self) -> int: ...
    @property
    def stdout(self) -> IO[str] | None: ...
    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def send_signal(self, sig: int) -> None: ...


class ForkedProcess:
    """Is a `Child` but for its output."""

    def __init__(self, what: str, target: Callable[..., None], arguments: tuple[object, ...], *, daemon: bool) -> None:
        """`what`: for errors. `daemon`: it ends when this process ends."""
        self._process = CONTEXT.Process(target=target, args=arguments, name=what, daemon=daemon)
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        """Exit code; of a signal its negative number. Raises TimeoutExpired."""
        self._process.join(timeout)
        code = self.poll()
        if code is None:
            raise subprocess.TimeoutExpired(self._process.name, timeout or 0)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkedCommand(ForkedProcess):
    """One run of a command. It has the directory of whoever starts it, and reads no input."""

    def __init__(
        self, words: Sequence[str], log: Path | None = None, *, environment: Mapping[str, str] | None = None
    ) -> None:
        """`words` of the command line, with the program. `log`: to which its standard error is appended; without one
        it is read from `stderr`. `environment`: by default that of whoever starts it."""
        self.stdout: IO[str] | None
        self.stderr: IO[str] | None = None
        self.stdout, output = _pipe()
        if log is None:
            self.stderr, errors = _pipe()
        else:
            log.touch()
            errors = Connection(os.open(log, os.O_WRONLY | os.O_APPEND), readable=False)
        with output, errors:
            variables = dict(os.environ if environment is None else environment)
            arguments = (tuple(words), variables, os.getcwd(), output, errors)
            # Should this process end first, its brokers end too.
            super().__init__(" ".join(words), _become, arguments, daemon=True)

    def communicate(self) -> tuple[str, str]:
        """What it still says, until it has ended."""
        assert self.stdout is not None
        assert self.stderr is not None
        printed: list[str] = []
        reader = Thread(target=lambda out: printed.append(out.read()), args=(self.stdout,))
        with self.stdout, self.stderr:
            reader.start()
            said = self.stderr.read()
            reader.join()
            self.wait()
        return printed[0], said


def _pipe() -> tuple[IO[str], Connection]:
    """(the end to read, the end to write)"""
    reader, writer = CONTEXT.Pipe(duplex=False)
    with reader:
        return open(os.dup(reader.fileno()), encoding="utf-8"), writer


def _become(
    words: tuple[str, ...], environment: dict[str, str], folder: str, output: Connection, errors: Connection
) -> None:
    """In the child. Ends with the command's SystemExit."""
    for number, file in ((1, output), (2, errors)):
        os.dup2(file.fileno(), number)
        file.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(words)
    if words[:2] == ("vibemq", "serve") and not {"sqlite", "memory"} & set(words):
        keep_a_spare_checkpointer()
    cli.run() if words[0] == "vibemq" else cli.run_admin()
