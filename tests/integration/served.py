"""A broker in a process of its own that has settings from the environment, and whose log is read from a pipe."""

import json
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Any, Protocol

from tests.crash.forked_command import Child, ForkedCommand
from tests.waiting import killed_if_late

WORDS = ("serve", "--port", "0", "--http-port", "0", "--storage", "sqlite")


class Piped(Child, Protocol):
    @property
    def stderr(self) -> IO[str] | None: ...
    def kill(self) -> None: ...
    def terminate(self) -> None: ...
    def communicate(self) -> tuple[str, str]: ...


class Served:
    """Is started when it is made, and ready when it has been made."""

    def __init__(self, data_dir: Path, **environment: str) -> None:
        self._ended: tuple[int, str] | None = None
        self.process = self._start([*WORDS, "--data-dir", str(data_dir)], os.environ | environment)
        assert self.process.stdout is not None
        self.events: list[dict[str, Any]] = []
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            if self.events[-1]["event"] == "ready":
                break
        else:
            raise AssertionError(f"the broker did not start: {self.end()[1]}")
        self.ports = {event["protocol"]: event["port"] for event in self.events if event["event"] == "listening"}

    def _start(self, words: list[str], environment: dict[str, str]) -> Piped:
        return ForkedCommand(["vibemq", *words], environment=environment)

    @property
    def url(self) -> str:
        return f"vibemq://127.0.0.1:{self.ports['native']}"

    def get(self, path: str, **headers: str) -> tuple[int, str, str]:
        """(status, content type, body)"""
        request = urllib.request.Request(f"http://127.0.0.1:{self.ports['http']}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers["content-type"], answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers["content-type"], error.read().decode()

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """(exit code, the rest of the log); fine to call again."""
        if self._ended is None:
            self.process.send_signal(number)
            with killed_if_late(self.process):
                _, log = self.process.communicate()
            self._ended = self.process.wait(), log
        return self._ended
