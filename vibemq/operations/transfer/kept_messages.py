"""The one reader of what a queue keeps for anybody, a page at a time, without consuming it."""

import asyncio
from dataclasses import dataclass
from functools import partial

from vibemq.model.runs import Run, RunSet
from vibemq.model.stored import Slice
from vibemq.operations.arguments import INSTANT_MAX
from vibemq.operations.contracts import EngineQuestions, StoreAccess
from vibemq.operations.steps import in_turns
from vibemq.storage.reading import read_piece

MESSAGES_AT_ONCE = 500
"""Of one page: the engine's part of it takes about a millisecond."""


@dataclass(slots=True)
class KeptPage:
    """Messages that were there when the page was read; what was consumed in between is left out."""

    slices: list[Slice]
    held: RunSet
    """Sequences that are with a consumer."""
    next: int | None
    """Where the next page begins; None: there is nothing more."""
    ordered: bool
    """By priority."""
    ttl_ms: int
    """Of every message of the queue; 0 = no limit."""

    @property
    def runs(self) -> list[Run]:
        return [part.run for part in self.slices]


class KeptMessages:
    """Reads queues for every operation that wants whole messages of them."""

    def __init__(self, engine: EngineQuestions, store: StoreAccess) -> None:
        self._readers = engine.readers
        self._store = store

    async def page(
        self,
        queue: str,
        *,
        start: int = 0,
        below: int = INSTANT_MAX,
        max_bytes: int,
        most: int = MESSAGES_AT_ONCE,
        incarnation: str | None = None,
    ) -> KeptPage:
        """Messages of [start, below), ascending, at least one if there is one: the loop has turns in between.

        Raises:
            StorageDamaged: a message of the page cannot be read.
        """
        while True:
            kept = await in_turns(self._readers.kept(queue, start, below, most, incarnation))
            read = partial(read_piece, self._store.provider)
            piece = await self._store.read_rows(read, kept.queue_id, kept.runs, max_bytes)
            if piece.damage is not None:
                raise piece.damage
            after = piece.rest[0][0] if piece.rest else kept.next
            if piece.slices or after is None:
                return KeptPage(piece.slices, kept.held, after, kept.ordered, kept.ttl_ms)
            start = after
            await asyncio.sleep(0)
