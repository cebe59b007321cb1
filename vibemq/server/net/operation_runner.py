"""Operations of peers: the check at the door, and the long ones in tasks of their own."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from vibemq.auth.tokens import masked
from vibemq.auth.users import ANONYMOUS
from vibemq.errors import AuthError, NotAuthorized, RateLimited, StorageFailed, VibeMQError, forget_frames
from vibemq.operations import Call, OwnLimit, Registry
from vibemq.protocols.session import Principal, Session
from vibemq.server.access.audit import AuditedPeer, AuditLog
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.access.guessing import address_of
from vibemq.server.access.limits import KeyedLimiter
from vibemq.server.access.scan_slots import ScanSlots
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.monitoring.metrics import Metrics

log = logging.getLogger("vibemq.requests")

PENDING_MAX = 32
SCANS_TOGETHER_MAX = 8
OWN_CHANGES_AT_ONCE = 60
OWN_CHANGE_EVERY_S = 10
"""Changes that users may make of themselves without any right: their records must not push others out of the audit
files, and each is a write of the store."""


class OperatingPeer(AuditedPeer, Protocol):
    """What an operation needs of the peer that asks (`vibemq.server.net.peer_driver.PeerDriver`)."""

    number: int
    session: Session
    pending: int
    wake: Callable[[], None]

    @property
    def principal(self) -> Principal | None: ...

    @property
    def hears_answers(self) -> bool: ...

    def answer(self, token: object, result: object) -> None: ...

    def failed(self, error: Exception) -> None: ...


class OperationRunner:
    def __init__(
        self,
        registry: Registry,
        background_tasks: BackgroundTasks,
        metrics: Metrics,
        audit: AuditLog,
        command_audit: CommandAudit,
        fatal: Callable[[BaseException], None],
        monotonic: Callable[[], float],
    ) -> None:
        """
        Args:
            command_audit: for the short ones, and for commands of other words.
            monotonic: seconds.
        """
        self.command_audit = command_audit
        self._registry = registry
        self._background_tasks = background_tasks
        self._metrics = metrics
        self._audit = audit
        self._fatal = fatal
        self._monotonic = monotonic
        self._scan_slots = ScanSlots(SCANS_TOGETHER_MAX)
        self._own_changes = KeyedLimiter(1 / OWN_CHANGE_EVERY_S, OWN_CHANGES_AT_ONCE)
        """By user."""

    def admit(self, peer: OperatingPeer, name: str, arguments: Mapping[str, Any]) -> Call:
        """As `Registry.admit`."""
        return self.admit_for(peer, peer.principal, name, arguments, session=peer.number)

    def admit_for(
        self,
        place: AuditedPeer,
        principal: Principal | None,
        name: str,
        arguments: Mapping[str, Any],
        *,
        session: int = 0,
    ) -> Call:
        """The same for somebody who is no peer; `place`: where the request comes from, for the audit log."""
        try:
            call = self._registry.admit(principal, name, arguments, session=session)
        except AuthError as error:
            if session == 0:
                self.note_refused(error)
            if self._registry.is_audited(name):
                self._audit.denied(place, principal, name, str(error), arguments.get)
            raise
        if call.operation.audited and (blocked := self._audit.refusal(name)) is not None:
            raise blocked
        return call

    def note_refused(self, error: AuthError | RateLimited) -> None:
        """Of a request by nobody's session; those of sessions are counted where these are refused."""
        self._metrics.not_authorized += isinstance(error, NotAuthorized)
        self._metrics.rate_limited += isinstance(error, RateLimited)

    def note_fault(self) -> None:
        """Of a request that is no operation; its log has the reason."""
        self._metrics.errors += 1

    def forget(self, session: int) -> None:
        """The session is gone."""
        self._registry.forget_session(session)

    def begin(self, peer: OperatingPeer, token: object, call: Call) -> None:
        """Carry out a long operation in a task of its own."""
        if peer.pending >= PENDING_MAX:
            self._metrics.rate_limited += 1
            busy = f"{PENDING_MAX} requests of this connection are under way; wait for an answer"
            peer.session.refused(token, RateLimited(busy))
            return
        peer.pending += 1
        self._background_tasks.begin(self._carry_out, peer, token, call, failed=peer.failed)

    async def _carry_out(self, peer: OperatingPeer, token: object, call: Call) -> None:
        try:
            result = await self.carried_out(peer, call)
        finally:
            peer.pending -= 1
        if peer.hears_answers:
            peer.answer(token, result)
        else:
            # It may have ended before this operation kept something for it.
            self.forget(peer.number)
        peer.wake()

    async def carried_out(self, place: AuditedPeer, call: Call) -> object:
        """The answer of a long operation, or the error that it has ended with; logged and audited.

        `place`: where the request comes from.
        """
        if (too_often := self._refusal_of_own(place, call)) is not None:
            return too_often
        operation, principal = call.operation, call.caller.principal
        fields = {"event": "admin", "verb": operation.name, "user": principal.name if principal else ""}
        result: object
        try:
            result = await self._run(call, place.host)
        except StorageFailed as error:
            self._fatal(error)
            result = error
        except VibeMQError as error:
            self._metrics.not_authorized += isinstance(error, NotAuthorized)
            result = error
            forget_frames(error)
        except Exception:
            log.exception("%s failed", operation.name, extra={**fields, "remote": place.host})
            self._metrics.errors += 1
            result = VibeMQError("the broker could not carry out the request; its log has the reason")
        if operation.logged:
            refused = isinstance(result, VibeMQError)
            done = "would be done; it was a dry run" if call.is_dry_run else "done"
            said = masked(str(result)) if refused else done
            # An open page looks once a second.
            level = logging.INFO if operation.audited or refused else logging.DEBUG
            log.log(level, "admin %s: %s", operation.name, said, extra={**fields, "remote": place.host})
        if not isinstance(result, VibeMQError):
            self.note_read(place, call)
        if operation.audited:
            self._note_change(place, call, result)
        return result

    def _note_change(self, place: AuditedPeer, call: Call, result: object) -> None:
        operation, principal = call.operation, call.caller.principal
        failed, done = isinstance(result, VibeMQError), call.caller.done.count
        reason = str(result) if failed else ""
        if isinstance(result, NotAuthorized) and not done:
            # What it needs depends on what it is about, as of a job.
            self._audit.denied(place, principal, operation.name, reason, arguments=call.told(result))
            return
        # What an error has ended is done as far as it had come.
        count = (done or None) if failed else _count_in(result)
        # A quarantine of messages that are gone is one all the same: where it matters, the answer says so itself.
        nothing = call.changed_nothing(result) if operation.nothing_done is not None else count == 0
        for told, part in call.told_pieces(result):
            self._audit.changed(
                place,
                principal,
                operation.name,
                told,
                reason,
                unchanged=nothing,
                count=count if part is None else part,
            )

    def note_read(self, place: AuditedPeer, call: Call) -> None:
        """Bodies are on their way to whoever asked for them."""
        reads = call.operation.reads_bodies
        if reads is not None and reads(call.arguments):
            self._audit.read(place, call.caller.principal, call.operation.name, call.told(None))

    def _refusal_of_own(self, place: AuditedPeer, call: Call) -> RateLimited | None:
        """By operation, so that nobody who makes tokens with a leaked password keeps its owner from changing it."""
        principal, operation = call.caller.principal, call.operation
        if operation.limited_per is None or principal is None or principal.superuser:
            return None
        address = address_of(place.host) if operation.limited_per is OwnLimit.USER_AND_ADDRESS else ""
        # What is tried leaves a record where it is refused; it takes nothing of what may be changed.
        counted = f"{operation.name} {'tried' if call.is_dry_run else 'done'} {address} {principal.name}"
        if self._own_changes.take(counted, self._monotonic()):
            return None
        self._metrics.rate_limited += 1
        refusal = RateLimited(
            f"user {principal.name!r} asks for {operation.name} too often; behind {OWN_CHANGES_AT_ONCE} at once, one "
            f"such request is carried out every {OWN_CHANGE_EVERY_S} s; try again in {OWN_CHANGE_EVERY_S} s"
        )
        refusal.wait_s = OWN_CHANGE_EVERY_S
        return refusal

    async def _run(self, call: Call, host: str) -> object:
        if not call.operation.scans:
            return await call.run()
        principal = call.caller.principal
        # Without users it is the address.
        owner = address_of(host) if principal is None or principal.name == ANONYMOUS.name else principal.name
        async with self._scan_slots.hold(owner):
            # It may have waited for long.
            call.caller.check_again()
            return await call.run()


_COUNTS = ("count", "closed", "redirected", "moved", "removed", "redriven", "quarantined")
"""Where answers say how many things they concern."""


def _count_in(result: object) -> int | None:
    if not isinstance(result, dict):
        return None
    return next((result[name] for name in _COUNTS if isinstance(result.get(name), int)), None)
