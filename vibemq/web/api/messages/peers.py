"""The sessions of the engine that work for principals over HTTP: one each, made when it is needed."""

import asyncio
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, NamedTuple, Protocol

from vibemq.errors import ConnectionLimit, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import Command, Publish
from vibemq.model.effects import Published
from vibemq.model.extras.message_extra import Extras
from vibemq.model.rows import Rows
from vibemq.protocols.session import SessionContext
from vibemq.web.api.messages.leases import PrincipalKey, key_of
from vibemq.web.api.messages.session import Fetch, FetchedBatch, HttpPeerSession

SESSIONS_MAX = 1_000
SESSIONS_OF_USER_MAX = 50
"""One for the user and one for each of its access tokens."""


class ConnectedPeer(Protocol):
    """What is needed of `vibemq.protocols.session.Peer`."""

    @property
    def ended(self) -> bool: ...


class Connects(Protocol):
    """As `vibemq.protocols.session.Services`."""

    def connect(
        self, create: Callable[..., Any], *, host: str, write: Callable[[bytes], None], own: bool = False
    ) -> ConnectedPeer: ...


class HttpPeer:
    """One of these sessions, awaited."""

    def __init__(self, session: HttpPeerSession, peer: ConnectedPeer) -> None:
        self.session = session
        self._peer = peer

    @property
    def usable(self) -> bool:
        return self.session.usable and not self._peer.ended

    async def ask(
        self, command: Callable[[int, Any], Command], heard: Callable[[Any], None] = lambda result: None
    ) -> Any:
        """The engine's answer to `command(session, token)`, when its durability holds.

        What was asked for happens, also when nobody waits for the answer any more.

        Args:
            heard: called with the answer at once, before the session's deadlines are looked at again.

        Raises:
            VibeMQError: the refusal.
        """
        # The future has no name here: a refusal that it keeps has this frame in its traceback, and only the cycle
        # collector would free them.
        return await self._asked(command, heard)

    def _asked(self, command: Callable[[int, Any], Command], heard: Callable[[Any], None]) -> "asyncio.Future[Any]":
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def told(result: Any) -> None:
            if not isinstance(result, VibeMQError):
                heard(result)
            _tell(future, result)

        self.session.ask(command, told)
        return future

    async def publish(self, queue: str, rows: Rows, extras: Extras | None) -> Published:
        """Answered when the promise of the queue holds for all that is not refused."""
        published: Published = await self.ask(lambda session, token: Publish(session, token, queue, rows, extras))
        return published

    async def fetch(
        self,
        queue: str,
        group: str | None,
        most: int,
        *,
        wait_ms: int,
        ack_timeout_ms: int,
        keeps_letters: bool,
        now: int,
    ) -> FetchedBatch:
        """Up to `most` messages; none when nothing has come until then. What has come for whoever does not wait any
        more goes back unharmed."""
        future: asyncio.Future[FetchedBatch] = asyncio.get_running_loop().create_future()
        fetch: Fetch | None = self.session.fetch(
            queue,
            group,
            most,
            wait_ms=wait_ms,
            ack_timeout_ms=ack_timeout_ms,
            keeps_letters=keeps_letters,
            now=now,
            told=partial(_tell, future),
        )
        try:
            return await future
        except asyncio.CancelledError:
            if fetch is not None and not fetch.done:
                self.session.abandon(fetch)
            elif future.done() and not future.cancelled() and future.exception() is None:
                self.session.give_back(future.result())
            raise
        finally:
            # See `ask`.
            del future, fetch


class _PeerKey(NamedTuple):
    principal: PrincipalKey
    superuser: bool
    """A session acts as the principal that it was made for, and the rights of a superuser need a login as one."""


class HttpPeers:
    """One session for each principal; idle ones end by themselves."""

    def __init__(self, services: Connects, consumers: Callable[[int], Collection[int]]) -> None:
        """`consumers`: see `vibemq.web.api.services.MessageServices`."""
        self._services = services
        self._consumers = consumers
        self._by_key: dict[_PeerKey, HttpPeer] = {}
        self._by_number: dict[int, HttpPeer] = {}

    def __len__(self) -> int:
        return len(self._by_number)

    def of(self, principal: Principal, host: str) -> HttpPeer:
        """Raises ConnectionLimit, ShuttingDown."""
        key = _PeerKey(key_of(principal), principal.superuser)
        peer = self._by_key.get(key)
        if peer is None or not peer.usable:
            peer = self._by_key[key] = self._make(principal, host)
        return peer

    def numbered(self, session: int) -> HttpPeer | None:
        """The one that a lease names; None: it has ended, and what it held went back."""
        peer = self._by_number.get(session)
        return peer if peer is not None and peer.usable else None

    def _make(self, principal: Principal, host: str) -> HttpPeer:
        self.tidy()
        own = [peer for key, peer in self._by_key.items() if key.principal.user == principal.name]
        if len(own) >= SESSIONS_OF_USER_MAX:
            for peer in own:
                peer.session.leave()
            self.tidy()
            if sum(key.principal.user == principal.name for key in self._by_key) >= SESSIONS_OF_USER_MAX:
                raise ConnectionLimit(
                    f"{SESSIONS_OF_USER_MAX} access tokens of user {principal.name!r} publish or consume over HTTP at "
                    "the moment; use fewer, or try again in a minute"
                )
        if len(self._by_number) >= SESSIONS_MAX:
            for peer in self._by_number.values():
                peer.session.leave()
            self.tidy()
        if len(self._by_number) >= SESSIONS_MAX:
            raise ConnectionLimit(
                f"{SESSIONS_MAX:,} users publish or consume over HTTP at the moment; try again in a minute"
            )
        made: list[HttpPeerSession] = []

        def create(context: SessionContext) -> HttpPeerSession:
            made.append(HttpPeerSession(context, principal, self._consumers))
            return made[0]

        connected = self._services.connect(create, host=host, write=_nowhere)
        made_peer = HttpPeer(made[0], connected)
        self._by_number[made_peer.session.number] = made_peer
        return made_peer

    def tidy(self) -> None:
        """Forget those that have ended."""
        for number, peer in list(self._by_number.items()):
            if not peer.usable:
                del self._by_number[number]
        for key, peer in list(self._by_key.items()):
            if not peer.usable:
                del self._by_key[key]


def _tell(future: "asyncio.Future[Any]", result: Any) -> None:
    if future.done():
        return
    if isinstance(result, VibeMQError):
        future.set_exception(result)
    else:
        future.set_result(result)


def _nowhere(data: bytes) -> None:
    """It writes no bytes."""
