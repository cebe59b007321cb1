"""The desk for requests of readers by range and of transactions: who may, and who answers (docs/spec/cursor.md)."""

from collections.abc import Awaitable, Callable
from typing import Any

from vibemq.engine.handlers.transactions import stage_name
from vibemq.errors import UnknownCommand
from vibemq.protocols.session import Ask, Principal
from vibemq.server.arguments import Arguments, number, text, text_or_none, texts
from vibemq.server.authority import Action, Authority
from vibemq.server.cursors import Cursors
from vibemq.server.fetching import Fetching
from vibemq.server.transactions import Transactions

TAG_MAX = 256

Verb = Callable[[str, Arguments], Awaitable[Any]]


class AskDesk:
    """Answers one request at a time; every answer is JSON-ready or a `Fetched`."""

    def __init__(self, authority: Authority, cursors: Cursors, fetching: Fetching, transactions: Transactions) -> None:
        self._authority = authority
        self._transactions = transactions
        self._verbs: dict[str, tuple[Action, Verb]] = {
            "group.join": (Action.SUBSCRIBE, cursors.join),
            "group.offsets": (Action.SUBSCRIBE, cursors.offsets),
            "group.advance": (Action.SUBSCRIBE, cursors.advance),
            "group.split": (Action.SUBSCRIBE, cursors.split),
            "group.fetch": (Action.SUBSCRIBE, fetching.fetch),
            "group.commit": (Action.SUBSCRIBE, cursors.commit),
            "group.reject": (Action.SUBSCRIBE, cursors.reject),
            "group.quarantine": (Action.SUBSCRIBE, cursors.quarantine),
            "group.set": (Action.SUBSCRIBE, cursors.set),
            "group.seek": (Action.SUBSCRIBE, cursors.seek),
            "group.delete": (Action.SUBSCRIBE, cursors.delete),
            "group.list": (Action.SUBSCRIBE, cursors.groups),
            "dead.offsets": (Action.INSPECT, fetching.dead_offsets),
            "dead.fetch": (Action.INSPECT, fetching.dead_fetch),
            "dead.redrive": (Action.PURGE, fetching.redrive),
            "transaction.commit": (Action.OWN, self._commit),
            "transaction.abort": (Action.OWN, self._abort),
            "transaction.last": (Action.OWN, self._last),
        }

    async def answer(self, principal: Principal | None, ask: Ask) -> Any:
        """Raises an error of the family; UnknownCommand names the verbs there are."""
        known = self._verbs.get(ask.verb)
        if known is None:
            raise UnknownCommand(f"unknown verb {ask.verb[:64]!r}; known are {', '.join(sorted(self._verbs))}")
        action, verb = known
        self._authority.authorize(principal, action, ask.queue)
        if ask.verb == "dead.redrive":
            target = ask.arguments.get("to")
            self._authority.authorize(principal, Action.PUBLISH, target if isinstance(target, str) else ask.queue)
        return await verb(ask.queue, ask.arguments)

    async def _commit(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        app, version = text(arguments, "app"), number(arguments, "version")
        tag = text_or_none(arguments, "tag") or ""
        return await self._transactions.commit(app, version, texts(arguments, "stages"), tag[:TAG_MAX])

    async def _abort(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        app, version = text(arguments, "app"), number(arguments, "version")
        await self._transactions.drop([stage_name(app, version, stage) for stage in texts(arguments, "stages")])
        return {}

    async def _last(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        return {"version": self._transactions.last(text(arguments, "app"))}
