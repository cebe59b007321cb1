"""Logins: who a peer is."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from vibemq.auth.passwords import is_outdated
from vibemq.auth.users import ANONYMOUS, Accounts
from vibemq.errors import AuthError, AuthFailed, VibeMQError, forget_frames
from vibemq.model.commands import Command
from vibemq.protocols.session import Authenticate, Principal, Session
from vibemq.server.access.hashing import HashingThreads
from vibemq.server.access.limits import FailureBackoff
from vibemq.server.access.revocation import Revocation
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.clock import Clock
from vibemq.server.monitoring.metrics import Metrics

log = logging.getLogger("vibemq.requests")

NAME_MAX = 128
"""Characters of a name in the log that a peer has chosen."""


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
    """Checks credentials in threads, and slows guessing down.

    Args:
        rehash: (name, password, outdated hash): has a password that was right hashed by today's rules.
    """

    def __init__(
        self,
        accounts: Accounts,
        background_tasks: BackgroundTasks,
        clock: Clock,
        metrics: Metrics,
        *,
        hashing: HashingThreads,
        revocation: Revocation,
        rehash: Callable[[str, str, str], Coroutine[Any, Any, None]],
    ) -> None:
        self._accounts = accounts
        self._background_tasks = background_tasks
        self._clock = clock
        self._metrics = metrics
        self._hashing = hashing
        self._revocation = revocation
        self._rehash = rehash
        self._loop = asyncio.get_running_loop()
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

    async def _authenticate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        credentials = request.username, request.password, request.auth_token, self._clock.now()
        try:
            principal = await self._hashing.run(self._accounts.authenticate, *credentials)
        except AuthError as error:
            self._backoff.failed(peer.host, self._loop.time())
            self._refuse(peer, request, error)
        except Exception:
            fault = VibeMQError("the broker could not check the credentials; its log has the reason")
            peer.session.refused(request.token, fault)
            raise
        else:
            self._backoff.succeeded(peer.host)
            self._hash_again(principal, request)
            peer.session.tick(self._clock.now())
            peer.session.authenticated(request.token, principal)
            # What changed while the credentials were checked counts too.
            self._revocation.look_at(peer)
        finally:
            peer.pending -= 1
        if not peer.ending:
            peer.process()
        peer.wake()

    def _hash_again(self, principal: Principal, request: Authenticate) -> None:
        user = self._accounts.stored_user(principal.name)
        if user is not None and not principal.token_id and is_outdated(user.password_hash):
            self._background_tasks.begin(self._rehash, user.name, request.password, user.password_hash)

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
