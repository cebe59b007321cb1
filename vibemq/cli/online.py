"""One connection for one command: connect once, do the work, disconnect. Nothing is retried."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from vibemq.cli.exits import LISTED, QueueMissing
from vibemq.client import Client, connect
from vibemq.client.address import ClientSettings, parse
from vibemq.client.pages import every_item
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import NotAuthorized, RequestTimeout

T = TypeVar("T")

ONCE = ReconnectPolicy(max_attempts=0)
"""A command that loses its broker says so; long-lived ones (`sub --follow`) keep the policy of their URL."""


def settings_for(url: str, timeout: float, *, patient: bool = False) -> ClientSettings:
    """The settings of a command's connection; `patient` ones reconnect as their URL says."""
    settings = replace(parse(url), command_timeout=timeout)
    return settings if patient else replace(settings, reconnect=ONCE)


def call(url: str, timeout: float, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run `work` on a fresh connection and return its result."""

    async def main() -> T:
        async with connect(settings_for(url, timeout)) as mq:
            return await work(mq)

    return anyio.run(main)


def ask(url: str, timeout: float, verb: str, **arguments: Any) -> Any:
    """One admin verb, one answer."""

    async def work(mq: Client) -> Any:
        with anyio.move_on_after(timeout):
            return await mq.admin(verb, **arguments)
        raise RequestTimeout(f"{verb} got no answer within {timeout:g} s; the broker may still be at it")

    return call(url, timeout, work)


async def queue_is_missing(mq: Client, queue: str) -> bool:
    """Whether the queue certainly does not exist: users who may not look at it are not told."""
    try:
        return await mq.queue_info(queue) is None
    except NotAuthorized:
        return False


async def require_queue(mq: Client, queue: str | None, hint: str = LISTED) -> None:
    """
    Raises:
        QueueMissing: a queue is named and does not exist. "Nothing found" would hide a typing error.
    """
    if queue is not None and await queue_is_missing(mq, queue):
        raise QueueMissing(queue, hint)


def ask_all(url: str, timeout: float, verb: str, items: str, **arguments: Any) -> list[Any]:
    """Everything of a list that comes in pages; the timeout is for each of them."""

    async def work(mq: Client) -> list[Any]:
        async def page(verb: str, **named: Any) -> Any:
            with anyio.move_on_after(timeout):
                return await mq.admin(verb, **named)
            raise RequestTimeout(f"{verb} got no answer within {timeout:g} s; the broker may still be at it")

        return await every_item(page, verb, items, **arguments)

    return call(url, timeout, work)
