"""What tests of the command line do again and again."""

from collections.abc import Callable
from typing import Any

import pytest

from vibemq.cli.admin import main as admin_main
from vibemq.cli.entry import run_app

Run = Callable[..., tuple[int, list[Any], str]]
"""`vibemq … --json`: (exit code, objects on stdout, stderr)."""


def text(capture: pytest.CaptureFixture[bytes], *words: str) -> str:
    assert run_app(admin_main.app, "vibemq-admin", list(words)) == 0
    return capture.readouterr().out.decode()


def publish(vibemq: Run, queue: str, count: int, *more: str) -> None:
    code, _, err = vibemq("pub", queue, *[f'{{"n": {n}}}' for n in range(count)], *more)
    assert (code, err) == (0, "")


def bury(vibemq: Run, queue: str, count: int, reason: str = "broken") -> None:
    publish(vibemq, queue, count)
    code, found, _ = vibemq("sub", queue, "--count", count, "--reject", reason)
    assert (code, len(found)) == (0, count)


def info(vibemq: Run, queue: str) -> dict[str, Any]:
    _, (found,), _ = vibemq("admin", "queue", "info", queue)
    assert isinstance(found, dict)
    return found
