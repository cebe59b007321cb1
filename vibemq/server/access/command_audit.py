"""Audits commands of the engine that change or remove what others have, whichever protocol and words asked for them.

A command that a protocol asks for on the way to something else (`implied`) is written down when it has changed
something; that there was nothing to change, or no right to, is nothing that its user has asked for.

A command is marked when it is admitted; the answer brings the mark back, when its durability holds. So the line says
what became of it, also when nobody is there any more to hear the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vibemq.errors import AuthError, NotAuthorized, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import Command, CreateQueue
from vibemq.model.effects import Counted, Effect, Reply
from vibemq.model.options import QueueOptions, options_in_words, options_to_dict
from vibemq.server.access.audit import AuditedPeer, AuditLog

_NOT_TOLD = frozenset({"session", "token", "implied", "mode", "dry_run"})
_OPTIONS = ("options", "changes")
"""Arguments that are options of queues."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """In the place of a command's token, which it keeps; refers to nothing of the peer's that is large."""

    token: Any
    host: str
    connection_id: str
    protocol: str
    principal: Principal | None
    operation: str
    arguments: Mapping[str, Any]
    implied: bool


class CommandAudit:
    """Args:
    operations: the operation that each audited command is.
    """

    def __init__(self, audit: AuditLog, operations: Mapping[type, str]) -> None:
        self._audit = audit
        self._operations = operations
        self.waiting = 0
        """Marked commands whose answers have not come."""

    def concerns(self, command: Command) -> bool:
        return type(command) in self._operations

    def mark(
        self,
        peer: AuditedPeer,
        principal: Principal | None,
        command: Command,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        """`arguments`: as the operation has them; left out: what the command says."""
        told = _in_words(_told(command) if arguments is None else arguments)
        operation = self._operations[type(command)]
        mark = _Mark(
            getattr(command, "token", None),
            peer.host,
            peer.connection_id,
            peer.protocol,
            principal,
            operation,
            told,
            _is_implied(command),
        )
        setattr(command, "token", mark)  # noqa: B010  # not every command has one
        self.waiting += 1

    def refusal(self, command: Command) -> VibeMQError | None:
        """Why an audited command may not be decided now, although its user may ask for it."""
        return self._audit.refusal(self._operations[type(command)])

    def denied(self, peer: AuditedPeer, principal: Principal | None, command: Command, refusal: VibeMQError) -> None:
        """If it concerns an audited command, and is no want of a right that anybody may overcome by waiting."""
        if isinstance(refusal, AuthError) and self.concerns(command) and not _is_implied(command):
            self._audit.denied(
                peer,
                principal,
                self._operations[type(command)],
                str(refusal),
                lambda name: getattr(command, name, None),
            )

    def note(self, effects: Sequence[Effect]) -> None:
        """Write down answers to marked commands, and give them their tokens back."""
        if not self.waiting:
            return
        for effect in effects:
            if isinstance(effect, Reply) and isinstance(mark := effect.token, _Mark):
                effect.token = mark.token
                self.waiting -= 1
                result = effect.result
                reason = str(result) if isinstance(result, VibeMQError) else ""
                count = result.count if isinstance(result, Counted) else None
                if reason and mark.implied:
                    continue
                if isinstance(result, NotAuthorized):
                    self._audit.denied(mark, mark.principal, mark.operation, reason, arguments=mark.arguments)
                    continue
                self._audit.changed(
                    mark,
                    mark.principal,
                    mark.operation,
                    mark.arguments,
                    reason,
                    unchanged=effect.unchanged or count == 0,
                    count=count,
                )


def _is_implied(command: Command) -> bool:
    return isinstance(command, CreateQueue) and command.implied


def _told(command: Command) -> dict[str, Any]:
    values = {f.name: getattr(command, f.name) for f in fields(command) if f.name not in _NOT_TOLD}
    return {
        name: options_to_dict(value) if isinstance(value, QueueOptions) else value
        for name, value in values.items()
        if value is not None
    }


def _in_words(arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Options of queues with the names of choices, whatever the client has sent."""
    words = {
        name: options_in_words(options) for name in _OPTIONS if isinstance(options := arguments.get(name), Mapping)
    }
    return {**arguments, **words} if words else arguments
