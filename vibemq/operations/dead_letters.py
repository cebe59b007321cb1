"""Dead letters: the one reader of the DLQ, and what operators do with what it finds.

The reader works in slices of a few milliseconds between which the loop goes on, starts where the page before ended,
and steps over letters that cannot be read: every answer names them under `damaged`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from pydantic import Field

from vibemq.errors import MessageNotFound, QueueFull, QueueNotFound, StorageDamaged
from vibemq.model.commands import PurgeDead
from vibemq.model.options import enum_of
from vibemq.model.records import DeadFacts, Reason
from vibemq.model.rows import LARGE_ROW_BYTES, RowView
from vibemq.model.runs import Run
from vibemq.model.stored import DamagedLetter, DeadLetter, DeadPageWanted
from vibemq.operations.arguments import INSTANT_MAX, Arguments, Limit, Numbers, QueueName, Text, Whole, page_size
from vibemq.operations.contracts import CommandSession, EngineQuestions, InstantSource, StoreAccess
from vibemq.operations.messages import letter_json, origins, replay, replay_row, replay_rows
from vibemq.operations.registry import Caller, Operation

SLICE_LETTERS = 32
SLICE_SCAN = 250
"""Letters read, and letters looked at, before the loop has its turn."""
SCAN_MAX = 10_000
"""Letters looked at for one request; a filter that fits few returns early with `next`."""
ANSWER_BYTES_MAX = 768 * 1024
"""An answer must fit a frame."""
PAGE_LETTERS = 100
LETTERS_AT_ONCE = 1000
SLICE_IDS = 32
"""Ids looked for before the loop has its turn, which may be as many places to look at."""
LETTERS_PER_STEP = 50
"""Of one command of a replay or a purge, which takes a few milliseconds. Fewer than the units of one of the engine's
own steps (`engine/pacing.py`): those are places in its indexes, and a letter that is replayed carries its body."""
NEAR_IDS = 16
"""To read the facts of so many letters between two ids costs less than to look for the second by itself."""

Fits = Callable[[DeadFacts, str], bool]


@dataclass(slots=True)
class Found:
    letters: list[DeadLetter] = field(default_factory=list)
    damaged: list[DamagedLetter] = field(default_factory=list)
    last: int = 0
    """Everything up to this id was looked at."""
    done: bool = False


class DeadLetterReader:
    """Reads the DLQ for every operation that wants letters."""

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def find(
        self,
        fits: Fits,
        *,
        after: int = 0,
        below: int = INSTANT_MAX,
        limit: int,
        max_bytes: int = ANSWER_BYTES_MAX,
        scan: int = SCAN_MAX,
        row_fits: Callable[[DeadLetter], bool] | None = None,
    ) -> Found:
        """Letters with ids in (after, below), ascending: at most `limit`, at least one if there is one to be found
        among the first `scan`."""
        found = Found(last=after)
        below = min(below, INSTANT_MAX)
        looked = size = 0

        def counted(facts: DeadFacts, queue: str) -> bool:
            nonlocal looked
            looked += 1
            return fits(facts, queue)

        while looked < scan:
            wanted = DeadPageWanted(
                after=found.last,
                below=below,
                limit=min(SLICE_LETTERS, limit + 1 - len(found.letters)),
                scan=SLICE_SCAN,
                max_bytes=max_bytes,
                fits=counted,
            )
            page = await self._store.dead_page(wanted)
            last = page.last
            for letter in page.letters if row_fits is None else filter(row_fits, page.letters):
                size += len(letter.row)
                if found.letters and (len(found.letters) >= limit or size > max_bytes):
                    last = found.letters[-1].facts.dead_id
                    break
                found.letters.append(letter)
            else:
                found.done = page.done
            found.last = last
            found.damaged += (letter for letter in page.damaged if letter.dead_id <= last)
            if found.done or last < page.last:
                break
            await asyncio.sleep(0)
        return found

    async def named(self, ids: Iterable[int]) -> AsyncIterator[Found]:
        """The letters among these ids that are there, in parts of bounded size, ascending."""
        wanted = iter(sorted(ids))
        while some := list(islice(wanted, SLICE_IDS)):
            is_named = frozenset(some).__contains__
            for first, last in _stretches(some):
                part = Found(last=max(first - 1, 0), done=last < 1)
                while not part.done:
                    fits = partial(_fits_id, is_named)
                    part = await self.find(fits, after=part.last, below=last + 1, limit=LETTERS_AT_ONCE, scan=SCAN_MAX)
                    part.damaged = [letter for letter in part.damaged if is_named(letter.dead_id)]
                    if part.letters or part.damaged:
                        yield part
            await asyncio.sleep(0)

    async def one(self, dead_id: int) -> Found:
        """The letter of that id, if it is there."""
        async for found in self.named([dead_id]):
            return found
        return Found(done=True)


def _stretches(ids: Sequence[int]) -> Iterator[Run]:
    """Of ascending ids: those that stand close together are looked for in one go."""
    first = last = ids[0]
    for dead_id in ids:
        if dead_id - last > NEAR_IDS:
            yield first, last
            first = dead_id
        last = dead_id
    yield first, last


def _fits_id(is_named: Callable[[int], bool], facts: DeadFacts, queue: str) -> bool:
    return is_named(facts.dead_id)


# -- which letters are meant ------------------------------------------------------------------------------------------


class LetterFilters(Arguments):
    """Every part that is given must fit."""

    queue: QueueName | None = Field(None, description="The queue they died in.")
    reason: str | None = Field(None, description="Why they died: " + ", ".join(r.name.lower() for r in Reason) + ".")
    older_than_ms: Whole | None = Field(None, description="Dead for at least so long.")
    newer_than_ms: Whole | None = Field(None, description="Dead for at most so long.")
    header: dict[str, str] = Field(default_factory=dict, description="Headers that the message has.")
    ids: Numbers | None = Field(None, description="Ids of dead letters.")
    message_id: Text | None = Field(None, description="Id of the message.")

    @property
    def need_facts(self) -> bool:
        """Whether more than the id decides."""
        given = (self.queue, self.reason, self.older_than_ms, self.newer_than_ms)
        return self.need_rows or any(part is not None for part in given)

    @property
    def need_rows(self) -> bool:
        return self.message_id is not None or bool(self.header)


class LetterListArguments(LetterFilters):
    after: Whole = Field(0, description="Go on behind this id: `next` of the page before.")
    limit: Limit = None


class PurgeArguments(LetterListArguments):
    dry_run: bool = Field(False, description="Count, and change nothing.")


class ReplayArguments(PurgeArguments):
    to: QueueName | None = Field(None, description="Queue that they go to; left out: where each died.")


class ShowArguments(Arguments):
    dead_id: Whole = Field(description="Id of the dead letter.")
    queue: QueueName | None = Field(None, description="The queue it died in; one of another queue is not found.")


class LetterFilter:
    """`Filters` as a test of letters, at one instant."""

    def __init__(self, wanted: LetterFilters, now: int) -> None:
        """Raises InvalidOptions for an unknown reason."""
        self._wanted = wanted
        self._now = now
        self._reason = None if wanted.reason is None else Reason(enum_of(Reason, wanted.reason, "reason"))
        self._ids = None if wanted.ids is None else frozenset(wanted.ids)

    def fits(self, facts: DeadFacts, queue: str) -> bool:
        """Whether what is known without the message fits."""
        wanted = self._wanted
        age_ms = self._now - facts.dead_at
        return (
            (wanted.queue is None or queue == wanted.queue)
            and (self._reason is None or facts.reason is self._reason)
            and (self._ids is None or facts.dead_id in self._ids)
            and (wanted.older_than_ms is None or age_ms >= wanted.older_than_ms)
            and (wanted.newer_than_ms is None or age_ms <= wanted.newer_than_ms)
        )

    def row_fits(self, letter: DeadLetter) -> bool:
        """Whether the message fits as well."""
        wanted = self._wanted
        if not wanted.need_rows:
            return True
        view = RowView(letter.row)
        if wanted.message_id is not None and view.message_id != wanted.message_id:
            return False
        headers = view.headers if wanted.header else {}
        return all(headers.get(key) == value for key, value in wanted.header.items())


@dataclass(slots=True)
class PutBack:
    """What became of letters that were to go back into one queue; those that somebody else has taken do not count."""

    count: int = 0
    left: int = 0
    """Letters that are where they were, because the queue has no room."""
    left_from: int = 0
    """No letter before this id is left."""


async def put_back(
    local: CommandSession, store: StoreAccess, queue: str, letters: Sequence[DeadLetter], asked_by: int
) -> PutBack:
    """Put letters, ascending, into a queue until it has no room; the loop has a turn after each slice.

    `asked_by`: the session that wants it.
    """
    done = PutBack()
    at = 0
    for part in _steps(letters):
        at += len(part)
        large = len(part[0].row) > LARGE_ROW_BYTES
        rows = await store.prepared(partial(replay_row, part[0])) if large else replay_rows(part)
        counted = await local.ask(partial(replay, queue=queue, letters=part, rows=rows, asked_by=asked_by))
        done.count += counted.count
        if counted.left:
            done.left = counted.left + len(letters) - at
            done.left_from = part[0].facts.dead_id
            break
        await asyncio.sleep(0)
    return done


def _steps(letters: Sequence[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """As many as go back with one command; a large one by itself."""
    some: list[DeadLetter] = []
    for letter in letters:
        large = len(letter.row) > LARGE_ROW_BYTES
        if some and (large or len(some) == LETTERS_PER_STEP):
            yield some
            some = []
        some.append(letter)
        if large:
            yield some
            some = []
    if some:
        yield some


def no_room(queue: str, count: int = 0) -> QueueFull:
    """`count`: letters that went back before there was none."""
    done = f"{count} dead letters went back and the others stay" if count else "all dead letters stay"
    error = QueueFull(queue, "it drops its oldest messages")
    error.args = (
        f"queue {queue!r} is full and drops its oldest messages, so {done} where they are; consume from it, raise "
        "max_messages or max_bytes, or name another queue with `to`",
    )
    return error


class DeadLetters:
    def __init__(
        self,
        engine: EngineQuestions,
        store: StoreAccess,
        reader: DeadLetterReader,
        local: CommandSession,
        clock: InstantSource,
    ) -> None:
        self._engine = engine
        self._store = store
        self._reader = reader
        self._local = local
        self._clock = clock

    async def page(self, caller: Caller, wanted: LetterListArguments) -> dict[str, Any]:
        found = await self._find(wanted)
        shown: list[dict[str, Any]] = []
        for at in range(0, len(found.letters), SLICE_LETTERS):
            shown += (letter_json(letter, with_payload=False) for letter in found.letters[at : at + SLICE_LETTERS])
            await asyncio.sleep(0)
        return {"letters": shown, "next": None if found.done else found.last, "damaged": damaged_json(found.damaged)}

    async def show(self, caller: Caller, wanted: ShowArguments) -> dict[str, Any]:
        """A damaged letter is refused with STORAGE_DAMAGED."""
        found = await self._reader.one(wanted.dead_id)
        if found.letters and wanted.queue in (None, found.letters[0].queue):
            return letter_json(found.letters[0], with_payload=True)
        if found.damaged and wanted.queue in (None, found.damaged[0].queue):
            raise StorageDamaged(found.damaged[0].why, path="the store")
        raise MessageNotFound(
            f"there is no dead letter {wanted.dead_id}; it was replayed or purged, or it never existed"
        )

    async def replay(self, caller: Caller, wanted: ReplayArguments) -> dict[str, Any]:
        """One batch: up to `limit` letters go back. `next` is where the following call goes on.

        A letter leaves the DLQ and enters its queue in one engine step, so a replay that is interrupted anywhere
        doubles nothing and is resumed by asking again. Letters that somebody else takes meanwhile are not counted.

        Raises:
            QueueFull: nothing was replayed, because the queues drop their oldest messages and have no room.
        """
        found = await self._find(wanted)
        by_queue: dict[str, list[DeadLetter]] = {}
        for letter in found.letters:
            by_queue.setdefault(wanted.to or letter.queue, []).append(letter)
        missing = [queue for queue in by_queue if self._engine.readers.tail(queue) is None]
        if missing:
            raise QueueNotFound(missing[0]) if wanted.to else _origin_is_gone(missing)
        parts: list[PutBack] = []
        for queue, letters in by_queue.items():
            if wanted.dry_run:
                parts.append(PutBack(len(letters)))
            else:
                parts.append(await put_back(self._local, self._store, queue, letters, caller.session))
        count, left = sum(part.count for part in parts), sum(part.left for part in parts)
        if left and not count:
            raise no_room(next(queue for queue, part in zip(by_queue, parts, strict=True) if part.left))
        return {
            "count": count,
            "left": left,
            "next": min([found.last, *(part.left_from - 1 for part in parts if part.left)]),
            "done": found.done and not left,
            "damaged": damaged_json(found.damaged),
        }

    async def purge(self, caller: Caller, wanted: PurgeArguments) -> dict[str, Any]:
        """Letters that cannot be read are purged too, where what can be read of them is all that the filters need.

        Of letters that are named by id alone there may be many: they are found and purged in parts.
        """
        if wanted.ids is None or wanted.model_fields_set - {"ids", "dry_run"}:
            found = await self._find(wanted)
            count = await self._purge(caller, _meant(found, wanted), wanted, all_of_it=True)
            return _purged(count, found.last, found.done, found.damaged)
        count, meant, damaged = 0, dict[int, int](), list[DamagedLetter]()
        async for found in self._reader.named(wanted.ids):
            damaged += found.damaged
            meant |= _meant(found, wanted)
            count += await self._purge(caller, meant, wanted)
        count += await self._purge(caller, meant, wanted, all_of_it=True)
        return _purged(count, max(wanted.ids, default=0), True, damaged)

    async def _purge(
        self, caller: Caller, meant: dict[int, int], wanted: PurgeArguments, *, all_of_it: bool = False
    ) -> int:
        """Take whole slices out of `meant` (dead_id -> queue_id), or everything, and purge them; how many there were.

        The loop has a turn after each slice.
        """
        count = 0
        while len(meant) >= LETTERS_PER_STEP or (all_of_it and meant):
            part = {dead_id: meant.pop(dead_id) for dead_id in list(islice(meant, LETTERS_PER_STEP))}
            count += len(part) if wanted.dry_run else await self._purge_slice(caller, part)
            await asyncio.sleep(0)
        return count

    async def _purge_slice(self, caller: Caller, origins: Mapping[int, int]) -> int:
        ids, known = sorted(origins), dict(origins)
        counted = await self._local.ask(lambda session, token: PurgeDead(session, token, ids, known, caller.session))
        return int(counted.count)

    async def _find(self, wanted: LetterListArguments) -> Found:
        """Raises QueueNotFound for a queue that neither exists nor has left letters."""
        chosen = LetterFilter(wanted, self._clock.now())
        after, below = wanted.after, INSTANT_MAX
        if wanted.ids is not None:
            after = max(after, min(wanted.ids, default=1) - 1)
            below = max(wanted.ids, default=0) + 1
        limit = page_size(wanted.limit, PAGE_LETTERS)
        row_fits = chosen.row_fits if wanted.need_rows else None
        found = await self._reader.find(chosen.fits, after=after, below=below, limit=limit, row_fits=row_fits)
        found.damaged = [letter for letter in found.damaged if _may_be_meant(wanted, letter)]
        queue = wanted.queue
        empty = found.done and not found.letters and not found.damaged
        if queue is not None and wanted.after == 0 and empty and self._engine.readers.tail(queue) is None:
            await self._check_left_letters(queue)
        return found

    async def _check_left_letters(self, queue: str) -> None:
        """Raises QueueNotFound when nothing in the DLQ died in the queue."""
        found = Found()
        while not found.done and not found.letters:
            found = await self._reader.find(lambda facts, name: name == queue, after=found.last, limit=1)
        if not found.letters:
            raise QueueNotFound(queue)


def damaged_json(damaged: list[DamagedLetter]) -> list[dict[str, Any]]:
    return [{"dead_id": letter.dead_id, "queue": letter.queue or None, "error": letter.why} for letter in damaged]


def _meant(found: Found, wanted: LetterFilters) -> dict[int, int]:
    """dead_id -> queue_id of the letters to purge, 0 where the queue cannot be read.

    A damaged letter that has a queue is one whose message is damaged; its facts were compared with the filters.
    """
    meant = origins(found.letters)
    if not wanted.need_rows:
        meant |= {
            letter.dead_id: letter.queue_id for letter in found.damaged if letter.queue_id or not wanted.need_facts
        }
    return meant


def _purged(count: int, last: int, done: bool, damaged: list[DamagedLetter]) -> dict[str, Any]:
    return {"count": count, "next": last, "done": done, "damaged": damaged_json(damaged)}


def _may_be_meant(wanted: LetterFilters, letter: DamagedLetter) -> bool:
    """Of a letter whose facts cannot be read, only the id is known."""
    return (wanted.queue is None or not letter.queue or letter.queue == wanted.queue) and (
        wanted.ids is None or letter.dead_id in wanted.ids
    )


def _origin_is_gone(queues: list[str]) -> QueueNotFound:
    error = QueueNotFound(queues[0])
    error.args = (
        f"queue {queues[0]!r}, where these letters come from, does not exist; create it, or say to which "
        "queue they shall go with `to`",
    )
    return error


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "dlq.list",
        "Dead letters, oldest first, in pages.",
        LetterListArguments,
        DeadLetters,
        task=DeadLetters.page,
        scans=True,
        logged=True,
    ),
    Operation(
        "dlq.show",
        "One dead letter with its message.",
        ShowArguments,
        DeadLetters,
        task=DeadLetters.show,
        scans=True,
        logged=True,
    ),
    Operation(
        "dlq.replay",
        "Put dead letters back into queues, one batch at a time.",
        ReplayArguments,
        DeadLetters,
        task=DeadLetters.replay,
        scans=True,
        logged=True,
        audited=True,
    ),
    Operation(
        "dlq.purge",
        "Delete dead letters, one batch at a time.",
        PurgeArguments,
        DeadLetters,
        task=DeadLetters.purge,
        scans=True,
        logged=True,
        audited=True,
    ),
]
