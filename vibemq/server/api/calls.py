"""Operations for requests over HTTP: the same registry, rights and audit lines as for every peer, without a peer."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from vibemq.errors import AuthError, RateLimited, VibeMQError
from vibemq.model.commands import Command
from vibemq.operations import Call
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.local_session import LocalSession
from vibemq.server.net.operation_runner import OperationRunner
from vibemq.web.api.services import Asker, OperationAnswer

Outcome = TypeVar("Outcome")


class ApiCalls:
    """What is asked for is carried out to its end, also when nobody waits for the answer any more: a change that is
    half done would be worse."""

    def __init__(
        self,
        runner: OperationRunner,
        local: LocalSession,
        command_audit: CommandAudit,
        background_tasks: BackgroundTasks,
    ) -> None:
        self._runner = runner
        self._local = local
        self._command_audit = command_audit
        self._background_tasks = background_tasks

    def admit(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> None:
        """Raises VibeMQError."""
        self._runner.admit_for(asker, asker.principal, operation, arguments)

    def refused(self, error: AuthError | RateLimited) -> None:
        self._runner.note_refused(error)

    def failed(self) -> None:
        self._runner.note_fault()

    def outcome_of(
        self, work: Callable[..., Coroutine[Any, Any, Outcome]], *arguments: Any
    ) -> "asyncio.Future[Outcome]":
        return self._background_tasks.outcome_of(work, *arguments)

    async def ask(self, asker: Asker, operation: str, arguments: Mapping[str, Any]) -> OperationAnswer:
        """Raises VibeMQError."""
        call = self._runner.admit_for(asker, asker.principal, operation, arguments)
        return await asyncio.shield(self._background_tasks.outcome_of(self._answered, asker, call))

    async def _answered(self, asker: Asker, call: Call) -> OperationAnswer:
        if call.operation.command is not None and call.command(0, None) is not None:
            reply = await self._local.ask_whole(lambda session, token: self._command(asker, call, session, token))
            return OperationAnswer(reply.result, reply.unchanged)
        result = await self._runner.carried_out(asker, call)
        if isinstance(result, VibeMQError):
            raise result
        return OperationAnswer(result, call.changed_nothing(result))

    def _command(self, asker: Asker, call: Call, session: int, token: Any) -> Command:
        command = call.command(session, token)
        assert command is not None, "it was one a moment ago"
        if call.operation.audited:
            self._command_audit.mark(asker, asker.principal, command, call.told(None))
        return command
