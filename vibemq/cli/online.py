"""One connection for one command: connect once, do the work, disconnect. Nothing is retried."""

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import anyio

from vibemq._version import __version__
from vibemq.cli.exits import LISTED, CommandFailed, QueueMissing
from vibemq.client import Client, connect
from vibemq.client.address import ClientSettings, parse
from vibemq.client.pages import every_item
from vibemq.client.reconnect import ReconnectPolicy
from vibemq.errors import ErrorCode, NotAuthorized, RequestTimeout, UnknownCommand

T = TypeVar("T")

TOKEN_VARIABLE = "VIBEMQ_ACCESS_TOKEN"  # noqa: S105  # a name, no secret
"""Of a token for a URL without credentials."""
ONCE = ReconnectPolicy(max_attempts=0)
"""A command that loses its broker says so; long-lived ones (`sub --follow`) keep the policy of their URL."""


def settings_of(url: str) -> ClientSettings:
    """What the URL says; without credentials in it, with the token of the environment."""
    settings = parse(url)
    if settings.username is None and settings.token is None:
        return replace(settings, token=os.environ.get(TOKEN_VARIABLE) or None)
    return settings


def settings_for(url: str, timeout: float, *, patient: bool = False) -> ClientSettings:
    """The settings of a command's connection; `patient` ones reconnect as their URL says."""
    settings = replace(settings_of(url), command_timeout=timeout)
    return settings if patient else replace(settings, reconnect=ONCE)


def call(url: str, timeout: float, work: Callable[[Client], Awaitable[T]]) -> T:
    """Run `work` on a fresh connection and return its result."""

    async def main() -> T:
        async with connect(settings_for(url, timeout)) as mq:
            return await work(mq)

    return anyio.run(main)


def ask(url: str, timeout: float, verb: str, **arguments: Any) -> Any:
    """One admin verb, one answer. An older broker, which does not know `dry_run`, refuses dry runs alone; every broker
    refuses guards without a value."""
    not_given = {"dry_run": False, "at_most": None}
    named = {name: value for name, value in arguments.items() if value is not not_given.get(name, ...)}
    return call(url, timeout, lambda mq: _asked(mq, timeout, verb, named))


async def _asked(mq: Client, timeout: float, verb: str, arguments: dict[str, Any]) -> Any:
    """
    Raises:
        RequestTimeout
        CommandFailed: the broker does not know the verb.
    """
    try:
        with anyio.move_on_after(timeout):
            return await mq.admin(verb, **arguments)
    except UnknownCommand:
        # The broker's own sentence lists everything that it knows.
        raise CommandFailed(
            f"the broker ({mq.server_version}) does not know {verb}, which this command (of {__version__}) needs; "
            "upgrade the broker",
            code=ErrorCode.UNKNOWN_COMMAND,
        ) from None
    raise RequestTimeout(f"{verb} got no answer within {timeout:g} s; the broker may still carry it out")


async def queue_exists(mq: Client, queue: str) -> bool | None:
    """None: nobody knows, as users who may not look at it are not told."""
    try:
        return await mq.queue_info(queue) is not None
    except NotAuthorized:
        return None


async def require_queue(mq: Client, queue: str | None, hint: str = LISTED) -> None:
    """
    Raises:
        QueueMissing: a queue is named and does not exist. "Nothing found" would hide a typing error.
    """
    if queue is not None and await queue_exists(mq, queue) is False:
        raise QueueMissing(queue, hint)


def ask_all(url: str, timeout: float, verb: str, items: str, **arguments: Any) -> list[Any]:
    """Everything of a list that comes in pages; the timeout is for each of them."""
    return call(url, timeout, lambda mq: _asked_all(mq, timeout, verb, items, arguments))


def ask_all_or_own(url: str, timeout: float, verb: str, items: str, **arguments: Any) -> list[Any]:
    """As `ask_all`; who may not see those of all users sees the own."""

    async def work(mq: Client) -> list[Any]:
        try:
            return await _asked_all(mq, timeout, verb, items, arguments)
        except NotAuthorized:
            own = (await _asked(mq, timeout, "user.self", {}))["user"]
            return await _asked_all(mq, timeout, verb, items, {**arguments, "user": own})

    return call(url, timeout, work)


async def _asked_all(mq: Client, timeout: float, verb: str, items: str, arguments: dict[str, Any]) -> list[Any]:
    async def page(verb: str, **named: Any) -> Any:
        return await _asked(mq, timeout, verb, named)

    return await every_item(page, verb, items, **arguments)
