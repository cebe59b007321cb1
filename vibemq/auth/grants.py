"""What one connection may do: the policy's answers about its commands, kept for as long as the policy stands."""

from typing import cast

from vibemq.auth.matrix import COMMANDS, NEVER, Row
from vibemq.auth.policy import Policy
from vibemq.errors import AuthError, VibeMQError, forget_frames
from vibemq.model.access import Principal, ResourceKind
from vibemq.model.commands import Command, DeleteGroup, FilterGroup, Publish, SeekGroup, Stage, Subscribe

KNOWN_MAX = 1024
"""Queue names come from the peer: a client that walks through names must not grow this without end."""

_BY_QUEUE: frozenset[type] = frozenset(
    kind
    for kind, row in COMMANDS.items()
    if all(need.kind in (ResourceKind.QUEUE, ResourceKind.SESSION, ResourceKind.BROKER) for need in row)
    and kind is not Subscribe
)
"""Commands whose answer depends on nothing but the queue, and that need not say for whom they are."""
_NOBODYS: Row = (NEVER,)


class Grants:
    """Remembers answers until the principal or the policy changes: one look into a dict for a command."""

    __slots__ = ("_known", "_policy", "_principal", "_version")

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._version = policy.version
        self._principal: Principal | None = None
        self._known: dict[tuple[type, str], bool] = {}
        """Commands that may go on: as they are (True), or without creating their queue (False)."""

    def check(self, principal: Principal | None, command: Command) -> VibeMQError | None:
        """None when the command may go on, and then it says for whom; else the refusal."""
        if principal is not self._principal or self._version != self._policy.version:
            self._principal, self._version = principal, self._policy.version
            self._known.clear()
        known = self._known.get((type(command), getattr(command, "queue", "")))
        if known is None:
            return self._ask(principal, command)
        if not known:
            # Only those of publishes are kept.
            cast(Publish, command).create = False
        return None

    def _ask(self, principal: Principal | None, command: Command) -> VibeMQError | None:
        kind = type(command)
        try:
            actor = self._policy.admit(
                principal, COMMANDS.get(kind, _NOBODYS), lambda name: getattr(command, name, None)
            )
        except AuthError as error:
            # The session keeps it, and its frames would keep the peer and what it sent.
            forget_frames(error)
            return error
        if isinstance(command, Publish | Subscribe | Stage):
            command.create = command.create and actor.may_create
        if isinstance(command, Subscribe | Stage | DeleteGroup | SeekGroup | FilterGroup):
            command.user = actor.user
        if isinstance(command, DeleteGroup | SeekGroup | FilterGroup):
            command.manage = actor.may_manage
        if kind in _BY_QUEUE:
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            self._known[kind, getattr(command, "queue", "")] = actor.may_create
        return None
