"""Servers under measurement: started on loopback in a folder of their own, and ended with it."""

import os
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from bench.common.reaper import Reaper

START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.02


class ServerFailed(Exception):
    """A server did not start; the sentence says which and what it said last."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to start one server."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    user: str = ""
    """Whom to run as when we are root; PostgreSQL refuses root."""
    companions: list[list[str]] = field(default_factory=list)
    """Commands that have to run beside it, started first."""


class Server:
    """One running server: the processes of its plan, each leader of a group of its own."""

    def __init__(self, name: str, plan: Plan, folder: Path, port: int, reaper: Reaper) -> None:
        self.name = name
        self.folder = folder
        self.port = port
        self._reaper = reaper
        self._log_path = folder.with_name(f"{folder.name}.log")
        self._processes: list[subprocess.Popen[bytes]] = []
        with self._log_path.open("ab") as log:
            for argv in (*plan.companions, plan.argv):
                self._processes.append(self._spawn(argv, plan, log))

    @property
    def pids(self) -> list[int]:
        return [process.pid for process in self._processes]

    def wait_until_open(self) -> None:
        """
        Raises:
            ServerFailed: it ended, or its port stayed closed.
        """
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self._processes[-1].poll() is not None:
                raise ServerFailed(f"{self.name} ended with {self._processes[-1].returncode}; {self._last_words()}")
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                return
            except OSError:
                time.sleep(POLL_S)
        raise ServerFailed(f"{self.name} was not ready within {START_TIMEOUT_S:.0f} s; {self._last_words()}")

    def kill(self) -> None:
        """kill -9, keeping the folder."""
        for process in self._processes:
            self._kill_group(process)

    def stop(self) -> None:
        for process in reversed(self._processes):
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                pass
            self._kill_group(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _kill_group(self, process: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        self._reaper.ended(process.pid)

    def _spawn(self, argv: list[str], plan: Plan, log: IO[bytes]) -> subprocess.Popen[bytes]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("VIBEMQ_")}
        user = plan.user if plan.user and os.getuid() == 0 else None
        process = subprocess.Popen(
            argv,
            cwd=self.folder,
            env={**clean, **plan.environment},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            user=user,
        )
        self._reaper.begun(process.pid)
        return process

    def _last_words(self) -> str:
        lines = [line for line in self._log_path.read_text(errors="replace").splitlines() if line.strip()]
        return f"its last words: {lines[-1][:300]}" if lines else "it said nothing"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
