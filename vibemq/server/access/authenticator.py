"""Logins: who a peer is."""

import asyncio
import math
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, runtime_checkable

from vibemq.auth.passwords import is_outdated
from vibemq.auth.users import ANONYMOUS, Accounts
from vibemq.errors import AuthError, AuthFailed, RateLimited, VibeMQError, forget_frames
from vibemq.model.commands import Command
from vibemq.protocols.session import Authenticate, Principal
from vibemq.server.access.audit import AuditedPeer, AuditLog
from vibemq.server.access.guessing import GuessLimiter, address_of
from vibemq.server.access.hashing import HASHED_TOGETHER_MAX, HASHED_UNDER_ATTACK, REST_S_MAX, HashingThreads
from vibemq.server.access.login_queue import LoginQueue, LoginStanding
from vibemq.server.access.revocation import Revocation
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.clock import Clock
from vibemq.server.monitoring.metrics import Metrics

TURNED_DOWN_PER_TURN = 16
"""Waiting logins whose check does not begin, in one turn of the loop."""


class LoginSession(Protocol):
    """What hears the answer of a login (`vibemq.protocols.session.Session`)."""

    def authenticated(self, token: Any, principal: Principal) -> None: ...

    def refused(self, token: Any, error: VibeMQError) -> None: ...

    def tick(self, now: int) -> None: ...

    @property
    def principal(self) -> Principal | None: ...


class AuthenticatedPeer(Protocol):
    """What the authenticator needs of a peer (`vibemq.server.net.peer_driver.PeerDriver`)."""

    number: int
    connection_id: str
    host: str
    protocol: str
    certified: tuple[str, ...]
    """Users for whom its TLS certificate stands, known or not."""
    pending: int
    parted: bool
    leaving: bool
    wake: Callable[[], None]

    @property
    def session(self) -> LoginSession: ...
    @property
    def ending(self) -> bool: ...
    @property
    def busy(self) -> bool: ...
    @property
    def principal(self) -> Principal | None: ...

    def process(self) -> None: ...

    def decide(self, commands: list[Command]) -> None: ...

    def goodbye(self, reason: str) -> None: ...

    def dismiss(self, reason: str) -> None: ...

    def failed(self, error: Exception) -> None: ...


@runtime_checkable
class StaysLoggedIn(AuditedPeer, Protocol):
    """A peer whose login holds until it goes."""

    logged_in: Principal | None


class _Place(NamedTuple):
    """Stands in for a peer in the audit log."""

    host: str
    connection_id: str
    protocol: str = "http"


class Authenticator:
    """Checks credentials, and slows guessing down. Passwords are checked in threads, few at a time; who has to wait is
    in a bounded queue. An access token costs next to nothing and cannot be guessed: it waits for nobody.

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
        audit: AuditLog,
        rehash: Callable[[str, str, str], Coroutine[Any, Any, None]],
        guesses: GuessLimiter,
        monotonic: Callable[[], float],
    ) -> None:
        self._accounts = accounts
        self._background_tasks = background_tasks
        self._clock = clock
        self._metrics = metrics
        self._hashing = hashing
        self._revocation = revocation
        self._audit = audit
        self._rehash = rehash
        self._monotonic = monotonic
        self._loop = asyncio.get_running_loop()
        self._guesses = guesses
        self._waiting: LoginQueue[tuple[AuthenticatedPeer, Authenticate, LoginStanding]] = LoginQueue()
        self._checked = 0
        """Passwords that are being checked."""
        self._beginning = False

    @property
    def enabled(self) -> bool:
        return self._accounts.enabled

    @property
    def logins_version(self) -> int:
        """Goes up when a login may have ceased to count."""
        return self._accounts.logins_version

    def has_ended(self, peer: AuthenticatedPeer) -> bool:
        """Whether its login does not count any more; then the peer has been told so."""
        return self._revocation.ends(peer)

    def authenticate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        """The session of the peer gets the answer, some time later."""
        if not self._accounts.enabled:
            peer.session.authenticated(request.token, ANONYMOUS)
            return
        if peer.certified and not (request.password or request.auth_token):
            self._take_certificate(peer, request)
            return
        token = self._accounts.access_token_in(request.password, request.auth_token)
        if not token and self._must_wait(peer, request):
            return
        if token or not self._accounts.needs_hashing(request.username, request.password, request.auth_token):
            self._check_now(peer, request)
            return
        if self._line_up(peer, request, self._guesses.standing(peer.host, request.username)):
            peer.pending += 1
            self._begin_checks()

    def _line_up(self, peer: AuthenticatedPeer, request: Authenticate, standing: LoginStanding) -> bool:
        """False: there was no room, and it was refused."""
        if standing is not LoginStanding.KNOWN and self._attacked():
            self._guesses.note_unwanted(self._monotonic())
        added = self._waiting.add(address_of(peer.host), (peer, request, standing), standing)
        if not added:
            self._refuse(peer, request, RateLimited("too many logins wait for their check; try again in a second"))
        return added

    def _must_wait(self, peer: AuthenticatedPeer, request: Authenticate) -> bool:
        """Whether it was refused because of what failed before."""
        wait_s = self._guesses.wait_s(peer.host, request.username, self._monotonic())
        if wait_s > 0:
            self._refuse(peer, request, AuthFailed(_wait_text(wait_s), wait_s))
        return wait_s > 0

    def _take_certificate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        """Nothing is guessed here: whoever has a certificate has the key to it."""
        try:
            principal = self._accounts.by_certificate(peer.certified, request.username)
        except AuthError as error:
            self._refuse(peer, request, error)
        else:
            self._guesses.note_address(peer.host)
            self._note_login(peer, principal)
            peer.session.authenticated(request.token, principal)

    def check_secret(self, host: str, request_id: str, is_right: Callable[[], bool], refusal: str) -> None:
        """The same back-off, audit line and count for a secret that HTTP knows by itself. Raises AuthFailed.

        Whoever has the secret never waits: many may come from the address of somebody who guesses, and a comparison
        costs nothing.
        """
        if is_right():
            self._guesses.succeeded(host, "")
            return
        now_s = self._monotonic()
        wait_s = self._guesses.wait_s(host, "", now_s)
        if wait_s <= 0:
            self._guesses.failed(host, "", now_s)
        error = AuthFailed(_wait_text(wait_s), wait_s) if wait_s > 0 else AuthFailed(refusal)
        self._metrics.auth_failures += 1
        self._audit.login_failed(_Place(host, request_id), "", str(error))
        raise error

    def _note_login(self, peer: AuthenticatedPeer, principal: Principal) -> None:
        # Of those whose every request brings its credentials, the door says when somebody has logged in.
        if isinstance(peer, StaysLoggedIn):
            peer.logged_in = principal
            self._audit.logged_in(peer, principal)
            if peer.parted:
                # It went during the check, and nobody else says so any more.
                self.logged_out(peer)

    def logged_out(self, peer: "StaysLoggedIn") -> None:
        """The peer has gone."""
        if peer.logged_in is not None:
            self._audit.logged_out(peer, peer.logged_in)
            peer.logged_in = None

    # -- at once ----------------------------------------------------------------------------------------------------

    def _check_now(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        try:
            principal = self._accounts.authenticate(*self._credentials(request))
        except AuthError as error:
            self._failed(peer, request, error)
        else:
            self._succeeded(peer, request, principal)

    # -- in threads -------------------------------------------------------------------------------------------------

    def _begin_checks(self) -> None:
        """Begin as many as may run together."""
        if self._beginning:
            return
        self._beginning = True
        turned_down = 0
        try:
            together = HASHED_UNDER_ATTACK if self._attacked() else HASHED_TOGETHER_MAX
            while self._checked < together and (login := self._waiting.take()) is not None:
                turned_down += not self._begin_check(*login)
                if turned_down >= TURNED_DOWN_PER_TURN:
                    self._loop.call_soon(self._begin_checks)
                    break
        finally:
            self._beginning = False

    def _begin_check(self, peer: AuthenticatedPeer, request: Authenticate, standing: LoginStanding) -> bool:
        """False: its peer has gone, or failed meanwhile; then it has to wait longer, or is refused without a check."""
        if peer.parted:
            peer.pending -= 1
        elif self._must_wait(peer, request):
            peer.pending -= 1
            self._go_on(peer)
        elif standing < (now := self._guesses.standing(peer.host, request.username)):
            if not self._line_up(peer, request, now):
                peer.pending -= 1
                self._go_on(peer)
        else:
            self._checked += 1
            self._background_tasks.begin(self._authenticate, peer, request, failed=peer.failed)
            return True
        return False

    def _attacked(self) -> bool:
        return self._guesses.is_attacked(self._monotonic())

    async def _authenticate(self, peer: AuthenticatedPeer, request: Authenticate) -> None:
        began = self._monotonic()
        try:
            principal = await self._hashing.run(self._accounts.authenticate, *self._credentials(request))
        except AuthError as error:
            self._failed(peer, request, error)
        except Exception:
            fault = VibeMQError("the broker could not check the credentials; its log has the reason")
            peer.session.refused(request.token, fault)
            raise
        else:
            peer.session.tick(self._clock.now())
            self._hash_again(principal, request)
            self._succeeded(peer, request, principal)
        finally:
            peer.pending -= 1
            if peer.session.principal is None and self._attacked():
                self._background_tasks.begin(self._rest, self._monotonic() - began, failed=peer.failed)
            else:
                self._end_check()
        self._go_on(peer)

    async def _rest(self, seconds: float) -> None:
        try:
            await self._hashing.rest(min(seconds, REST_S_MAX))
        finally:
            self._end_check()

    def _end_check(self) -> None:
        self._checked -= 1
        self._begin_checks()

    def _go_on(self, peer: AuthenticatedPeer) -> None:
        if not peer.ending:
            peer.process()
        peer.wake()

    def _hash_again(self, principal: Principal, request: Authenticate) -> None:
        known = self._accounts.user(principal.name)
        user = known.stored if known is not None else None
        # Another user of that name, of the settings or made anew meanwhile, has another password.
        if user is None or principal.token_id or principal.since != user.created_at:
            return
        if is_outdated(user.password_hash, request.password):
            self._background_tasks.begin(self._rehash, user.name, request.password, user.password_hash)

    # -- outcomes ---------------------------------------------------------------------------------------------------

    def _credentials(self, request: Authenticate) -> tuple[str, str, str, int]:
        return request.username, request.password, request.auth_token, self._clock.now()

    def _succeeded(self, peer: AuthenticatedPeer, request: Authenticate, principal: Principal) -> None:
        if principal.token_id:
            self._guesses.note_address(peer.host)
        else:
            self._guesses.succeeded(peer.host, request.username)
        self._note_login(peer, principal)
        peer.session.authenticated(request.token, principal)
        # What changed while the credentials were checked counts too.
        self._revocation.look_at(peer)

    def _failed(self, peer: AuthenticatedPeer, request: Authenticate, error: AuthError) -> None:
        # Nobody guesses access tokens: a wrong one is no reason to keep its user from logging in with the password.
        token = self._accounts.access_token_in(request.password, request.auth_token)
        self._guesses.failed(peer.host, "" if token else request.username, self._monotonic())
        self._refuse(peer, request, error)

    def _refuse(self, peer: AuthenticatedPeer, request: Authenticate, error: VibeMQError) -> None:
        self._metrics.auth_failures += 1
        self._audit.login_failed(peer, request.username, str(error))
        # The session keeps it, and its frames would keep the peer.
        forget_frames(error)
        peer.session.refused(request.token, error)


def _wait_text(wait_s: float) -> str:
    return f"too many failed attempts; try again in {math.ceil(wait_s)} s"
