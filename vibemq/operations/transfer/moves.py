"""Waiting messages of one queue, moved into another in steps, each of which is whole or did not happen."""

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

from pydantic import Field

from vibemq.errors import QueueFull
from vibemq.model.commands import MoveMessages
from vibemq.model.effects import Moved
from vibemq.model.rows import LARGE_ROW_BYTES, Rows, RowView
from vibemq.model.runs import run_count
from vibemq.model.stored import Slice
from vibemq.operations.arguments import Limit, QueueName, Text, Whole, page_size
from vibemq.operations.contracts import CommandSession, EngineQuestions, StoreAccess
from vibemq.operations.messages import priority_of
from vibemq.operations.queues import QueueArguments
from vibemq.operations.registry import Caller, Operation
from vibemq.storage.reading import read_piece

MESSAGES_AT_ONCE = 500
"""Of one call."""
READ_BYTES = 1 << 20
MESSAGES_PER_STEP = 100
BYTES_PER_STEP = 256 * 1024
"""Of one command, which takes about a millisecond."""


class MoveArguments(QueueArguments):
    to: QueueName = Field(description="Queue that they go to; it must exist.")
    from_: Whole = Field(0, alias="from", description="First sequence to move: `next` of the call before.")
    below: Whole | None = Field(None, description="Sequences from here on stay: `below` of the first call.")
    incarnation: Text | None = Field(
        None, description="Refuse if the queue was made anew: `incarnation` of the call before."
    )
    limit: Limit = Field(
        None, description=f"Most messages to move, 1 or more; more than {MESSAGES_AT_ONCE} count as that."
    )
    dry_run: bool = Field(
        False, description="Count what waits, and what has expired but is still there, and change nothing."
    )


class Candidate(NamedTuple):
    """A message that waits in the source."""

    sequence: int
    published_at: int
    row: bytes


class QueueMoves:
    def __init__(self, engine: EngineQuestions, store: StoreAccess, local: CommandSession) -> None:
        self._readers = engine.readers
        self._store = store
        self._local = local

    async def move(self, caller: Caller, wanted: MoveArguments) -> dict[str, Any]:
        """The oldest that wait, ascending. What a consumer holds, or takes meanwhile, stays.

        A message leaves the one queue and enters the other in one engine step, so a move that is interrupted anywhere
        is resumed by asking again.

        Raises:
            InvalidOptions: the two queues cannot be used so.
            QueueFull: nothing was moved, because the target has no room.
            WrongIncarnation: the queue was deleted and made anew, before the call or since its messages were read.
        """
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        below = head.tail if wanted.below is None else wanted.below
        most = page_size(wanted.limit, MESSAGES_AT_ONCE, MESSAGES_AT_ONCE)
        found = self._readers.movable(wanted.queue, wanted.to, wanted.from_, below, most, head.incarnation)
        answer: dict[str, Any] = {
            "count": 0,
            "left": 0,
            "next": None,
            "below": below,
            "incarnation": found.incarnation,
            "waiting": found.waiting,
            "damaged": [],
        }
        after = found.runs[-1][1] + 1 if run_count(found.runs) == most else None
        if wanted.dry_run:
            return answer | {"count": run_count(found.runs), "next": after}
        read = partial(read_piece, self._store.provider)
        piece = await self._store.read_rows(read, found.queue_id, found.runs, READ_BYTES)
        count = left = 0
        steps = list(_steps(piece.slices))
        # Of several that are under way a later one could find room where an earlier one did not.
        at_once = 1 if found.limited else max(1, len(steps))
        for at in range(0, len(steps), at_once):
            some = enumerate(steps[at : at + at_once])
            done = await _all_of(self._step(caller, wanted, found.incarnation, step, turns) for turns, step in some)
            count, left = count + sum(part.count for part in done), sum(part.left for part in done)
            if left:
                break
        if left and not count:
            raise QueueFull(wanted.to, "no message was moved; make room, or raise max_messages or max_bytes")
        damaged = [sequence for first, last in piece.damaged for sequence in range(first, last + 1)]
        return answer | {
            "count": count,
            "left": left,
            "next": piece.rest[0][0] if piece.rest else after,
            "damaged": damaged,
        }

    async def _step(
        self, caller: Caller, wanted: MoveArguments, incarnation: str, some: list[Candidate], turns: int
    ) -> Moved:
        """`turns`: of the loop that others have first, so that no two steps are decided in one."""
        priorities = {
            index: priority
            for index, candidate in enumerate(some)
            if (priority := priority_of(RowView(candidate.row).headers)) != 1
        }
        if len(some[0].row) > LARGE_ROW_BYTES:
            rows: Rows = await self._store.prepared(lambda: some[0].row)
        else:
            rows = Rows.of([candidate.row for candidate in some])
        for _ in range(turns):
            await asyncio.sleep(0)
        moved: Moved = await caller.step(
            self._local,
            lambda session, token: MoveMessages(
                session,
                token,
                wanted.queue,
                incarnation,
                wanted.to,
                [candidate.sequence for candidate in some],
                [candidate.published_at for candidate in some],
                rows,
                priorities,
                caller.session,
            ),
        )
        caller.done.count += moved.count
        return moved


async def _all_of(steps: Iterable[Coroutine[Any, Any, Moved]]) -> list[Moved]:
    """What became of steps that are under way together. Raises the first error when all have ended: those that were
    decided before it count as done."""
    done: list[Moved] = []
    errors: list[BaseException] = []
    for part in await asyncio.gather(*steps, return_exceptions=True):
        if isinstance(part, BaseException):
            errors.append(part)
        else:
            done.append(part)
    if errors:
        raise errors[0]
    return done


def _steps(slices: list[Slice]) -> Iterator[list[Candidate]]:
    some: list[Candidate] = []
    size = 0
    for part in slices:
        for sequence, row in enumerate(part.rows, part.first_sequence):
            if some and (len(some) == MESSAGES_PER_STEP or size + len(row) > BYTES_PER_STEP):
                yield some
                some, size = [], 0
            some.append(Candidate(sequence, part.published_at, row))
            size += len(row)
    if some:
        yield some


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.move",
        "Move waiting messages into another queue, some at a time; what consumers hold stays.",
        MoveArguments,
        QueueMoves,
        task=QueueMoves.move,
        scans=True,
        logged=True,
        audited=True,
    ),
]
