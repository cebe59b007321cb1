"""`vibemq-admin audit follow` as a part of a pipeline."""

import io
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from vibemq.cli.admin.watch import audit


class AuditedBroker:
    """Has one record, and looks what has come out of the pipe when it is asked for more."""

    def __init__(self, pipe: io.BytesIO, record: dict[str, Any]) -> None:
        self._pipe = pipe
        self._answers = iter([{"position": "1.0"}, {"records": [record], "next": "1.9"}])
        self.seen = b""

    async def admin(self, verb: str, **arguments: Any) -> Any:
        for answer in self._answers:
            return answer
        self.seen = self._pipe.getvalue()
        raise KeyboardInterrupt


def followed(monkeypatch: pytest.MonkeyPatch, record: dict[str, Any], *, json: bool) -> bytes:
    """What `audit follow` has printed of this record when it asks for the next one."""
    pipe = io.BytesIO()
    broker = AuditedBroker(pipe, record)

    def call(url: str, timeout: float, work: Callable[[Any], Awaitable[None]]) -> None:
        anyio.run(work, broker)

    monkeypatch.setattr(audit, "call", call)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe, encoding="utf-8"))
    audit.follow(json=json)
    return broker.seen


def test_a_record_is_in_the_pipe_before_the_next_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert followed(monkeypatch, {"operation": "login"}, json=True) == b'{"operation":"login"}\n'


def test_a_record_is_one_line_that_steers_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    record = {
        "at": 0,
        "user": "",
        "address": "[::1]:5",
        "protocol": "native",
        "operation": "connections.close",
        "resource": "\x1b]0;mine\x07\nall is well",
        "outcome": "failed",
        "count": None,
    }
    line = followed(monkeypatch, record, json=False).decode()
    assert line.rstrip() == ("–  –  [::1]:5  native  connections.close  \\x1b]0;mine\\x07\\nall is well  failed")
    assert line.count("\n") == 1
