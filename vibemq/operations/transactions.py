"""Commits, aborts, and the moves of committed stages into their queues (docs/spec/cursor.md, "Transactions")."""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from itertools import islice, takewhile
from typing import Any
from weakref import WeakValueDictionary

import anyio
from pydantic import Field

from vibemq.engine.stage_names import is_plain, plain_of, stage_name, version_and_app
from vibemq.errors import StorageDamaged, StorageFull
from vibemq.model.commands import DecideTransaction, DropStages, ForgetApplication, MoveStage, MoveStaged
from vibemq.model.effects import Decided
from vibemq.model.runs import Run
from vibemq.model.staged_batch import unpack_staged_batch
from vibemq.model.stored import Slice
from vibemq.operations.arguments import Arguments, Text, Texts, Whole
from vibemq.operations.contracts import CommandSession, EngineQuestions, StoreAccess
from vibemq.operations.registry import Caller, Operation

log = logging.getLogger("vibemq.transactions")

READ_BYTES = 1 << 20
MOVED_BYTES = 4 << 20
"""About as much is moved at once, and waits for one flush together."""
MOVES_AT_ONCE = 64
"""Staged batches that are moved before the loop has its turn."""
PARTS_AT_ONCE = 16
"""Plain parts that are moved before the loop has its turn; one of 512 MiB takes about a millisecond."""
READS_TOGETHER_MAX = 4
"""Applications whose staged batches are in memory at the same time. The others have their turn after a flush."""
TAG_MAX = 256
NAMES_PER_TURN = 500
"""Of stages to be dropped, between which the loop has a turn."""


class OfApplication(Arguments):
    app: Text = Field(description="Name of the application.")


class AbortArguments(OfApplication):
    version: Whole = Field(description="Number of the transaction, ascending.")
    stages: Texts = Field(description="Names of the stages.")


class TransactionCommitArguments(AbortArguments):
    tag: str | None = Field(None, description=f"Any text, kept with the decision; its first {TAG_MAX} characters.")


class Transactions:
    """What is decided is carried out: by the request that decided it, or by `resume` after a crash or a full disk."""

    def __init__(self, engine: EngineQuestions, store: StoreAccess, local: CommandSession) -> None:
        self._readers = engine.readers
        self._store = store
        self._local = local
        self._moving: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        """By application; a lock that nobody holds or waits for is gone. Without it a later commit, or `tidy`, would
        move stages of a commit that is under way, out of their order."""
        self._reads = anyio.Semaphore(READS_TOGETHER_MAX)

    async def commit(self, caller: Caller, wanted: TransactionCommitArguments) -> dict[str, Any]:
        """Of stages of the caller.

        Raises NotAuthorized (the application belongs to another user), InvalidOptions (the version cannot follow the
        last one), StageNotFound (nothing was committed), or StorageFull when the decision or a move does not fit: what
        was decided is then carried out as soon as there is room, and asking again waits for it."""
        tag = (wanted.tag or "")[:TAG_MAX]
        decided: Decided = await caller.step(
            self._local,
            lambda session, token: caller.owned(
                DecideTransaction(session, token, wanted.app, wanted.version, list(wanted.stages), tag)
            ),
        )
        if decided.stages:
            await self._carry_out(wanted.app)
        # Else there is nothing to wait for: a stage goes when its moves are durable.
        return {
            "committed": True,
            "duplicate": decided.duplicate,
            "version": decided.version,
            "tag": decided.tag,
        }

    async def abort(self, caller: Caller, wanted: AbortArguments) -> dict[str, Any]:
        """Drop stages of the caller that are not committed."""
        user = caller.actor.user
        self._readers.last_version(wanted.app, user)
        names: list[str] = []
        for stage in wanted.stages:
            names.append(stage_name(wanted.app, wanted.version, stage, user))
            if not len(names) % NAMES_PER_TURN:
                await asyncio.sleep(0)
        caller.check_again()
        await self.drop(names)
        return {}

    async def forget(self, caller: Caller, wanted: OfApplication) -> dict[str, Any]:
        """An application begins anew: its last version and its owner are forgotten."""
        counted = await caller.step(self._local, lambda session, token: ForgetApplication(session, token, wanted.app))
        return {"count": int(counted.count)}

    async def drop(self, names: Sequence[str]) -> None:
        if names:
            await self._local.ask(lambda session, token: DropStages(session, token, list(names)))

    async def last(self, caller: Caller, wanted: OfApplication) -> dict[str, Any]:
        return {"version": self._readers.last_version(wanted.app, caller.actor.user)}

    async def tidy(self) -> None:
        """Go on with what was decided, and drop what nobody committed. Called now and then."""
        for app in dict.fromkeys(version_and_app(stage)[1] for stage in self._readers.unfinished_stages()):
            if not self._is_moving(app):
                await self._go_on(app)
        await self.drop(self._readers.old_stages())

    async def _go_on(self, app: str) -> None:
        """What one application cannot have moved is told, and keeps no other application waiting."""
        try:
            await self._carry_out(app)
        except StorageFull as error:
            log.warning("committed messages of application %.40r wait for room on the disk: %s", app, error.reason)
        except StorageDamaged as error:
            log.error("committed messages of application %.40r cannot be read: %s", app, error)

    def _is_moving(self, app: str) -> bool:
        lock = self._moving.get(app)
        return lock is not None and lock.locked()

    async def _carry_out(self, app: str) -> None:
        async with self._moving.setdefault(app, anyio.Lock()):
            # Not those of the decision: others may have moved them meanwhile, and stages that are not decided may have
            # their names since the application was forgotten.
            stages = self._readers.unfinished_stages(app)
            for at in range(0, len(stages), PARTS_AT_ONCE):
                await self._empty_some(stages[at : at + PARTS_AT_ONCE])
            await self.drop(stages)

    async def _empty_some(self, stages: Sequence[str]) -> None:
        """One after the other; plain parts that follow one another wait for one flush together."""
        left = list(stages)
        while left:
            whole = list(takewhile(self._enters_whole, left))
            # Asked in order and in one turn of the loop: a part that cannot be stored takes those behind it along.
            await asyncio.gather(*(self._enter(stage, plain_of(stage)[1]) for stage in whole))
            # They are empty now, unless their queue was made anew meanwhile and keeps its messages in memory.
            for stage in left[: len(whole) + 1]:
                await self._empty(stage)
            del left[: len(whole) + 1]

    def _enters_whole(self, stage: str) -> bool:
        if not is_plain(stage):
            return False
        _, _, more, is_whole = self._readers.plain_part(stage)
        return is_whole and not more

    async def _empty(self, stage: str) -> None:
        if is_plain(stage):
            await self._empty_plain(stage, plain_of(stage)[1])
            return
        while await self._move_some(stage):
            pass

    async def _move_some(self, stage: str) -> bool:
        """As much as may be in memory. Whether there was something."""
        async with self._reads:
            queue_id, runs = self._readers.staged_batches(stage)
            if not runs:
                return False
            batches = iter(await self._read(queue_id, *runs[0]))
            # Asked in order, and a move that cannot be stored takes those behind it along, so the order stays. The next
            # are asked for when these are stored: else one could slip in between a failed move and its repetition.
            while some := list(islice(batches, MOVES_AT_ONCE)):
                await asyncio.gather(*(self._move(stage, sequence, row) for sequence, row in some))
        return True

    async def _empty_plain(self, stage: str, target: str) -> None:
        while True:
            queue_id, runs, more, is_whole = self._readers.plain_part(stage)
            if more:
                # Answered when all that was staged before is durable, and then it is seen.
                await self._local.ask(lambda session, token: DropStages(session, token, []))
            elif not runs:
                return
            elif is_whole:
                await self._enter(stage, target)
            else:
                await self._copy(stage, queue_id, runs[0], target)

    async def _enter(self, stage: str, target: str) -> None:
        await self._local.ask(lambda session, token: MoveStage(session, token, stage, target))

    async def _copy(self, stage: str, queue_id: int, run: Run, target: str) -> None:
        """Into a queue that was made anew since, and keeps its messages in memory."""
        async with self._reads:
            parts = await self._store.read(self._store.provider.read, queue_id, *run, READ_BYTES)
            if not parts:
                raise StorageDamaged(
                    f"messages {run[0]} to {run[1]} of a committed stage are missing", path="the store"
                )
            for part in parts:
                await self._local.ask(partial(self._moved, stage, part, target))

    @staticmethod
    def _moved(stage: str, part: Slice, target: str, session: int, token: object) -> MoveStaged:
        return MoveStaged(session, token, stage, part.first_sequence, target, part.rows, None, part.rows.count)

    async def _read(self, queue_id: int, first: int, last: int) -> list[tuple[int, bytes]]:
        """The next staged batches and their sequences: enough for one flush, in reads that take no long turn."""
        batches: list[tuple[int, bytes]] = []
        size = 0
        while first <= last and size < MOVED_BYTES:
            slices = await self._store.read(self._store.provider.read, queue_id, first, last, READ_BYTES)
            if not slices:
                raise StorageDamaged(
                    f"staged batches {first} to {last} of a committed stage are missing", path="the store"
                )
            for part in slices:
                batches += enumerate(part.rows, part.first_sequence)
                size += part.rows.size
            first = batches[-1][0] + 1
            await asyncio.sleep(0)
        return batches

    async def _move(self, stage: str, sequence: int, row: bytes) -> None:
        queue, rows, extras = unpack_staged_batch(row)
        await self._local.ask(lambda session, token: MoveStaged(session, token, stage, sequence, queue, rows, extras))


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "transaction.commit",
        "Commit stages: their messages enter their queues together.",
        TransactionCommitArguments,
        Transactions,
        task=Transactions.commit,
    ),
    Operation(
        "transaction.abort",
        "Drop stages that are not committed.",
        AbortArguments,
        Transactions,
        task=Transactions.abort,
    ),
    Operation(
        "transaction.last",
        "The last committed version of an application.",
        OfApplication,
        Transactions,
        task=Transactions.last,
    ),
    Operation(
        "transaction.forget",
        "Forget the last version and the owner of an application.",
        OfApplication,
        Transactions,
        task=Transactions.forget,
        logged=True,
        audited=True,
    ),
]
