"""What a subscription does without a connection."""

from collections.abc import Callable
from typing import Any

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.subscription import SubscribeOptions, Subscription

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_whoever_watches_may_be_taken_away_at_any_moment() -> None:
    """By the thread that removes the subscription from an inbox."""
    told = []

    class Removed(Subscription[Any]):
        reads = 0

        def __getattribute__(self, name: str) -> Any:
            if name == "watch":
                self.reads += 1
                watch: Callable[[], None] | None = None if self.reads > 1 else lambda: told.append("changed")
                return watch
            return super().__getattribute__(name)

    Removed(ClientLink(ClientSettings(), now=0.0), SubscribeOptions(queue="q"), None).established(1)
    assert told == ["changed"]
