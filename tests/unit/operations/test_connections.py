"""Hanging up on peers by their id or by their user."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from vibemq.auth.policy import Actor
from vibemq.errors import Forbidden, InvalidPayload, NotAuthorized
from vibemq.model.access import Principal
from vibemq.operations.connections import CLOSED_PER_TURN, SEEN_PER_TURN, CloseConnectionArguments, Connections
from vibemq.operations.registry import Caller

ROOT = Principal("root", superuser=True)
ASKING = Caller(ROOT, Actor(""), session=1)


class SomePeer:
    def __init__(self, number: int, user: str | None, told: list[tuple[int, str]]) -> None:
        self.number = number
        self.connection_id = f"c{number}"
        self.principal = None if user is None else Principal(user)
        self.ending = False
        self._told = told

    def dismiss(self, reason: str, *, clean: bool = True) -> None:
        self.ending = True
        self.clean = clean
        self._told.append((self.number, reason))


class Holding:
    """An engine whose sessions hold as many messages as their numbers."""

    @property
    def readers(self) -> Any:
        return self

    def session_load(self, session: int) -> tuple[int, int]:
        return 1, session


class SomePeers:
    """`users`: of the connections 1, 2 …; None has not logged in."""

    def __init__(self, users: list[str | None]) -> None:
        self.told: list[tuple[int, str]] = []
        self.unsettled = 0
        self._peers = [SomePeer(number, user, self.told) for number, user in enumerate(users, 1)]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._peers)

    def peers(self) -> list[SomePeer]:
        return self._peers

    def peer(self, session: int) -> Any:
        return self._peers[session - 1]


def close(peers: SomePeers, **arguments: Any) -> int:
    answer = asyncio.run(Connections(peers, Holding()).close(ASKING, CloseConnectionArguments(**arguments)))
    peers.unsettled = answer["unsettled"]
    return int(answer["closed"])


def test_by_user_and_by_id() -> None:
    peers = SomePeers(["root", "ann", None, "ann", "bob"])
    assert close(peers, user="ann") == 2
    assert [number for number, _ in peers.told] == [2, 4]
    assert peers.unsettled == 6
    assert close(peers, user="ann") == 0, "they are leaving already"
    assert close(peers, connection_id="c3", reason="who are you") == 1
    assert peers.told[-1] == (3, "the broker's operator closed this connection: who are you")
    assert close(peers, connection_id="c9") == 0


@pytest.mark.parametrize(("mode", "clean"), [("release", True), ("fail", False)])
def test_what_they_hold_goes_back_unharmed_or_as_failed(mode: str, clean: bool) -> None:
    peers = SomePeers(["root", "ann"])
    assert close(peers, user="ann", mode=mode) == 1
    assert peers.peer(2).clean is clean


def test_who_asks_is_not_hung_up_on() -> None:
    peers = SomePeers(["root", "root"])
    assert close(peers, user="root") == 1
    assert [number for number, _ in peers.told] == [2]
    with pytest.raises(Forbidden, match="the connection that asks"):
        close(peers, connection_id="c1")


@pytest.mark.parametrize("arguments", [{}, {"user": "ann", "reason": "a\nb"}], ids=str)
def test_what_cannot_be_meant(arguments: dict[str, Any]) -> None:
    peers = SomePeers(["root", "ann"])
    with pytest.raises(InvalidPayload):
        close(peers, **arguments)
    assert peers.told == []


def test_one_of_a_user_is_closed_only_if_it_is_of_this_user() -> None:
    peers = SomePeers(["root", "ann"])
    assert close(peers, connection_id="c2", user="ben") == 0
    assert close(peers, connection_id="c2", user="ann") == 1
    assert [number for number, _ in peers.told] == [2]


def test_who_may_not_any_more_closes_no_further_connection() -> None:
    peers = SomePeers(["root", "ann", "ann", "ann"])

    def check_again() -> None:
        if len(peers.told) == 2:
            raise NotAuthorized("not any more")

    caller = Caller(ROOT, Actor(""), session=1, check_again=check_again)
    with pytest.raises(NotAuthorized):
        asyncio.run(Connections(peers, Holding()).close(caller, CloseConnectionArguments(user="ann")))
    assert [number for number, _ in peers.told] == [2, 3]
    assert caller.done.count == 2


def test_a_crowd_is_closed_in_turns() -> None:
    many = 20 * CLOSED_PER_TURN
    assert turns_of(lambda: Connections(SomePeers(["ann"] * many), Holding()).close(ASKING, by_user())) >= 20
    nobodys = SomePeers(["bob"] * (5 * SEEN_PER_TURN))
    assert turns_of(lambda: Connections(nobodys, Holding()).close(ASKING, by_user())) >= 5


def by_user() -> CloseConnectionArguments:
    return CloseConnectionArguments(user="ann")


def turns_of(work: Callable[[], Awaitable[Any]]) -> int:
    """How often the loop had its turn meanwhile."""

    async def measured() -> int:
        task = asyncio.ensure_future(work())
        turns = 0
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        await task
        return turns

    return asyncio.run(measured())
