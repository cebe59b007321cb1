"""What a peer has asked for: admitted, written to the audit log, and decided in order."""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from vibemq.errors import NotAuthorized, VibeMQError
from vibemq.model.commands import Command, ListQueues, Publish
from vibemq.model.rows import LargeRow
from vibemq.protocols.session import Authenticate, Goodbye, OperationRequest, Request, Session
from vibemq.server.access.admission import PeerAdmission
from vibemq.server.access.authenticator import AuthenticatedPeer, Authenticator
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.driving.works import PeerWorks, WorkingPeer
from vibemq.server.net.operation_runner import OperatingPeer, OperationRunner

NEVER_LOOKED = -1


class AskingPeer(OperatingPeer, AuthenticatedPeer, WorkingPeer, Protocol):
    """The peer, as its requests see it."""

    connection_id: str
    host: str
    protocol: str
    session: Session
    wake: Callable[[], None]
    parted: bool

    def leave(self, *, clean: bool) -> None: ...


class PeerRequests:
    """The peer is an argument, so that nothing here refers to who refers to it."""

    def __init__(
        self,
        works: PeerWorks,
        guard: PeerAdmission,
        authenticator: Authenticator,
        operations: OperationRunner,
        metrics: Metrics,
    ) -> None:
        self._works = works
        self._guard = guard
        self._authenticator = authenticator
        self._operations = operations
        self._command_audit = operations.command_audit
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[Request] = deque()
        """What the session has understood, behind a long batch."""
        self._logins_version = NEVER_LOOKED
        """As it was when the peer's login was found to count. A peer that is made for a login may come too late."""
        self.said_goodbye = False
        """Among the `last` requests."""

    def handle(self, peer: AskingPeer) -> None:
        """Handle requests in order, up to one that has to wait until a long batch before it is decided."""
        batch: list[Command] = []
        now, asked = self._loop.time(), self.waiting
        if self._login_has_ended(peer):
            asked.clear()
        while asked:
            request = asked[0]
            if isinstance(request, Authenticate):
                if self._decide(peer, batch):
                    return
                self._authenticator.authenticate(peer, request)
            elif isinstance(request, OperationRequest):
                if not self._operate(peer, request, batch, now):
                    return
            elif isinstance(request, Goodbye):
                if self._decide(peer, batch):
                    return
                asked.clear()
                peer.leave(clean=True)
                return
            elif (refusal := self._guard.check(peer.principal, request, now)) is not None:
                self._command_audit.denied(peer, peer.principal, request, refusal)
                peer.session.refused(getattr(request, "token", None), refusal)
            elif type(request) is Publish and type(request.rows) is LargeRow:
                # What was asked before keeps its place before it.
                self._decide(peer, batch)
                if self._works.prepare(peer, request, request.rows, partial(self._refusal, peer)):
                    asked.popleft()
                    return
                batch.append(request)
            else:
                if isinstance(request, ListQueues):
                    request.visible = viewer = self._guard.viewer(peer.principal)
                    request.patterns = viewer.patterns
                elif self._command_audit.concerns(request):
                    if (blocked := self._command_audit.refusal(request)) is not None:
                        peer.session.refused(getattr(request, "token", None), blocked)
                        asked.popleft()
                        continue
                    self._command_audit.mark(peer, peer.principal, request)
                batch.append(request)
            asked.popleft()
        self._decide(peer, batch)

    def _refusal(self, peer: AskingPeer, publish: Publish) -> VibeMQError | None:
        return self._guard.refusal(peer.principal, publish)

    def _operate(self, peer: AskingPeer, request: OperationRequest, batch: list[Command], now: float) -> bool:
        """A short operation takes its place in the batch; a long one begins behind it. False: it has to wait."""
        try:
            call = self._operations.admit(peer, request.name, request.arguments)
            command = call.command(peer.number, request.token)
        except VibeMQError as refusal:
            self._metrics.not_authorized += isinstance(refusal, NotAuthorized)
            peer.session.refused(request.token, refusal)
            return True
        if command is None:
            if self._decide(peer, batch):
                return False
            if (limited := self._guard.take_messages(call.messages, now)) is not None:
                peer.session.refused(request.token, limited)
            else:
                self._operations.begin(peer, request.token, call)
        elif (limited := self._guard.take(command, now)) is not None:
            peer.session.refused(request.token, limited)
        else:
            if call.operation.audited:
                self._command_audit.mark(peer, peer.principal, command, call.told(None))
            batch.append(command)
        return True

    def _decide(self, peer: AskingPeer, batch: list[Command]) -> bool:
        """Have it decided, the first step at once; whether something of it is left to do."""
        if batch:
            commands = list(batch)
            batch.clear()
            self._works.decide(peer, commands)
        return bool(self._works.lined_up)

    def _login_has_ended(self, peer: AskingPeer) -> bool:
        """A change of users looks at the connections one after the other: what this one asks must not pass before its
        turn."""
        version = self._authenticator.logins_version
        if version == self._logins_version:
            return False
        if self._authenticator.has_ended(peer):
            return True
        self._logins_version = version
        return False

    def last(self, peer: AskingPeer) -> list[Command]:
        """Of the requests behind a long batch, those that need no answer to have their effect."""
        commands: list[Command] = []
        now = self._loop.time()
        if self._login_has_ended(peer):
            self.waiting.clear()
        while self.waiting:
            request = self.waiting.popleft()
            if isinstance(request, Goodbye):
                self.said_goodbye = True
            elif isinstance(request, Authenticate | OperationRequest):
                continue
            elif type(request) is Publish and type(request.rows) is LargeRow:
                # Nobody hears of it, and written in one piece it would hold up everybody.
                continue
            elif (refusal := self._guard.check(peer.principal, request, now)) is not None:
                self._command_audit.denied(peer, peer.principal, request, refusal)
            else:
                if self._command_audit.concerns(request):
                    if self._command_audit.refusal(request) is not None:
                        continue
                    self._command_audit.mark(peer, peer.principal, request)
                commands.append(request)
        return commands
