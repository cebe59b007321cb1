"""Taking a few messages without keeping a subscription: what `Client.fetch` does.

A subscription with just so much credit, ended as soon as something is there. What the broker has handed out by then
arrives before it confirms the end, so no message is left behind in a pipe.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import anyio

from vibemq.client.link import ClientLink
from vibemq.client.message import Message
from vibemq.client.receiving.options import SubscribeOptions, check_wait
from vibemq.client.subscription import Subscription

T = TypeVar("T")


async def fetch(
    link: ClientLink, options: SubscribeOptions, timeout: float, validate: Callable[[bytes], Any] | None
) -> list[Message[T]]:
    """At most `options.credit` messages: those there within `timeout` seconds, in one go; [] when none came.

    Cancelling it gives back, unharmed, whatever was already on its way.
    """
    check_wait(timeout)
    deadline = anyio.current_time() + timeout
    with anyio.move_on_at(deadline):
        await link.connected()
    link.check()
    if link.protocol is None:
        return []
    subscription: Subscription[T] = Subscription(link, options, validate)
    try:
        # Asking takes a round trip even when nobody wants to wait.
        with anyio.move_on_at(deadline + link.settings.command_timeout) as asking:
            await subscription.start()
            with anyio.move_on_at(deadline):
                await subscription.arrival()
            subscription.check()
            left = subscription.leave(release=False)
            if left is not None and subscription.buffered != options.credit:
                await left.wait()
    except BaseException:
        subscription.abandon()
        raise
    if asking.cancelled_caught and not subscription.buffered:
        # What is still on its way comes too late for this call, and must not be lost with it.
        subscription.abandon()
    return subscription.take_buffered()
