"""`vibemq-admin message rm` of what is found in several requests."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from vibemq.cli.admin import message
from vibemq.cli.exits import PartlyDone
from vibemq.errors import NotConnected


class LostBroker:
    """Removes two messages, and is gone."""

    def __init__(self) -> None:
        self._answers = iter([{"removed": [1, 2], "in_flight": [], "missing": [], "matched": [], "next": 3}])

    async def queue_info(self, queue: str) -> Any:
        return object()

    async def admin(self, verb: str, **arguments: Any) -> Any:
        for answer in self._answers:
            return answer | {"incarnation": "i"}
        raise NotConnected("the broker is gone")


def test_what_was_removed_before_the_broker_was_lost_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def call(url: str, timeout: float, work: Callable[[Any], Awaitable[Any]]) -> Any:
        return anyio.run(work, LostBroker())

    monkeypatch.setattr(message, "call", call)
    with pytest.raises(PartlyDone, match=r"2 messages removed, then: .*gone; run the same command again"):
        message.remove("q", ids=["m"], yes=True, json=True)
