"""What a connection may ask of the broker around it, gathered in one place and nothing more."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from anyio import CapacityLimiter, to_thread

from vibemq.auth.matrix import SUBSCRIBE
from vibemq.auth.users import ANONYMOUS, Account, Accounts
from vibemq.config import Limits
from vibemq.errors import AuthError, AuthFailed, NotAuthorized, RateLimited, StorageFailed, VibeMQError, forget_frames
from vibemq.model.commands import EndConsumers
from vibemq.model.effects import Reply
from vibemq.operations import Call, Registry
from vibemq.protocols.session import Authenticate, Session
from vibemq.server.clock import Clock
from vibemq.server.commit.committer import Committer
from vibemq.server.commit.loop_cycle import LoopCycle
from vibemq.server.commit.release_order import EffectRouter
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.admission import Admission
from vibemq.server.net.background_tasks import BackgroundTasks
from vibemq.server.net.connections import ConnectionTable
from vibemq.server.net.decider import Decider
from vibemq.server.net.limits import FailureBackoff
from vibemq.server.net.pacer import Pacer
from vibemq.server.net.peer_driver import PeerDriver
from vibemq.server.net.timers import Timers
from vibemq.server.net.transport import Connection

log = logging.getLogger("vibemq.requests")

BACKLOG_BYTES_MAX = 64 * 1024 * 1024
"""Published bytes on their way to disk; above this nobody is read from until half of it is told."""


PENDING_MAX = 32
NAME_MAX = 128
"""Characters of a name in the log that a peer has chosen."""


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    loop: asyncio.AbstractEventLoop
    engine: QueueEngine
    clock: Clock
    store: Store
    committer: Committer
    effect_router: EffectRouter
    loop_cycle: LoopCycle
    timers: Timers
    pacer: Pacer
    decider: Decider
    connection_table: ConnectionTable
    accounts: Accounts
    limits: Limits
    metrics: Metrics
    operations: Registry
    background_tasks: BackgroundTasks
    fatal: Callable[[BaseException], None]
    paused: "set[Connection]" = field(default_factory=set)
    """Connections that are not read from."""
    overloaded: bool = False
    _hashing: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    _scan_slots: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(8))
    _backoff: FailureBackoff = field(default_factory=FailureBackoff)

    def drive(
        self, session: Session, *, number: int, connection_id: str, host: str, wake: Callable[[], None]
    ) -> PeerDriver:
        """A peer with its rights and its rate limit; its deadlines are watched."""
        limit = self.limits.messages_per_client_per_second
        guard = Admission(self.accounts.policy, self.metrics, per_second=limit, now=self.loop.time())
        peer = PeerDriver(self, session, guard, number=number, connection_id=connection_id, host=host, wake=wake)
        self.timers.watch(peer)
        return peer

    def apply_backpressure(self) -> None:
        """Stop reading while too much waits for the disk; called once per loop turn."""
        backlog = self.committer.backlog_bytes
        if not self.overloaded and backlog > BACKLOG_BYTES_MAX:
            self.overloaded = True
            for connection in self.connection_table:
                connection.wake()
        elif self.overloaded and backlog < BACKLOG_BYTES_MAX // 2:
            self.overloaded = False
            for connection in list(self.paused):
                connection.wake()

    # -- people -----------------------------------------------------------------------------------------------------

    def authenticate(self, connection: PeerDriver, request: Authenticate) -> None:
        if not self.accounts.enabled:
            connection.session.authenticated(request.token, ANONYMOUS)
            return
        wait_s = self._backoff.wait_s(connection.host, self.loop.time())
        if wait_s > 0:
            self._refuse(connection, request, AuthFailed(f"too many failed attempts; try again in {wait_s:.0f} s"))
            return
        connection.pending += 1
        self.background_tasks.begin(self._authenticate, connection, request, failed=connection.failed)

    async def _authenticate(self, connection: PeerDriver, request: Authenticate) -> None:
        credentials = request.username, request.password, request.auth_token
        try:
            principal = await to_thread.run_sync(self.accounts.authenticate, *credentials, limiter=self._hashing)
        except AuthError as error:
            self._backoff.failed(connection.host, self.loop.time())
            self._refuse(connection, request, error)
        except Exception:
            fault = VibeMQError("the broker could not check the credentials; its log has the reason")
            connection.session.refused(request.token, fault)
            raise
        else:
            self._backoff.succeeded(connection.host)
            connection.session.tick(self.clock.now())
            connection.session.authenticated(request.token, principal)
            self.end_revoked(connection)
        finally:
            connection.pending -= 1
        if not connection.ending:
            connection.process()
        connection.wake()

    def end_revoked(self, connection: PeerDriver) -> None:
        """End the subscriptions that the connection's user, as the rules are now, may not have. Whose credential does
        not count any more is told so and hung up on."""
        principal, policy = connection.principal, self.accounts.policy
        if principal is None or connection.parted:
            return
        reason = self.accounts.ended(principal)
        if reason:
            fields = {"event": "auth.revoked", "conn_id": connection.connection_id, "user": principal.name}
            log.warning("connection ended: %s", reason, extra=fields)
            connection.dismiss(reason)
            return
        if connection.leaving:
            return
        ended: dict[int, VibeMQError] = {}
        for consumer, queue in self.engine.subscriptions(connection.number):
            if not policy.allows(principal, SUBSCRIBE, queue):
                ended[consumer] = policy.refusal(principal, SUBSCRIBE, queue)
        if ended:
            fields = {"event": "auth.revoked", "conn_id": connection.connection_id, "user": principal.name}
            log.warning("subscriptions ended, because the user has lost the permission: %d", len(ended), extra=fields)
            connection.decide([EndConsumers(connection.number, ended)])

    def replace_accounts(self, accounts: Iterable[Account], *, token: str | None) -> None:
        """Other users and rules, which count at once, also for what runs.

        Raises:
            ConfigInvalid: a password hash that cannot be checked; then nothing has changed.
        """
        self.accounts.replace(accounts, token=token)
        for peer in self.connection_table.peers():
            self.end_revoked(peer)

    def _refuse(self, connection: PeerDriver, request: Authenticate, error: VibeMQError) -> None:
        self.metrics.auth_failures += 1
        fields = {"event": "auth.failed", "conn_id": connection.connection_id, "remote": connection.host}
        log.warning("authentication failed", extra={**fields, "user": _shown(request.username)})
        connection.session.refused(request.token, error)

    # -- operations -------------------------------------------------------------------------------------------------

    def operate(self, connection: PeerDriver, token: object, call: Call) -> None:
        """Carry out a long operation in a task of its own."""
        if connection.pending >= PENDING_MAX:
            self.metrics.rate_limited += 1
            busy = f"{PENDING_MAX} requests of this connection are under way; wait for an answer"
            connection.session.refused(token, RateLimited(busy))
            return
        connection.pending += 1
        self.background_tasks.begin(self._operate, connection, token, call, failed=connection.failed)

    async def _operate(self, connection: PeerDriver, token: object, call: Call) -> None:
        operation, principal = call.operation, call.caller.principal
        fields = {"event": "admin", "verb": operation.name, "user": principal.name if principal else ""}
        result: object
        try:
            result = await self._run(call)
        except StorageFailed as error:
            self.fatal(error)
            result = error
        except VibeMQError as error:
            self.metrics.not_authorized += isinstance(error, NotAuthorized)
            result = error
            forget_frames(error)
        except Exception:
            log.exception("%s failed", operation.name, extra={**fields, "remote": connection.host})
            self.metrics.errors += 1
            result = VibeMQError("the broker could not carry out the request; its log has the reason")
        finally:
            connection.pending -= 1
        if operation.logged:
            said = result if isinstance(result, VibeMQError) else "done"
            log.info("admin %s: %s", operation.name, said, extra={**fields, "remote": connection.host})
        if connection.hears_answers:
            connection.release_queue.tell([Reply(connection.number, token, result)])
        connection.wake()

    async def _run(self, call: Call) -> object:
        if not call.operation.scans:
            return await call.run()
        async with self._scan_slots:
            return await call.run()


def _shown(text: str) -> str:
    """Text of a peer's choice for a line of the log: no line breaks, no escapes, not for ever."""
    return text[:NAME_MAX] if text.isprintable() else ascii(text[:NAME_MAX])
