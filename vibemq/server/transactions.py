"""Commits, aborts, and the moves of committed stages into their queues (docs/spec/cursor.md, "Transactions")."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import anyio

from vibemq.engine.handlers.transactions import stage_name
from vibemq.errors import StorageDamaged, StorageFull
from vibemq.model.commands import DecideTransaction, DropStages, MoveStaged
from vibemq.model.effects import Decided
from vibemq.model.staged_batch import unpack_staged_batch
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.net.local_session import LocalSession

log = logging.getLogger("vibemq.transactions")

READ_BYTES = 1 << 20


class Transactions:
    """What is decided is carried out: by the request that decided it, or by `resume` after a crash or a full disk."""

    def __init__(self, engine: QueueEngine, store: Store, inner: LocalSession) -> None:
        self._readers = engine.readers
        self._store = store
        self._inner = inner
        self._moving = anyio.Lock()

    async def commit(self, app: str, version: int, stages: Sequence[str], tag: str, user: str = "") -> dict[str, Any]:
        """Of stages of that user; "" = of nobody.

        Raises NotAuthorized (the application belongs to another user), InvalidOptions (the version cannot follow the
        last one), StageNotFound (nothing was committed), or StorageFull when the decision or a move does not fit: what
        was decided is then carried out as soon as there is room, and asking again waits for it."""
        decided: Decided = await self._inner.ask(
            lambda session, token: DecideTransaction(session, token, app, version, list(stages), tag, user)
        )
        await self._carry_out(decided.stages)
        return {
            "committed": True,
            "duplicate": decided.duplicate,
            "version": decided.version,
            "tag": decided.tag,
        }

    async def drop(self, names: Sequence[str]) -> None:
        if names:
            await self._inner.ask(lambda session, token: DropStages(session, token, list(names)))

    async def abort(self, app: str, version: int, stages: Sequence[str], user: str = "") -> None:
        """Drop stages of that user that are not committed. Raises NotAuthorized."""
        self._readers.last_version(app, user)
        await self.drop([stage_name(app, version, stage, user) for stage in stages])

    def last(self, app: str, user: str = "") -> int | None:
        """Raises NotAuthorized: the application belongs to another user."""
        return self._readers.last_version(app, user)

    async def tidy(self) -> None:
        """Go on with what was decided, and drop what nobody committed. Called now and then."""
        unfinished = self._readers.unfinished_stages()
        if unfinished and not self._moving.locked():
            try:
                await self._carry_out(unfinished)
            except StorageFull as error:
                log.warning("committed messages wait for room on the disk: %s", error)
            except StorageDamaged as error:
                log.error("committed messages cannot be read: %s", error)
        await self.drop(self._readers.old_stages())

    async def _carry_out(self, stages: Sequence[str]) -> None:
        async with self._moving:
            for stage in stages:
                await self._empty(stage)
            await self.drop(stages)

    async def _empty(self, stage: str) -> None:
        while True:
            queue_id, runs = self._readers.bundles(stage)
            if not runs:
                return
            first, last = runs[0]
            slices = await self._store.call(self._store.provider.read, queue_id, first, last, READ_BYTES)
            if not slices:
                raise StorageDamaged(f"bundles {first} to {last} of a committed stage are missing", path="the store")
            moves = [
                self._move(stage, part.first_sequence + i, row) for part in slices for i, row in enumerate(part.rows)
            ]
            # Asked in order, and a move that cannot be stored takes those behind it along, so the order stays.
            await asyncio.gather(*moves)

    async def _move(self, stage: str, sequence: int, row: bytes) -> None:
        queue, rows, extras = unpack_staged_batch(row)
        await self._inner.ask(lambda session, token: MoveStaged(session, token, stage, sequence, queue, rows, extras))
