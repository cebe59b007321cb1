"""Ends what a user is not allowed any more: subscriptions, and connections whose credential does not count any more."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from vibemq.auth.matrix import SUBSCRIBE
from vibemq.auth.users import Accounts
from vibemq.errors import VibeMQError
from vibemq.model.commands import Command, EndConsumers
from vibemq.protocols.session import Principal
from vibemq.server.clock import Clock

log = logging.getLogger("vibemq.requests")


class RevocablePeer(Protocol):
    """What a revocation needs of a peer (`vibemq.server.net.peer_driver.PeerDriver`)."""

    number: int
    connection_id: str
    parted: bool
    leaving: bool

    @property
    def principal(self) -> Principal | None: ...

    def decide(self, commands: list[Command]) -> None: ...

    def dismiss(self, reason: str) -> None: ...


class Revocation:
    """Looks at the peers of users who have changed.

    Args:
        subscriptions: (consumer, queue) of a session's subscriptions.
        peers: everybody who may act.
    """

    def __init__(
        self,
        accounts: Accounts,
        clock: Clock,
        *,
        subscriptions: Callable[[int], list[tuple[int, str]]],
        peers: Callable[[], Iterable[RevocablePeer]],
    ) -> None:
        self._accounts = accounts
        self._clock = clock
        self._subscriptions = subscriptions
        self._peers = peers

    def look_at_everybody(self) -> None:
        for peer in self._peers():
            self.look_at(peer)

    def look_at_users(self, names: Collection[str]) -> None:
        for peer in self._peers():
            if peer.principal is not None and peer.principal.name in names:
                self.look_at(peer)

    def look_at(self, peer: RevocablePeer) -> None:
        """End the subscriptions that the peer's user, as the rules are now, may not have. Whose credential does not
        count any more is told so and hung up on."""
        principal, policy = peer.principal, self._accounts.policy
        if principal is None or peer.parted:
            return
        fields = {"event": "auth.revoked", "conn_id": peer.connection_id, "user": principal.name}
        reason = self._accounts.ended(principal, self._clock.now())
        if reason:
            log.warning("connection ended: %s", reason, extra=fields)
            peer.dismiss(reason)
            return
        if peer.leaving:
            return
        ended: dict[int, VibeMQError] = {}
        for consumer, queue in self._subscriptions(peer.number):
            if not policy.allows(principal, SUBSCRIBE, queue):
                ended[consumer] = policy.refusal(principal, SUBSCRIBE, queue)
        if ended:
            log.warning("subscriptions ended, because the user has lost the permission: %d", len(ended), extra=fields)
            peer.decide([EndConsumers(peer.number, ended)])
