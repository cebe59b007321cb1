"""Brokers and commands forked from one process that has imported everything: the same code, quickly started.

`python -m tests.proof.warm` reads one JSON order per line and answers with one:

    {"argv": [...], "env": {...}, "out": path, "err": path}     -> {"pid": number}
    {"poll": pid}                                               -> {"code": number or null}; -9 for a kill
"""

import ctypes
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from tests.proof import shim
from tests.proof.contents import plugin_of

START_TIMEOUT_S = 60.0
POLL_S = 0.003


class WarmBrokers:
    """The process to fork from. Made by `warm_brokers`; orders are answered one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._number = 0
        environment = {**os.environ, "LD_PRELOAD": str(shim.library())}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.proof.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=Path(__file__).parents[2],
        )

    def start(
        self, data_dir: Path, *options: str, port: int = 0, environment: dict[str, str] | None = None
    ) -> "WarmBroker":
        """A broker that may or may not become ready; see `WarmBroker.wait_ready`."""
        words = ("serve", "--data-dir", str(data_dir), "--port", str(port), "--no-http", *options)
        return self._begin("vibemq", words, environment or {})

    def admin(self, *words: object, environment: dict[str, str] | None = None) -> "WarmBroker":
        """A command of `vibemq-admin`, under way."""
        return self._begin("vibemq-admin", tuple(map(str, words)), environment or {})

    def _begin(self, program: str, words: tuple[str, ...], environment: dict[str, str]) -> "WarmBroker":
        self._number += 1
        out, err = self.folder / f"warm-{self._number}.out", self.folder / f"warm-{self._number}.log"
        order = {"argv": [program, *words], "env": environment, "out": str(out), "err": str(err)}
        pid = int(self._ask(order)["pid"])
        return WarmBroker(self, pid, out, err)

    def poll(self, pid: int) -> int | None:
        code: int | None = self._ask({"poll": pid})["code"]
        return code

    def close(self) -> None:
        """Kill what lives."""
        self._process.communicate()

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


class WarmBroker:
    """The process of one broker, or of one command, which is never ready."""

    def __init__(self, owner: WarmBrokers, pid: int, out: Path, err: Path) -> None:
        self._owner = owner
        self._out = out
        self._err = err
        self.pid = pid
        self._end = os.pidfd_open(pid)
        """Readable once the process has ended; asking its parent instead costs more than the wait."""
        self.code: int | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.port}"

    @property
    def is_alive(self) -> bool:
        return not self._has_ended(0.0)

    def _has_ended(self, timeout_s: float) -> bool:
        if self.code is None and select.select([self._end], [], [], timeout_s)[0]:
            self.code = self._owner.poll(self.pid)
            os.close(self._end)
        return self.code is not None

    def is_ready(self) -> bool:
        """Whether it has said so."""
        for line in self._out.read_text().splitlines() if self._out.exists() else ():
            event = json.loads(line)
            if event.get("protocol") == "native":
                self.port = event["port"]
            if event["event"] == "ready":
                return True
        return False

    def wait_ready(self) -> bool:
        """Whether it got there; False when it ended before."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            alive = self.is_alive
            if self.is_ready():
                return True
            if not alive:
                return False
            time.sleep(POLL_S)
        raise TimeoutError(f"a broker was not ready within {START_TIMEOUT_S} s: {self.log_text()}")

    def signal(self, number: int) -> None:
        if self.is_alive:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = START_TIMEOUT_S) -> int:
        """Exit code, -9 after a kill. Raises TimeoutError."""
        if not self._has_ended(timeout_s):
            raise TimeoutError(f"a broker did not end within {timeout_s} s: {self.log_text()}")
        assert self.code is not None
        return self.code

    def kill(self) -> int:
        self.signal(signal.SIGKILL)
        return self.wait()

    def out_text(self) -> str:
        return self._out.read_text(errors="replace")

    def log_text(self) -> str:
        return self._err.read_text(errors="replace")[-4000:] if self._err.exists() else ""

    def forget(self) -> None:
        """Delete what it said."""
        for path in (self._out, self._err):
            path.unlink(missing_ok=True)


@contextmanager
def warm_brokers(folder: Path) -> Iterator[WarmBrokers]:
    """Logs go to `folder`. What still lives at the end is killed."""
    brokers = WarmBrokers(folder)
    try:
        yield brokers
    finally:
        brokers.close()


# -- the process that forks -----------------------------------------------------------------------------------------


def main() -> None:
    import_everything()
    living: set[int] = set()
    for line in sys.stdin:
        order = json.loads(line)
        if "poll" in order:
            answer = {"code": _poll(order["poll"])}
            if answer["code"] is not None:
                living.discard(order["poll"])
        else:
            pid = os.fork()
            if not pid:
                _serve(order)
            living.add(pid)
            answer = {"pid": pid}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    # Whoever gave the orders is gone, perhaps killed: nothing of this may stay behind.
    for pid in living:
        os.kill(pid, signal.SIGKILL)


USED = ("auth", "cli", "client", "operations", "protocols", "server", "storage", "web")
"""Packages of which brokers and commands import most modules, many of them only when they open a listener or connect.
"""

IMPORTED_LATE = (
    "anyio._backends._asyncio",
    "anyio._core._sockets",
    "encodings.idna",
    "typer._adapters",
    "uvicorn",
    "uvloop",
)
"""By others, where a loop begins, an address is looked up, or a command line is read."""


def import_everything() -> None:
    """What is imported stays: no collection in a child looks through it."""
    from vibemq.config import Settings

    for package in USED:
        folder = import_module(f"vibemq.{package}")
        for module in walk_packages(folder.__path__, f"{folder.__name__}."):
            if not module.name.endswith(".__main__"):
                import_module(module.name)
    for provider in ("lmdb", "sqlite"):
        plugin_of(provider)
    Settings.model_rebuild()
    for module in IMPORTED_LATE:
        with suppress(ImportError):
            import_module(module)
    gc.collect()
    gc.freeze()


def _poll(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _serve(order: dict[str, Any]) -> None:
    """In the child: become a broker. Never returns."""
    for number, path in ((1, order["out"]), (2, order["err"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, number)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.environ.update(order["env"])
    # The shim was loaded into the parent without its variables.
    ctypes.CDLL(None).proof_begin()
    from vibemq.cli.admin.main import run as run_admin
    from vibemq.cli.main import run

    sys.argv = order["argv"]
    (run if sys.argv[0] == "vibemq" else run_admin)()


if __name__ == "__main__":
    main()
