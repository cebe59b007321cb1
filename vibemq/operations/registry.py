"""The one registry of operations: requests by name, as every door carries them.

An operation is declared once: its name, its arguments as a pydantic model, one sentence, and how it is carried out.

    command   a short one: it becomes a command of the engine and keeps its place among the connection's other commands
    task      a long one: a coroutine of its own, begun after everything before it was decided

What it needs stands in `vibemq.auth.matrix`; an operation without a row there cannot be declared.
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from typing import Any, Generic, TypeVar

from vibemq.auth.matrix import Row, permissions_of
from vibemq.auth.policy import Actor, Policy
from vibemq.errors import AuthError, AuthFailed, UnknownCommand
from vibemq.model.access import Principal
from vibemq.model.commands import Command
from vibemq.operations.arguments import Arguments, CanBeTried, read
from vibemq.operations.contracts import CommandSession, KeepsForSessions

A = TypeVar("A", bound=Arguments)
_TOLD_OF_RESULTS = ("token_id", "job", "changes", "failed")
"""What the audit log names of an answer: what was made, and what an edit has changed, without its contents."""
TOLD_AT_ONCE = 20
TOLD_BYTES_AT_ONCE = 1_500
"""Of names in one line of the audit log, which shows so many whole."""
NAME_SHOWN = 64


@dataclass(slots=True)
class DoneSoFar:
    """How many things an operation that goes by steps has changed so far."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class Caller:
    """On whose behalf an operation runs."""

    principal: Principal | None
    actor: Actor
    session: int = 0
    """Whose request it is; 0 = that of no connection."""
    check_again: Callable[[], object] = field(default=lambda: None, repr=False, compare=False)
    """Asks once more for the login and the rights of the operation, for one that has waited. Raises AuthFailed,
    NotAuthorized."""
    done: DoneSoFar = field(default_factory=DoneSoFar, repr=False, compare=False)

    async def step(self, local: CommandSession, make: Callable[[int, int], Command]) -> Any:
        """Have a step of the operation decided, as `CommandSession.ask`, if the caller may still have it done. Nothing
        is awaited between the question and the engine's turn: no step begins after a revocation was answered.

        Raises:
            AuthFailed, NotAuthorized: nothing of the step is done; the steps before it are.
        """
        self.check_again()
        return await local.ask(make)

    def owned(self, command: Command) -> Command:
        """The command, told whose groups and stages it may touch, where it asks for that."""
        for name, value in (("user", self.actor.user), ("manage", self.actor.may_manage)):
            if hasattr(command, name):
                setattr(command, name, value)
        return command


ToCommand = Callable[[Any, Caller, int, Any, A], Command | None]
"""(service, caller, session, token, arguments) -> the engine's command; None: these arguments need the task."""
AsTask = Callable[[Any, Caller, A], Awaitable[Any]]
"""(service, caller, arguments) -> something JSON-ready, or a `Fetched`."""


class OwnLimit(Enum):
    """For whom requests are counted."""

    USER = auto()
    USER_AND_ADDRESS = auto()
    """Whoever knows a user's password at another address does not use up what the user may do."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[A]):
    """One declaration."""

    name: str
    summary: str
    arguments: type[A]
    service: type[Any]
    """Whose methods carry it out."""
    command: ToCommand[A] | None = None
    task: AsTask[A] | None = None
    scans: bool = False
    """Reads much: only a few of these run at a time."""
    logged: bool = False
    """An operator's act, which the broker's log names; one that only looks at level debug, unless it was refused."""
    audited: bool = False
    """Changes what others may do or have: the audit log names who asked for it, and what became of it."""
    nothing_done: tuple[str, bool] | None = None
    """Of a long one: a member of its answer, and what it is when there was nothing to do, and there is nothing to write
    down."""
    not_told: tuple[str, ...] = ()
    """Arguments that the audit log does not name, because of their size: the answer tells what became of them."""
    limited_per: OwnLimit | None = None
    """Of a long one: users may ask for it without any right, and each time leaves something behind. How often one does
    it is limited; superusers are not."""
    told_in_pieces: str = ""
    """Of a long one: the list in its answer that stands in the audit log whole, in as many lines as it takes."""
    reads_bodies: Callable[[A], bool] | None = None
    """Whether such a request is answered with bodies of messages, which `audit_reads` has written down; None: never."""
    becomes: type[Any] | None = None
    """Of a short one that is audited: the command, which sessions ask for by their own words too."""
    permissions: Row = field(init=False)

    def __post_init__(self) -> None:
        """Raises LookupError without a row in `vibemq.auth.matrix`."""
        object.__setattr__(self, "permissions", permissions_of(self.name))
        if self.command is None and self.task is None:
            raise LookupError(f"operation {self.name} has nothing that carries it out")
        if (self.becomes is not None) != (self.audited and self.command is not None):
            raise LookupError(f"operation {self.name}: only an audited command says which command it becomes")


@dataclass(frozen=True, slots=True)
class Call:
    """An operation that was admitted, with arguments that were read."""

    operation: Operation[Any]
    service: Any
    caller: Caller
    arguments: Arguments

    @property
    def is_dry_run(self) -> bool:
        return bool(getattr(self.arguments, "dry_run", False))

    @property
    def messages(self) -> int:
        """How many it publishes, as it was asked to."""
        return len(getattr(self.arguments, "messages", None) or ())

    def command(self, session: int, token: Any) -> Command | None:
        """The engine's command; None for a long operation. Raises InvalidOptions and the like."""
        make = self.operation.command
        return None if make is None else make(self.service, self.caller, session, token, self.arguments)

    async def run(self) -> Any:
        """The answer of a long operation. Raises errors of the family. One that tells that the caller may not go on
        says how much was done before."""
        assert self.operation.task is not None
        try:
            result = await self.operation.task(self.service, self.caller, self.arguments)
        except AuthError as error:
            if done := self.caller.done.count:
                error.args = (f"{error} ({done:,} were done before)",)
            raise
        if isinstance(self.arguments, CanBeTried) and self.is_dry_run:
            return {**result, "dry_run": True}
        return result

    def changed_nothing(self, result: Any) -> bool:
        """Whether a long operation that has answered this had nothing to do."""
        if self.operation.nothing_done is None or not isinstance(result, dict):
            return False
        name, value = self.operation.nothing_done
        return result.get(name) is value

    def told(self, result: Any) -> dict[str, Any]:
        """The arguments as the audit log may name them, without secrets; which token was made, and whose it is."""
        fields = type(self.arguments).model_fields
        secret = {name for name, about in fields.items() if about.repr is False} | {*self.operation.not_told}
        if isinstance(self.arguments, CanBeTried) and not self.is_dry_run:
            secret.add("dry_run")
        told = self.arguments.model_dump(mode="json", by_alias=True, exclude=secret, exclude_none=True)
        for name in _TOLD_OF_RESULTS:
            if isinstance(result, dict) and result.get(name) is not None:
                told[name] = result[name]
        if isinstance(result, dict) and "token_id" in result:
            # Whose it is nobody can look up behind its revocation.
            told["user"] = result["user"]
        return told

    def told_pieces(self, result: Any) -> Iterator[tuple[dict[str, Any], int | None]]:
        """The same, each with the number of things that it names; None: it does not count them."""
        told, name = self.told(result), self.operation.told_in_pieces
        listed = result.get(name) if name and isinstance(result, dict) else None
        if not listed:
            yield told, None
            return
        for piece in _pieces(listed):
            yield {**told, name: piece}, len(piece)


def _pieces(listed: list[Any]) -> Iterator[list[Any]]:
    piece: list[Any] = []
    left = TOLD_BYTES_AT_ONCE
    for one in listed:
        size = len(json.dumps(one)) + 2
        if piece and (len(piece) == TOLD_AT_ONCE or size > left):
            yield piece
            piece, left = [], TOLD_BYTES_AT_ONCE
        piece.append(one)
        left -= size
    yield piece


class Registry:
    """The operations of one broker."""

    def __init__(
        self,
        policy: Policy,
        operations: Iterable[Operation[Any]],
        services: Iterable[Any],
        ended: Callable[[Principal], str] = lambda principal: "",
    ) -> None:
        """
        Args:
            services: one object of each class that the operations name.
            ended: why a login does not count any more, as a sentence; "" while it does.

        Raises:
            LookupError: a service is missing.
        """
        self._policy = policy
        self._ended = ended
        by_type: Mapping[type, Any] = {type(service): service for service in services}
        self._keepers = [service for service in by_type.values() if isinstance(service, KeepsForSessions)]
        self._operations = {operation.name: operation for operation in operations}
        missing = {o.service.__name__ for o in self._operations.values() if o.service not in by_type}
        if missing:
            raise LookupError(f"nobody carries out the operations of {', '.join(sorted(missing))}")
        self._services = {name: by_type[operation.service] for name, operation in self._operations.items()}

    def admit(self, principal: Principal | None, name: str, arguments: Mapping[str, Any], *, session: int = 0) -> Call:
        """The door of every request by name. `session`: whose request it is.

        Raises:
            UnknownCommand: names the operations there are.
            NotAuthenticated, NotAuthorized: before anything is said about the arguments.
            InvalidPayload, InvalidQueueName
        """
        operation = self._operations.get(name)
        if operation is None:
            known = ", ".join(sorted(self._operations))
            raise UnknownCommand(f"unknown operation {name[:NAME_SHOWN]!r}; known are {known}")
        check = partial(self._policy.admit, principal, operation.permissions, arguments.get, operation=name)
        actor = check()
        wanted = read(operation.arguments, name, arguments)
        caller = Caller(principal, actor, session, partial(self._check_again, principal, check))
        return Call(operation, self._services[name], caller, wanted)

    def _check_again(self, principal: Principal | None, check: Callable[[], object]) -> None:
        """For an operation that was admitted a while ago. Raises AuthFailed, NotAuthenticated, NotAuthorized."""
        if principal is not None and (reason := self._ended(principal)):
            raise AuthFailed(reason)
        check()

    def forget_session(self, session: int) -> None:
        """The session is gone, and with it what services keep between its requests."""
        for service in self._keepers:
            service.forget_session(session)

    def is_audited(self, name: str) -> bool:
        operation = self._operations.get(name)
        return operation is not None and operation.audited
