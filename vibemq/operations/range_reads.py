"""Rows for readers by range: of queues and of dead letters (docs/spec/cursor.md)."""

import asyncio
from functools import partial
from typing import Annotated, Any

from pydantic import Field

from vibemq.errors import InvalidOptions, InvalidPayload, StorageDamaged
from vibemq.model.effects import Fetched, Span
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet
from vibemq.model.stored import DeadLetter, Slice
from vibemq.operations.arguments import Numbers, QueueName, Text, Whole
from vibemq.operations.contracts import CommandSession, EngineQuestions, StoreAccess
from vibemq.operations.dead_letters import DeadLetterReader, Fits, no_room, put_back
from vibemq.operations.groups import OfQueue
from vibemq.operations.registry import Caller, Operation
from vibemq.storage.reading import read_piece

COLUMNS = frozenset({"sequence", "published_at", "message_id", "body", "priority", "headers"})
COLUMNS_MAX = 100
"""More than there are: what is unknown among them is told by name."""
FETCH_BYTES = 1 << 20
"""Of an answer whose reader does not say how much it wants."""
FETCH_BYTES_MAX = 2 << 20
"""Of rows that are alike. An answer costs something whatever its size is, so larger ones are cheaper."""
FETCH_ROWS_MAX = 8_192
"""Of rows that travel as they are: about 3 ms."""
TAKEN_APART_MAX = 1_000
"""Of rows that are taken apart one by one, in about the same time."""
WINDOW_GROWTH = 16
IDS_MAX = 1000
CATCH_UP_TRIES = 250
CATCH_UP_S = 0.02
"""Messages of an async queue can be asked for before they are written: they follow within a turn or two."""
LETTERS_AT_ONCE = 500
FACTS_BYTES = 256
FACTS_PER_TURN = 100
"""Letters of an answer between which the loop has a turn."""


class RangeArguments(OfQueue):
    from_: Whole = Field(alias="from", description="First sequence, or id of a dead letter, of the range.")
    to: Whole = Field(description="End of the range, exclusive.")
    max_bytes: Whole = Field(
        FETCH_BYTES, description=f"Most bytes of the answer, up to {FETCH_BYTES_MAX:,}; at least one row comes."
    )
    columns: Annotated[list[str], Field(max_length=COLUMNS_MAX)] | None = Field(
        None, description="Columns of the answer: " + ", ".join(sorted(COLUMNS)) + "."
    )
    compact: bool = Field(False, description="Let the broker leave out buffers that the reader can do without.")

    @property
    def room(self) -> int:
        return min(self.max_bytes or FETCH_BYTES, FETCH_BYTES_MAX)

    @property
    def has_bodies(self) -> bool:
        return self.columns is None or "body" in self.columns

    @property
    def asked_bytes(self) -> int:
        """What the reader itself has said that it takes; 0 = nothing, so that the limit of its connection counts."""
        return self.room if "max_bytes" in self.model_fields_set else 0


class FetchArguments(RangeArguments):
    group: Text | None = Field(None, description="Name of the group; left out: what the queue keeps for anybody.")


class RedriveArguments(OfQueue):
    ids: Numbers = Field(description=f"Ids of dead letters of the queue, at most {IDS_MAX}.")
    to: QueueName | None = Field(None, description="Queue that they go to; left out: back to this one.")


class RangeReads:
    def __init__(
        self, engine: EngineQuestions, store: StoreAccess, letters: DeadLetterReader, local: CommandSession
    ) -> None:
        self._readers = engine.readers
        self._store = store
        self._letters = letters
        self._local = local

    async def fetch(self, caller: Caller, wanted: FetchArguments) -> Fetched:
        queue, group, incarnation = wanted.queue, wanted.group, wanted.incarnation
        start, end, size = wanted.from_, wanted.to, wanted.room
        columns = _columns(wanted)
        for _ in range(CATCH_UP_TRIES):
            span = self._readers.span(queue, group, start, end, incarnation)
            slices, after = await self._rows(span, size, compact=wanted.compact)
            given = RunSet(part.run for part in slices)
            missing = [run for run in _without(span.wanted, given) if run[0] < after]
            if not missing:
                break
            await asyncio.sleep(CATCH_UP_S)
        else:
            raise StorageDamaged(
                f"messages {missing[:5]} of queue {queue!r} should be there and are not", path="the store"
            )
        gaps = _gaps(start, after, given, span.lost, span.quarantined)
        priorities = self._readers.priorities(queue, start, after - 1) if "priority" in columns else {}
        return Fetched(
            columns,
            start,
            after,
            slices,
            gaps,
            span.incarnation,
            priorities,
            compact=wanted.compact,
            max_bytes=wanted.asked_bytes,
        )

    async def _rows(self, span: Span, size: int, *, compact: bool) -> tuple[list[Slice], int]:
        """The first rows of what the span allows, and where the next fetch goes on: always behind what was looked at.

        A stretch without rows (numbers that a restart has skipped, messages that are gone) is passed over in windows
        that grow, so that a few reads cross it however long it is.
        """
        rest = RunSet(span.allowed)
        window = FETCH_ROWS_MAX
        while rest:
            asked = rest.pop_front(window)
            piece = await self._store.read_rows(partial(read_piece, self._store.provider), span.queue_id, asked, size)
            if piece.damage is not None:
                raise piece.damage
            slices = _within(piece.slices, size, FETCH_ROWS_MAX)
            if not (compact and _are_alike(slices)):
                slices = _within(slices, min(size, FETCH_BYTES), TAKEN_APART_MAX)
            if slices:
                complete = not piece.rest and sum(part.rows.count for part in slices) == piece.count
                if complete and not rest:
                    break
                return slices, asked[-1][1] + 1 if complete else slices[-1].first_sequence + slices[-1].rows.count
            window *= WINDOW_GROWTH
        else:
            slices = []
        return slices, span.end

    # -- dead letters -------------------------------------------------------------------------------------------------

    async def dead_offsets(self, caller: Caller, wanted: OfQueue) -> dict[str, Any]:
        info = self._readers.queue(wanted.queue, wanted.incarnation)
        tail = self._readers.dead_tail()
        # The count is not asked: after a restart it has a message once that several groups have given up.
        head, last, done = tail, 0, False
        while not done and head == tail:
            found = await self._letters.find(_died_in(wanted.queue), after=last, below=tail, limit=1)
            known = [letter.facts.dead_id for letter in found.letters] + [letter.dead_id for letter in found.damaged]
            head, last, done = min(known, default=tail), found.last, found.done
        return {"head": head, "tail": tail, "count": info.dead}

    async def dead_fetch(self, caller: Caller, wanted: RangeArguments) -> Fetched:
        """Letters that cannot be read are gaps of the range of ids, with the reason `damaged`."""
        start, tail = max(wanted.from_, 1), self._readers.dead_tail()
        end = max(start, min(wanted.to, tail))
        info = self._readers.queue(wanted.queue, wanted.incarnation)
        found = await self._letters.find(
            _died_in(wanted.queue), after=start - 1, below=end, limit=LETTERS_AT_ONCE, max_bytes=wanted.room
        )
        taken, after = _fitting(found.letters, wanted.room), end if found.done else found.last + 1
        if len(taken) < len(found.letters):
            after = found.letters[len(taken)].facts.dead_id
        slices = [Slice(letter.facts.sequence, letter.published_at, Rows.of([letter.row])) for letter in taken]
        facts: list[list[Any]] = []
        for letter in taken:
            facts.append(_facts(letter))
            if not len(facts) % FACTS_PER_TURN:
                await asyncio.sleep(0)
        priorities = {letter.facts.sequence: letter.priority for letter in taken if letter.priority != 1}
        gaps = [
            (letter.dead_id, letter.dead_id, "damaged")
            for letter in found.damaged
            if letter.dead_id < after and letter.queue in ("", wanted.queue)
        ]
        return Fetched(
            _columns(wanted),
            start,
            after,
            slices,
            gaps,
            info.incarnation,
            priorities,
            facts,
            wanted.compact,
            wanted.asked_bytes,
        )

    async def redrive(self, caller: Caller, wanted: RedriveArguments) -> dict[str, Any]:
        ids = sorted(set(wanted.ids))
        if len(ids) > IDS_MAX:
            raise InvalidPayload(f"argument ids may name {IDS_MAX} letters at a time, not {len(ids)}")
        target = wanted.to or wanted.queue
        self._readers.queue(target)
        count, damaged = 0, list[int]()
        async for part in self._letters.named(ids):
            letters = [letter for letter in part.letters if letter.queue == wanted.queue]
            damaged += [letter.dead_id for letter in part.damaged if letter.queue in ("", wanted.queue)]
            done = await put_back(caller, self._local, self._store, target, letters)
            count += done.count
            if done.left:
                raise no_room(target, count)
        answer = {"redriven": count, "gone": len(ids) - count - len(damaged)}
        return {**answer, "damaged": damaged} if damaged else answer


def _died_in(name: str) -> Fits:
    return lambda facts, queue: queue == name


def _fitting(letters: list[DeadLetter], room: int) -> list[DeadLetter]:
    """As many as fit with their facts, at least one."""
    taken: list[DeadLetter] = []
    for letter in letters:
        room -= len(letter.row) + len(letter.facts.error) + FACTS_BYTES
        if taken and room < 0:
            break
        taken.append(letter)
    return taken


def _columns(wanted: RangeArguments) -> frozenset[str]:
    names = COLUMNS if wanted.columns is None else frozenset(wanted.columns)
    unknown = names - COLUMNS
    if unknown:
        raise InvalidOptions(f"unknown columns {sorted(unknown)}; known are {', '.join(sorted(COLUMNS))}")
    return names


def _within(slices: list[Slice], size: int, left: int) -> list[Slice]:
    """As many rows as fit, at least one and at most `left`: the last read may have brought more than was asked for."""
    kept: list[Slice] = []
    for part in slices:
        count = min(part.rows.count, left)
        if kept and part.rows.size > size:
            count = min(count, sum(1 for end in part.rows.offsets()[1:] if end <= size))
        if count == part.rows.count:
            kept.append(part)
            size, left = size - part.rows.size, left - count
            continue
        if count:
            kept.append(Slice(part.first_sequence, part.published_at, part.rows.slice(0, count)))
        break
    return kept


def _are_alike(slices: list[Slice]) -> bool:
    """Whether rows can travel whole. Others are taken apart one by one, which holds the event loop for longer."""
    shapes = {part.rows.shape() for part in slices}
    return len(shapes) == 1 and None not in shapes


def _without(wanted: list[Run], given: RunSet) -> list[Run]:
    missing = RunSet(wanted)
    for run in given.runs():
        missing.remove(*run)
    return missing.runs()


def _gaps(start: int, after: int, given: RunSet, lost: list[Run], quarantined: list[Run]) -> list[tuple[int, int, str]]:
    absent = RunSet([(start, after - 1)] if start < after else [])
    for run in given.runs():
        absent.remove(*run)
    gaps: list[tuple[int, int, str]] = []
    for why, known in (("lost", lost), ("quarantined", quarantined)):
        for run in known:
            for first, last in absent.overlap(*run):
                gaps.append((first, last, why))
        for first, last, _ in gaps:
            absent.remove(first, last)
    return sorted([*gaps, *((first, last, "absent") for first, last in absent.runs())])


def _facts(letter: DeadLetter) -> list[Any]:
    facts = letter.facts
    return [
        facts.dead_id,
        letter.group,
        facts.reason.name.lower(),
        facts.error,
        facts.acquired,
        facts.failed,
        facts.first_failed_at,
        facts.dead_at,
    ]


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "group.fetch",
        "Rows of a range of a queue, as columns.",
        FetchArguments,
        RangeReads,
        task=RangeReads.fetch,
        # With a group it is consuming.
        reads_bodies=lambda wanted: wanted.group is None and wanted.has_bodies,
    ),
    Operation(
        "dead.offsets", "Ids of a queue's dead letters.", OfQueue, RangeReads, task=RangeReads.dead_offsets, scans=True
    ),
    Operation(
        "dead.fetch",
        "Dead letters of a range of ids, as columns.",
        RangeArguments,
        RangeReads,
        task=RangeReads.dead_fetch,
        scans=True,
        reads_bodies=lambda wanted: wanted.has_bodies,
    ),
    Operation(
        "dead.redrive",
        "Put dead letters of a queue back, by id.",
        RedriveArguments,
        RangeReads,
        task=RangeReads.redrive,
        scans=True,
        audited=True,
    ),
]
