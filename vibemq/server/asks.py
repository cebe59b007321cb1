"""The desk for requests of readers by range and of transactions: who may, and who answers (docs/spec/cursor.md)."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from vibemq.auth.matrix import permissions_of
from vibemq.auth.policy import Actor, Policy
from vibemq.errors import UnknownCommand
from vibemq.model.access import Principal
from vibemq.model.commands import Command
from vibemq.operations.long_polls import LongPolls
from vibemq.protocols.session import Ask
from vibemq.server.arguments import Arguments, number, text, text_or_none, texts
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.cursors import Cursors
from vibemq.server.fetching import Fetching
from vibemq.server.net.local_session import LocalSession
from vibemq.server.transactions import Transactions

TAG_MAX = 256

Verb = Callable[[str, Arguments], Awaitable[Any]]


class AskDesk:
    """Answers one request at a time; every answer is JSON-ready or a `Fetched`."""

    def __init__(
        self,
        policy: Policy,
        engine: QueueEngine,
        store: Store,
        inner: LocalSession,
        waiters: LongPolls,
        transactions: Transactions,
    ) -> None:
        self._policy = policy
        self._engine = engine
        self._store = store
        self._inner = inner
        self._waiters = waiters
        self._transactions = transactions
        self._rows = {verb: permissions_of(verb) for verb in self._verbs_for(Actor(""))}

    async def answer(self, principal: Principal | None, ask: Ask) -> Any:
        """Raises an error of the family; UnknownCommand names the verbs there are."""
        row = self._rows.get(ask.verb)
        if row is None:
            raise UnknownCommand(f"unknown verb {ask.verb[:64]!r}; known are {', '.join(sorted(self._rows))}")
        named = {**ask.arguments, "queue": ask.queue}
        actor = self._policy.admit(principal, row, named.get)
        return await self._verbs_for(actor)[ask.verb](ask.queue, ask.arguments)

    def _verbs_for(self, actor: Actor) -> Mapping[str, Verb]:
        inner = ActingSession(self._inner, actor)
        cursors = Cursors(self._engine, self._store, inner, self._waiters)
        fetching = Fetching(self._engine, self._store, inner)
        decisions = Decisions(self._transactions, actor)
        return {
            "group.join": cursors.join,
            "group.offsets": cursors.offsets,
            "group.advance": cursors.advance,
            "group.split": cursors.split,
            "group.fetch": fetching.fetch,
            "group.commit": cursors.commit,
            "group.reject": cursors.reject,
            "group.quarantine": cursors.quarantine,
            "group.set": cursors.set,
            "group.seek": cursors.seek,
            "group.delete": cursors.delete,
            "group.list": cursors.groups,
            "dead.offsets": fetching.dead_offsets,
            "dead.fetch": fetching.dead_fetch,
            "dead.redrive": fetching.redrive,
            "transaction.commit": decisions.commit,
            "transaction.abort": decisions.abort,
            "transaction.last": decisions.last,
        }


class ActingSession:
    """The server's own session with the engine, on behalf of a user: what it asks says for whom."""

    def __init__(self, inner: LocalSession, actor: Actor) -> None:
        self._inner = inner
        self._actor = actor

    async def ask(self, make: Callable[[int, int], Command]) -> Any:
        """As `InnerSession.ask`."""

        def made(session: int, token: int) -> Command:
            command = make(session, token)
            if hasattr(command, "user"):
                command.user = self._actor.user
            if hasattr(command, "manage"):
                command.manage = self._actor.may_manage
            return command

        return await self._inner.ask(made)


class Decisions:
    """The verbs of transactions, on behalf of a user."""

    def __init__(self, transactions: Transactions, actor: Actor) -> None:
        self._transactions = transactions
        self._user = actor.user

    async def commit(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        app, version = text(arguments, "app"), number(arguments, "version")
        tag = text_or_none(arguments, "tag") or ""
        return await self._transactions.commit(app, version, texts(arguments, "stages"), tag[:TAG_MAX], self._user)

    async def abort(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        app, version = text(arguments, "app"), number(arguments, "version")
        await self._transactions.abort(app, version, texts(arguments, "stages"), self._user)
        return {}

    async def last(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        return {"version": self._transactions.last(text(arguments, "app"), self._user)}
