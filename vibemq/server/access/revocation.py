"""Ends what a user is not allowed any more: subscriptions, publishes that wait for room, and connections whose
credential does not count any more.

All connections are looked at, for a few milliseconds in one turn of the event loop. Until the turn of a connection has
come, its driver asks `ends` before it takes a request (see `Accounts.logins_version`), and the policy is asked for
every permission: no request passes that a change has ruled out.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial
from typing import Protocol

from vibemq.auth.matrix import PUBLISH, SUBSCRIBE
from vibemq.auth.users import Accounts
from vibemq.errors import VibeMQError
from vibemq.model.commands import Command, EndConsumers
from vibemq.protocols.session import Principal
from vibemq.server.clock import Clock

log = logging.getLogger("vibemq.requests")

SHARE_S = 0.002
"""Connections are looked at for so long in one turn of the loop."""


class RevocablePeer(Protocol):
    """What a revocation needs of a peer (`vibemq.server.net.peer_driver.PeerDriver`)."""

    number: int
    connection_id: str
    parted: bool
    leaving: bool

    @property
    def busy(self) -> bool:
        """What it has asked for may be under way still."""

    @property
    def principal(self) -> Principal | None: ...

    def decide(self, commands: list[Command]) -> None: ...

    def goodbye(self, reason: str) -> None: ...

    def dismiss(self, reason: str) -> None: ...


class Revocation:
    """Looks at the peers of users who have changed.

    Args:
        subscriptions: (consumer, queue) of a session's subscriptions.
        any_parked: whether anybody's publishes wait for room.
        peers: everybody who may act.
        monotonic: seconds.
    """

    def __init__(
        self,
        accounts: Accounts,
        clock: Clock,
        *,
        subscriptions: Callable[[int], list[tuple[int, str]]],
        any_parked: Callable[[], bool],
        peers: Callable[[], Iterable[RevocablePeer]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._subscriptions = subscriptions
        self._any_parked = any_parked
        self._peers = peers
        self._monotonic = monotonic
        self.watchers: list[Callable[[Collection[str]], None]] = []
        """Told of users who have changed: logins that are no peers, such as the sessions of browsers."""

    async def look_at_users(self, names: Collection[str], *, asker: int = 0) -> None:
        """Return when all connections of these users have been looked at. `asker`: the session that has asked for the
        change, and hears its answer before it has to go."""
        for watch in self.watchers:
            watch(names)
        end = self._monotonic() + SHARE_S
        for peer in self._peers():
            for _ in self._steps(peer, names, asker):
                if self._monotonic() >= end:
                    await asyncio.sleep(0)
                    end = self._monotonic() + SHARE_S

    def look_at(self, peer: RevocablePeer) -> None:
        """The same for one connection, at once."""
        for _ in self._steps(peer, None, 0):
            pass

    def ends(self, peer: RevocablePeer, *, asker: int = 0) -> bool:
        """Whether the login of the peer does not count any more; then the peer is told so and hung up on."""
        principal = peer.principal
        reason = self._accounts.ended(principal, self._clock.now()) if principal is not None else ""
        if reason and not peer.parted:
            if not peer.leaving:
                log.warning("connection ended: %s", reason, extra=_fields(peer))
            (peer.goodbye if peer.number == asker else peer.dismiss)(reason)
        return bool(reason)

    def _steps(self, peer: RevocablePeer, names: Collection[str] | None, asker: int) -> Iterator[None]:
        """End the subscriptions that the peer's user may not have, and refuse what it has published where it may not,
        as long as that waits for room."""
        yield
        principal, policy = peer.principal, self._accounts.policy
        if principal is None or peer.parted or (names is not None and principal.name not in names):
            return
        if self.ends(peer, asker=asker) or peer.leaving:
            return
        ended, lost = 0, set[str]()
        for _, queue in self._subscriptions(peer.number):
            if not policy.allows(principal, SUBSCRIBE, queue):
                ended += 1
                lost.add(queue)
            yield
        if ended and not peer.parted:
            log.warning("subscriptions ended, because the user has lost the permission: %d", ended, extra=_fields(peer))
        # Behind what the peer has asked for: subscriptions and publishes that are under way were allowed, and may be
        # made, or come to wait for room, before this.
        if (ended or peer.busy or self._any_parked()) and not peer.parted:
            fields = _fields(peer)
            subscriptions = partial(self._subscription_ends, principal, fields, lost)
            peer.decide([EndConsumers(peer.number, subscriptions, partial(self._refusal, principal, fields))])

    def _subscription_ends(
        self, principal: Principal, fields: dict[str, str], told: set[str], queue: str
    ) -> VibeMQError | None:
        """Why a subscription of the queue may not go on. `told`: queues that the log has counted."""
        policy = self._accounts.policy
        if policy.allows(principal, SUBSCRIBE, queue):
            return None
        if queue not in told:
            told.add(queue)
            log.warning(
                "subscriptions of queue %s ended that were under way when the user lost the permission",
                queue,
                extra=fields,
            )
        return policy.refusal(principal, SUBSCRIBE, queue)

    def _refusal(self, principal: Principal, fields: dict[str, str], queue: str) -> VibeMQError | None:
        """Why what waits for room in the queue may not go on."""
        policy = self._accounts.policy
        if policy.allows(principal, PUBLISH, queue):
            return None
        log.warning(
            "publishes that waited for room in queue %s were refused, because the user has lost the permission",
            queue,
            extra=fields,
        )
        return policy.refusal(principal, PUBLISH, queue)


def _fields(peer: RevocablePeer) -> dict[str, str]:
    user = peer.principal.name if peer.principal is not None else ""
    return {"event": "auth.revoked", "conn_id": peer.connection_id, "user": user}
