"""`vibemq` and `vibemq-admin` in processes of their own, forked from one that has imported everything: imports cost
more than all else that a broker does to start."""

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Protocol

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


class ForkedCommand(ForkedProcess):
    """One run of a command. It has the environment and the directory of whoever starts it, and reads no input."""

    def __init__(self, words: Sequence[str], log: Path) -> None:
        """`words` of the command line, with the program. `log`: to which its standard error is appended."""
        log.touch()
        reader, writer = CONTEXT.Pipe(duplex=False)
        with reader, writer:
            # Should this process end first, its brokers end too.
            arguments = (tuple(words), dict(os.environ), os.getcwd(), writer, str(log))
            super().__init__(" ".join(words), _become, arguments, daemon=True)
            self.stdout: IO[str] | None = open(os.dup(reader.fileno()), encoding="utf-8")  # noqa: SIM115


def _become(words: tuple[str, ...], environment: dict[str, str], folder: str, output: Connection, log: str) -> None:
    """In the child. Ends with the command's SystemExit."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for number, place in ((1, output.fileno()), (2, file)):
        os.dup2(place, number)
    os.close(file)
    output.close()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = list(words)
    cli.run() if words[0] == "vibemq" else cli.run_admin()
