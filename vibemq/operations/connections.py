"""Connections of the broker."""

from itertools import islice
from typing import Any

from pydantic import Field

from vibemq.operations.arguments import LIMIT_MAX, Arguments, Limit, Whole, page_size
from vibemq.operations.contracts import Peers
from vibemq.operations.registry import Caller, Operation


class ConnectionListArguments(Arguments):
    after: Whole | None = Field(None, description="Go on behind this connection: `next` of the page before.")
    limit: Limit = None


class Connections:
    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    async def page(self, caller: Caller, wanted: ConnectionListArguments) -> Any:
        """Oldest first. A request without paging arguments is answered with a plain list if it fits."""
        after, limit = wanted.after or 0, page_size(wanted.limit, LIMIT_MAX)
        found = list(islice((peer for peer in self._peers if peer.number > after), limit + 1))
        shown = [peer.described() for peer in found[:limit]]
        if wanted.after is None and wanted.limit is None and len(found) <= limit:
            return shown
        return {"connections": shown, "next": found[limit - 1].number if len(found) > limit else None}


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "connections.list",
        "Who is connected, oldest first, in pages.",
        ConnectionListArguments,
        Connections,
        task=Connections.page,
        logged=True,
    ),
]
