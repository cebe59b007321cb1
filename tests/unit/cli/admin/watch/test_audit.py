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

    def __init__(self, pipe: io.BytesIO) -> None:
        self._pipe = pipe
        self._answers = iter([{"position": "1.0"}, {"records": [{"operation": "login"}], "next": "1.9"}])
        self.seen = b""

    async def admin(self, verb: str, **arguments: Any) -> Any:
        for answer in self._answers:
            return answer
        self.seen = self._pipe.getvalue()
        raise KeyboardInterrupt


def test_a_record_is_in_the_pipe_before_the_next_one_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.BytesIO()
    broker = AuditedBroker(pipe)

    def call(url: str, timeout: float, work: Callable[[Any], Awaitable[None]]) -> None:
        anyio.run(work, broker)

    monkeypatch.setattr(audit, "call", call)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(pipe))
    audit.follow(json=True)
    assert broker.seen == b'{"operation":"login"}\n'
