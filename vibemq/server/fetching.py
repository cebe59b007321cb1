"""Rows for readers by range: of queues and of dead letters (docs/spec/cursor.md)."""

import asyncio
from typing import Any

from vibemq.errors import InvalidOptions, InvalidPayload, StorageDamaged
from vibemq.model.effects import Fetched
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet
from vibemq.model.stored import DeadLetter, Slice
from vibemq.server.arguments import Arguments, flag, items, number, numbers, text_or_none
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.letters import replay
from vibemq.server.net.local_session import Asking
from vibemq.server.net.row_reader import read_piece

COLUMNS = frozenset({"sequence", "published_at", "message_id", "body", "priority", "headers"})
FETCH_BYTES_MAX = 1 << 20
FETCH_ROWS_MAX = 16_384
IDS_MAX = 1000
CATCH_UP_TRIES = 250
CATCH_UP_S = 0.02
"""Messages of an async queue can be asked for before they are written: they follow within a turn or two."""
LETTERS_AT_ONCE = 500


class Fetching:
    """One method for each verb, as in `Cursors`."""

    def __init__(self, engine: QueueEngine, store: Store, inner: Asking) -> None:
        self._readers = engine.readers
        self._store = store
        self._inner = inner

    async def fetch(self, queue: str, arguments: Arguments) -> Fetched:
        group, incarnation = text_or_none(arguments, "group"), text_or_none(arguments, "incarnation")
        start, end = number(arguments, "from"), number(arguments, "to")
        size = min(number(arguments, "max_bytes", FETCH_BYTES_MAX) or FETCH_BYTES_MAX, FETCH_BYTES_MAX)
        columns, compact = _columns(arguments), flag(arguments, "compact")
        for _ in range(CATCH_UP_TRIES):
            span = self._readers.span(queue, group, start, end, incarnation)
            allowed = _first_of(span.allowed, FETCH_ROWS_MAX)
            piece = await self._store.call(read_piece, self._store.provider, span.queue_id, allowed, size)
            if piece.damage is not None:
                raise piece.damage
            slices = _within(piece.slices, size)
            after = _after(slices, allowed, span.allowed, end)
            given = RunSet((part.first_sequence, part.first_sequence + part.rows.count - 1) for part in slices)
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
        return Fetched(columns, start, after, slices, gaps, span.incarnation, priorities, compact=compact)

    # -- dead letters -------------------------------------------------------------------------------------------------

    async def _letters(self, after: int, queue: str) -> list[DeadLetter]:
        provider = self._store.provider
        return await self._store.call(lambda: provider.dead_letters(after=after, limit=LETTERS_AT_ONCE, queue=queue))

    async def dead_offsets(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        info, _ = self._readers.queue(queue)
        provider = self._store.provider
        first = await self._store.call(lambda: provider.dead_letters(after=0, limit=1, queue=queue))
        tail = self._readers.next_dead_id()
        return {"head": first[0].facts.dead_id if first else tail, "tail": tail, "count": info.dead}

    async def dead_fetch(self, queue: str, arguments: Arguments) -> Fetched:
        start, end = number(arguments, "from"), number(arguments, "to")
        room = min(number(arguments, "max_bytes", FETCH_BYTES_MAX) or FETCH_BYTES_MAX, FETCH_BYTES_MAX)
        info, _ = self._readers.queue(queue)
        taken: list[DeadLetter] = []
        after = end
        for letter in await self._letters(start - 1, queue) if start < end else []:
            if letter.facts.dead_id >= end:
                break
            room -= len(letter.row) + len(letter.facts.error) + 256
            if taken and room < 0:
                after = letter.facts.dead_id
                break
            taken.append(letter)
        else:
            after = taken[-1].facts.dead_id + 1 if len(taken) == LETTERS_AT_ONCE else end
        slices = [Slice(letter.facts.sequence, letter.published_at, Rows.of([letter.row])) for letter in taken]
        facts = [_facts(letter) for letter in taken]
        priorities = {letter.facts.sequence: letter.priority for letter in taken if letter.priority != 1}
        columns, compact = _columns(arguments), flag(arguments, "compact")
        return Fetched(columns, start, after, slices, [], info.incarnation, priorities, facts, compact)

    async def redrive(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        ids = sorted(set(numbers(arguments, "ids")))
        if len(ids) > IDS_MAX:
            raise InvalidPayload(f"argument ids may name {IDS_MAX} letters at a time, not {len(ids)}")
        target = text_or_none(arguments, "to") or queue
        self._readers.queue(target)
        provider = self._store.provider
        found = [await self._store.call(provider.dead_letter, dead_id) for dead_id in ids]
        letters = [letter for letter in found if letter is not None and letter.queue == queue]
        if letters:
            await self._inner.ask(lambda session, token: replay(session, token, target, letters))
        return {"redriven": len(letters), "gone": len(ids) - len(letters)}


def _columns(arguments: Arguments) -> frozenset[str]:
    wanted = arguments.get("columns")
    names = COLUMNS if wanted is None else frozenset(map(str, items(arguments, "columns")))
    unknown = names - COLUMNS
    if unknown:
        raise InvalidOptions(f"unknown columns {sorted(unknown)}; known are {', '.join(sorted(COLUMNS))}")
    return names


def _first_of(wanted: list[Run], count: int) -> list[Run]:
    """The first `count` sequences."""
    return RunSet(wanted).pop_front(count)


def _within(slices: list[Slice], size: int) -> list[Slice]:
    """As many rows as fit, at least one: the last read may have brought more than was asked for."""
    kept: list[Slice] = []
    for part in slices:
        if kept and part.rows.size > size:
            offsets = part.rows.offsets()
            count = sum(1 for end in offsets[1:] if end <= size)
            if count:
                kept.append(Slice(part.first_sequence, part.published_at, part.rows.slice(0, count)))
            break
        kept.append(part)
        size -= part.rows.size
    return kept


def _after(slices: list[Slice], asked: list[Run], allowed: list[Run], end: int) -> int:
    """Where the next fetch goes on: behind the last row, or behind everything when nothing is left to be read."""
    last = slices[-1].first_sequence + slices[-1].rows.count if slices else 0
    rest = [run for run in allowed if run[1] >= last]
    if not rest or (not slices and asked == allowed):
        return end
    return max(last, 1)


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
