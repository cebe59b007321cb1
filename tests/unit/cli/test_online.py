"""What the commands ask a broker, one connection each."""

from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from vibemq.cli import online
from vibemq.cli.admin import main
from vibemq.cli.entry import run_app
from vibemq.errors import NotAuthorized, UnknownCommand

LS = ("connections", "ls", "--json")


class Broker:
    """Of one user, and of an earlier release if it does not know the verb that tells who asks."""

    server_version = "0.1"

    def __init__(self, *, superuser: bool, knows_self: bool = True) -> None:
        self.superuser = superuser
        self.knows_self = knows_self
        self.asked: list[tuple[str, str | None]] = []
        self.connections = 0

    def call(self, url: str, timeout: float, work: Callable[[Any], Awaitable[Any]]) -> Any:
        self.connections += 1
        return anyio.run(work, self)

    async def admin(self, verb: str, **arguments: Any) -> Any:
        self.asked.append((verb, arguments.get("user")))
        if verb == "user.self":
            if not self.knows_self:
                raise UnknownCommand(f"there is no operation {verb!r}")
            return {"user": "ann"}
        if not self.superuser and arguments.get("user") != "ann":
            raise NotAuthorized("it requires a superuser")
        return []


def test_connections_are_listed_without_asking_who_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(superuser=True, knows_self=False)
    monkeypatch.setattr(online, "call", broker.call)
    assert run_app(main.app, "vibemq-admin", LS) == 0
    assert (broker.asked, broker.connections) == ([("connections.list", None)], 1)


def test_who_may_not_see_all_connections_sees_the_own_over_the_same_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(superuser=False)
    monkeypatch.setattr(online, "call", broker.call)
    assert run_app(main.app, "vibemq-admin", LS) == 0
    assert broker.asked == [("connections.list", None), ("user.self", None), ("connections.list", "ann")]
    assert broker.connections == 1


def test_who_names_a_user_is_not_shown_the_own_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker(superuser=False)
    monkeypatch.setattr(online, "call", broker.call)
    assert run_app(main.app, "vibemq-admin", (*LS, "--user", "bob")) == 4
    assert broker.asked == [("connections.list", "bob")]
