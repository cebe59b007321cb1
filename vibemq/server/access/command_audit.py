"""Audits commands of the engine that change or remove what others have, whichever protocol and words asked for them.

A command is marked when it is admitted; the answer brings the mark back, when its durability holds. So the line says
what became of it, also when nobody is there any more to hear the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from vibemq.errors import AuthError, VibeMQError
from vibemq.model.access import Principal
from vibemq.model.commands import Command
from vibemq.model.effects import Effect, Reply
from vibemq.model.options import QueueOptions, options_to_dict
from vibemq.server.access.audit import AuditedPeer, AuditLog

_NOT_TOLD = frozenset({"session", "token"})


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
        told = _told(command) if arguments is None else arguments
        operation = self._operations[type(command)]
        mark = _Mark(
            getattr(command, "token", None), peer.host, peer.connection_id, peer.protocol, principal, operation, told
        )
        setattr(command, "token", mark)  # noqa: B010  # not every command has one
        self.waiting += 1

    def denied(self, peer: AuditedPeer, principal: Principal | None, command: Command, refusal: VibeMQError) -> None:
        """If it concerns an audited command, and is no want of a right that anybody may overcome by waiting."""
        if isinstance(refusal, AuthError) and self.concerns(command):
            self._audit.denied(peer, principal, self._operations[type(command)], str(refusal))

    def note(self, effects: Sequence[Effect]) -> None:
        """Write down answers to marked commands, and give them their tokens back."""
        if not self.waiting:
            return
        for effect in effects:
            if isinstance(effect, Reply) and isinstance(mark := effect.token, _Mark):
                effect.token = mark.token
                self.waiting -= 1
                reason = str(effect.result) if isinstance(effect.result, VibeMQError) else ""
                self._audit.changed(
                    mark, mark.principal, mark.operation, mark.arguments, reason, unchanged=effect.unchanged
                )


def _told(command: Command) -> dict[str, Any]:
    values = {f.name: getattr(command, f.name) for f in fields(command) if f.name not in _NOT_TOLD}
    return {
        name: options_to_dict(value) if isinstance(value, QueueOptions) else value
        for name, value in values.items()
        if value is not None
    }
