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
from vibemq.errors import ClientError, NotConnected, RequestTimeout

T = TypeVar("T")


async def fetch(
    link: ClientLink, options: SubscribeOptions, timeout: float, validate: Callable[[bytes], Any] | None
) -> list[Message[T]]:
    """At most `options.credit` messages: those there within `timeout` seconds, in one go; [] when none came.

    To ask takes a round trip as well, for which a broker that does not answer has `command_timeout`.

    Cancelling it gives back, unharmed, whatever was already on its way.

    Raises:
        NotConnected: there was no connection at the end of the timeout, so what waits in the queue is not known.
        RequestTimeout: the broker has not answered in time.
    """
    check_wait(timeout)
    deadline = anyio.current_time() + timeout
    with anyio.move_on_at(deadline):
        await link.connected()
    link.check()
    if link.protocol is None:
        raise link.no_connection(f"{timeout:g} s", _not_known(options.queue, reconnects=True))
    subscription: Subscription[T] = Subscription(link, options, validate)
    told = False
    try:
        # Asking takes a round trip even when nobody wants to wait.
        with anyio.move_on_at(deadline + link.settings.command_timeout):
            await subscription.start()
            with anyio.move_on_at(deadline):
                await subscription.arrival()
            subscription.check()
            told = subscription.connected
            left = subscription.leave(release=False)
            if left is not None and subscription.buffered != options.credit:
                told = False
                await left.wait()
                told = link.protocol is not None
    except BaseException:
        subscription.abandon()
        raise
    if not (told or subscription.buffered):
        # What is still on its way comes too late for this call, and must not be lost with it.
        subscription.abandon()
        raise _unanswered(link, options.queue, timeout)
    return subscription.take_buffered()


def _unanswered(link: ClientLink, queue: str, timeout: float) -> ClientError:
    """An empty list would say that nothing waits."""
    if link.protocol is None:
        return NotConnected(
            f"the connection was lost before the broker had answered{_not_known(queue, reconnects=True)}"
        )
    waited = timeout + link.settings.command_timeout
    return RequestTimeout(f"the broker has not answered within {waited:g} s{_not_known(queue, reconnects=False)}")


def _not_known(queue: str, *, reconnects: bool) -> str:
    more = "the client continues to reconnect: " if reconnects else ""
    return f", so what waits in queue {queue!r} is not known; {more}call fetch again"
