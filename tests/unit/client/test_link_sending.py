"""Whoever writes as long as the link has something comes to an end, whatever is noted and whatever has happened."""

from collections.abc import Callable
from typing import Any

import pytest

from vibemq.client.address import ClientSettings
from vibemq.client.link import ClientLink
from vibemq.client.protocol import ClientProtocol
from vibemq.client.receiving.options import SubscribeOptions
from vibemq.client.subscription import Subscription
from vibemq.errors import ClientForked

pytestmark = pytest.mark.anyio


def mark(link: ClientLink) -> None:
    subscription: Subscription[Any] = Subscription(link, SubscribeOptions(queue="q"), None)
    link.subscriptions[subscription.id] = subscription
    link.mark(subscription)


NOTED: dict[str, Callable[[ClientLink], None]] = {
    "a settlement": mark,
    "a goodbye": ClientLink.goodbye,
    "a ping": ClientLink.ping,
    "nothing": lambda link: None,
}
HAPPENED: dict[str, Callable[[ClientLink], None]] = {
    "nothing": lambda link: None,
    "offline": lambda link: link.offline(1.0, "of the test"),
    "forked": lambda link: link.forget_inherited(lambda: ClientForked("of the test")),
}


@pytest.mark.parametrize("happened", HAPPENED)
@pytest.mark.parametrize("noted", NOTED)
async def test_there_is_an_end_of_what_there_is_to_send(noted: str, happened: str) -> None:
    link = ClientLink(ClientSettings(), now=0.0)
    link.online(ClientProtocol(link.settings), 0.0)
    NOTED[noted](link)
    HAPPENED[happened](link)
    for _ in range(3):
        link.data_to_send(2.0)
    assert not link.has_data_to_send
    assert link.data_to_send(2.0) == b""
