"""Who a peer is, and what becomes of it when the rules change."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Protocol

from anyio import CapacityLimiter, to_thread

from vibemq.auth.matrix import SUBSCRIBE
from vibemq.auth.users import ANONYMOUS, Account, Accounts
from vibemq.errors import AuthError, AuthFailed, VibeMQError, forget_frames
from vibemq.model.commands import Command, EndConsumers
from vibemq.protocols.session import Authenticate, Principal, Session
from vibemq.server.clock import Clock
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.background_tasks import BackgroundTasks
from vibemq.server.net.limits import FailureBackoff

log = logging.getLogger("vibemq.requests")

NAME_MAX = 128
"""Characters of a name in the log that a peer has chosen."""
HASHED_TOGETHER_MAX = 2


class AuthenticatedPeer(Protocol):
    """What the authenticator needs of a peer (`vibemq.server.net.peer_driver.PeerDriver`)."""

    number: int
    connection_id: str
    host: str
    session: Session
    pending: int
    parted: bool
    leaving: bool
    wake: Callable[[], None]

    @property
    def ending(self) -> bool: ...
    @property
    def principal(self) -> Principal | None: ...

    def process(self) -> None: ...

    def decide(self, commands: list[Command]) -> None: ...

    def dismiss(self, reason: str) -> None: ...

    def failed(self, error: Exception) -> None: ...


class Authenticator:
    """Checks credentials in threads, slows guessing down, and ends what a user may not have any more.

    Args:
        subscriptions: (consumer, queue) of a session's subscriptions.
        peers: everybody who may act.
    """

    def __init__(
        self,
        accounts: Accounts,
        background_tasks: BackgroundTasks,
        clock: Clock,
        metrics: Metrics,
        *,
        subscriptions: Callable[[int], list[tuple[int, str]]],
        peers: Callable[[], Iterable[AuthenticatedPeer]],
    ) -> None:
        self._accounts = accounts
        self._background_tasks = background_tasks
        self._clock = clock
        self._metrics = metrics
        self._subscriptions = subscriptions
        self._peers = peers
        self._loop = asyncio.get_running_loop()
        self._hashing = CapacityLimiter(HASHED_TOGETHER_MAX)
        self._backoff = FailureBackoff()

    @property
    def enabled(self) -> bool:
        return self._accounts.enabled

    def authenticate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        """The session of the peer gets the answer, some time later."""
        if not self._accounts.enabled:
            peer.session.authenticated(request.token, ANONYMOUS)
            return
        wait_s = self._backoff.wait_s(peer.host, self._loop.time())
        if wait_s > 0:
            self._refuse(peer, request, AuthFailed(f"too many failed attempts; try again in {wait_s:.0f} s"))
            return
        peer.pending += 1
        self._background_tasks.begin(self._authenticate, peer, request, failed=peer.failed)

    def replace_accounts(self, accounts: Iterable[Account], *, token: str | None) -> None:
        """Other users and rules, which count at once, also for what runs.

        Raises:
            ConfigInvalid: a password hash that cannot be checked; then nothing has changed.
        """
        self._accounts.replace(accounts, token=token)
        for peer in self._peers():
            self._end_revoked(peer)

    async def _authenticate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        credentials = request.username, request.password, request.auth_token
        try:
            principal = await to_thread.run_sync(self._accounts.authenticate, *credentials, limiter=self._hashing)
        except AuthError as error:
            self._backoff.failed(peer.host, self._loop.time())
            self._refuse(peer, request, error)
        except Exception:
            fault = VibeMQError("the broker could not check the credentials; its log has the reason")
            peer.session.refused(request.token, fault)
            raise
        else:
            self._backoff.succeeded(peer.host)
            peer.session.tick(self._clock.now())
            peer.session.authenticated(request.token, principal)
            self._end_revoked(peer)
        finally:
            peer.pending -= 1
        if not peer.ending:
            peer.process()
        peer.wake()

    def _end_revoked(self, peer: AuthenticatedPeer) -> None:
        """End the subscriptions that the peer's user, as the rules are now, may not have. Whose credential does not
        count any more is told so and hung up on."""
        principal, policy = peer.principal, self._accounts.policy
        if principal is None or peer.parted:
            return
        fields = {"event": "auth.revoked", "conn_id": peer.connection_id, "user": principal.name}
        reason = self._accounts.ended(principal)
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

    def _refuse(self, peer: AuthenticatedPeer, request: Authenticate, error: VibeMQError) -> None:
        self._metrics.auth_failures += 1
        fields = {"event": "auth.failed", "conn_id": peer.connection_id, "remote": peer.host}
        log.warning("authentication failed", extra={**fields, "user": _shown(request.username)})
        # The session keeps it, and its frames would keep the peer.
        forget_frames(error)
        peer.session.refused(request.token, error)


def _shown(text: str) -> str:
    """Text of a peer's choice for a line of the log: no line breaks, no escapes, not for ever."""
    return text[:NAME_MAX] if text.isprintable() else ascii(text[:NAME_MAX])
