"""What a connection may ask of the broker around it, gathered in one place and nothing more."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from anyio import CapacityLimiter, to_thread

from vibemq.config import Limits
from vibemq.errors import AuthError, AuthFailed, NotAuthorized, RateLimited, StorageFailed, VibeMQError
from vibemq.model.commands import CloseSession, Command
from vibemq.model.effects import Reply
from vibemq.protocols.session import Admin, Ask, Authenticate, Principal
from vibemq.server.authority import Action, Authority
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import Turn
from vibemq.server.commit.release_order import Switchboard
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.background_tasks import Errands
from vibemq.server.net.connections import Roster
from vibemq.server.net.limits import FailureBackoff
from vibemq.server.net.timers import Ticker

if TYPE_CHECKING:
    from vibemq.server.net.peer_driver import PeerDriver
    from vibemq.server.net.transport import Connection

log = logging.getLogger("vibemq.shell")

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Published bytes on their way to disk; above this nobody is read from until half of it is told."""


PENDING_MAX = 32


class Desk(Protocol):
    async def answer(self, principal: Principal | None, ask: Ask) -> object: ...


class AdminDesk(Protocol):
    async def answer(self, verb: str, arguments: dict[str, object]) -> object: ...


@dataclass(slots=True, kw_only=True)
class Shell:
    loop: asyncio.AbstractEventLoop
    engine: QueueEngine
    clock: Clock
    store: Store
    committer: Committer
    switchboard: Switchboard
    turn: Turn
    ticker: Ticker
    roster: Roster
    authority: Authority
    limits: Limits
    metrics: Metrics
    admin: AdminDesk
    asks: Desk
    errands: Errands
    fatal: Callable[[BaseException], None]
    paused: "set[Connection]" = field(default_factory=set)
    """Connections that are not read from."""
    overloaded: bool = False
    _hashing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    _admin_slots: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    _backoff: FailureBackoff = field(default_factory=FailureBackoff)

    def decide(self, commands: Sequence[Command]) -> None:
        """One engine step. Raises what the engine raises, which is a bug of ours."""
        outcome = self.engine.handle(commands, self.clock.now())
        mixed = outcome.gated and outcome.effects
        self.committer.submit(outcome, [getattr(command, "token", None) for command in commands] if mixed else ())

    def close_session(self, session: int, last: Sequence[Command] = (), *, clean: bool) -> None:
        """`last`: commands that come before the end, in the same step: nothing is handed out in between."""
        if not self.committer.dead:
            self.decide([*last, CloseSession(session, clean)])

    def mind_the_load(self) -> None:
        """Stop reading while too much waits for the disk; called once per loop turn."""
        backlog = self.committer.backlog_bytes
        if not self.overloaded and backlog > BACKLOG_BYTES_MAX:
            self.overloaded = True
            for connection in self.roster:
                connection.wake()
        elif self.overloaded and backlog < BACKLOG_BYTES_MAX // 2:
            self.overloaded = False
            for connection in list(self.paused):
                connection.wake()

    # -- people -----------------------------------------------------------------------------------------------------

    def authenticate(self, connection: "PeerDriver", request: Authenticate) -> None:
        if not self.authority.enabled:
            connection.session.authenticated(request.token, self.authority.authenticate(request))
            return
        wait_s = self._backoff.wait_s(connection.host, self.loop.time())
        if wait_s > 0:
            self._refuse(connection, request, AuthFailed(f"too many failed attempts; try again in {wait_s:.0f} s"))
            return
        connection.pending += 1
        self.errands.begin(self._authenticate, connection, request, failed=connection.failed)

    async def _authenticate(self, connection: "PeerDriver", request: Authenticate) -> None:
        try:
            principal = await to_thread.run_sync(self.authority.authenticate, request, limiter=self._hashing)
        except AuthError as error:
            self._backoff.failed(connection.host, self.loop.time())
            self._refuse(connection, request, error)
        except Exception:
            fault = VibeMQError("the broker could not check the credentials; its log says why")
            connection.session.refused(request.token, fault)
            raise
        else:
            self._backoff.succeeded(connection.host)
            connection.session.tick(self.clock.now())
            connection.session.authenticated(request.token, principal)
        finally:
            connection.pending -= 1
        if not connection.ending:
            connection.process()
        connection.wake()

    def _refuse(self, connection: "PeerDriver", request: Authenticate, error: VibeMQError) -> None:
        self.metrics.auth_failures += 1
        fields = {"event": "auth.failed", "conn_id": connection.connection_id, "remote": connection.host}
        log.warning("authentication failed", extra={**fields, "user": request.username})
        connection.session.refused(request.token, error)

    # -- readers by range, transactions -----------------------------------------------------------------------------

    def ask(self, connection: "PeerDriver", request: Ask) -> None:
        if connection.pending >= PENDING_MAX:
            self._turn_away(connection, request)
            return
        connection.pending += 1
        self.errands.begin(self._ask, connection, request, failed=connection.failed)

    async def _ask(self, connection: "PeerDriver", request: Ask) -> None:
        await self._serve(connection, request, self.asks.answer(connection.principal, request), {})

    async def _serve(
        self, connection: "PeerDriver", request: Ask | Admin, answer: Awaitable[object], fields: dict[str, str]
    ) -> object:
        """Wait for the answer, whatever it is, and tell it; the answer, or the error that was told."""
        result: object
        try:
            result = await answer
        except StorageFailed as error:
            self.fatal(error)
            result = error
        except VibeMQError as error:
            self.metrics.not_authorized += isinstance(error, NotAuthorized)
            result = error
        except Exception:
            log.exception("%s failed", request.verb, extra={**fields, "remote": connection.host})
            self.metrics.errors += 1
            result = VibeMQError("the broker could not do this; its log says why")
        finally:
            connection.pending -= 1
        if not connection.ending:
            connection.lane.tell([Reply(connection.number, request.token, result)])
        connection.wake()
        return result

    def _turn_away(self, connection: "PeerDriver", request: Ask | Admin) -> None:
        self.metrics.rate_limited += 1
        busy = f"{PENDING_MAX} requests of this connection are under way; wait for an answer"
        connection.session.refused(request.token, RateLimited(busy))

    # -- operators --------------------------------------------------------------------------------------------------

    def administer(self, connection: "PeerDriver", request: Admin) -> None:
        principal = connection.principal
        if not self.authority.allows(principal, Action.ADMIN, ""):
            self.metrics.not_authorized += 1
            connection.session.refused(request.token, self.authority.refusal(principal, Action.ADMIN, ""))
            return
        if connection.pending >= PENDING_MAX:
            self._turn_away(connection, request)
            return
        connection.pending += 1
        self.errands.begin(self._administer, connection, request, failed=connection.failed)

    async def _administer(self, connection: "PeerDriver", request: Admin) -> None:
        principal = connection.principal
        fields = {"event": "admin", "verb": request.verb, "user": principal.name if principal else ""}
        result = await self._serve(connection, request, self._in_turn(request), fields)
        said = result if isinstance(result, VibeMQError) else "done"
        log.info("admin %s: %s", request.verb, said, extra={**fields, "remote": connection.host})

    async def _in_turn(self, request: Admin) -> object:
        async with self._admin_slots:
            return await self.admin.answer(request.verb, request.arguments)
