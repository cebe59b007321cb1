"""Dead letters: lists, and what operators do with what they find. Every answer names letters that cannot be read."""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from typing import Any, Literal

from pydantic import Field

from vibemq.auth.matrix import INSPECT
from vibemq.auth.policy import Policy
from vibemq.errors import MessageNotFound, QueueFull, QueueNotFound, StorageDamaged
from vibemq.model.access import Action
from vibemq.model.commands import PurgeDead
from vibemq.model.rows import LARGE_ROW_BYTES, RowView
from vibemq.model.stored import DamagedLetter, DeadLetter
from vibemq.operations.arguments import Arguments, QueueName, Whole, page_size
from vibemq.operations.contracts import CommandSession, EngineQuestions, InstantSource, StoreAccess
from vibemq.operations.dead_letters.bodies import TOGETHER_MAX, looked_into, whole_body
from vibemq.operations.dead_letters.filters import (
    NEWEST,
    GivenFilters,
    LetterFilter,
    LetterFilters,
    LetterListArguments,
    LetterPageArguments,
)
from vibemq.operations.dead_letters.reader import (
    ANSWER_BYTES_MAX,
    INDEX_SCAN_MAX,
    SCAN_MAX,
    SCAN_S,
    SLICE_LETTERS,
    DeadLetterReader,
    Found,
    known_queue_ids,
)
from vibemq.operations.messages import letter_json, origins, replay, replay_row, replay_rows
from vibemq.operations.registry import Caller, Operation

PAGE_LETTERS = 100
PAYLOADS_BYTES_MAX = ANSWER_BYTES_MAX // 2
"""Of a page with bodies, which are longer as base64."""
LETTERS_PER_STEP = 50
"""Of one command of a replay or a purge, which takes a few milliseconds. Fewer than the units of one of the engine's
own steps (`engine/pacing.py`): those are places in its indexes, and a letter that is replayed carries its body."""
NAMES_KNOWN = 4096


class PurgeArguments(GivenFilters, LetterListArguments):
    dry_run: bool = Field(False, description="Count, and change nothing.")


class ReplayArguments(PurgeArguments):
    to: QueueName | None = Field(None, description="Queue that they go to; left out: where each died.")


class ShowArguments(Arguments):
    dead_id: Whole = Field(description="Id of the dead letter.")
    queue: QueueName | None = Field(None, description="The queue it died in; one of another queue is not found.")
    decode: Literal["gzip", "br"] | None = Field(
        None, description="Open the body first: `gzip` or `br`. Of what it holds, the first 256 KiB are answered."
    )
    digest: bool = Field(False, description="Tell the SHA-256 of the body as it is stored.")


Sees = Callable[[str], bool]
"""Whether a caller sees the letters of a queue, by its name."""


class LetterAccess:
    """Whose letters a caller sees when no queue is named: those of the queues that it may inspect."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def sees(self, caller: Caller, queue: str | None) -> Sees | None:
        """None: every letter. A queue that is named was checked by the permissions of the operation."""
        if queue is not None or self._policy.allows(caller.principal, INSPECT, ""):
            return None
        return lru_cache(NAMES_KNOWN)(self._policy.viewer(caller.principal, Action.INSPECT))


@dataclass(slots=True)
class PutBack:
    """What became of letters that were to go back into one queue; those that somebody else has taken do not count."""

    count: int = 0
    left: int = 0
    """Letters that are where they were, because the queue has no room."""
    left_from: int = 0
    """No letter before this id is left."""


async def put_back(
    caller: Caller, local: CommandSession, store: StoreAccess, queue: str, letters: Sequence[DeadLetter]
) -> PutBack:
    """Put letters, ascending, into a queue until it has no room; the loop has a turn after each slice.

    Raises AuthFailed, NotAuthorized: the caller may not go on.
    """
    done = PutBack()
    at = 0
    for part in _steps(letters):
        at += len(part)
        large = len(part[0].row) > LARGE_ROW_BYTES
        rows = await store.prepared(partial(replay_row, part[0])) if large else replay_rows(part)
        counted = await caller.step(
            local, partial(replay, queue=queue, letters=part, rows=rows, asked_by=caller.session)
        )
        done.count += counted.count
        caller.done.count += counted.count
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
        access: LetterAccess,
    ) -> None:
        self._engine = engine
        self._store = store
        self._reader = reader
        self._local = local
        self._clock = clock
        self._access = access
        self._looking = asyncio.Semaphore(TOGETHER_MAX)

    async def page(self, caller: Caller, wanted: LetterPageArguments) -> dict[str, Any]:
        sees = self._access.sees(caller, wanted.queue)
        most = PAYLOADS_BYTES_MAX if wanted.payloads else ANSWER_BYTES_MAX
        found = await self._find(wanted, sees, seconds=SCAN_S if wanted.need_scan else None, max_bytes=most)
        shown: list[dict[str, Any]] = []
        for at in range(0, len(found.letters), SLICE_LETTERS):
            shown += (
                letter_json(letter, with_payload=wanted.payloads) for letter in found.letters[at : at + SLICE_LETTERS]
            )
            await asyncio.sleep(0)
        return {
            "letters": shown,
            "next": None if found.done else found.last,
            "examined": found.examined,
            "damaged": damaged_json(found.damaged),
        }

    async def show(self, caller: Caller, wanted: ShowArguments) -> dict[str, Any]:
        """A damaged letter is refused with STORAGE_DAMAGED, a body that cannot be opened with INVALID_PAYLOAD."""
        letter = await self._one(wanted)
        shown = letter_json(letter, with_payload=wanted.decode is None)
        if wanted.decode is None and not wanted.digest:
            return shown
        look = partial(looked_into, letter.row, coding=wanted.decode, digest=wanted.digest)
        async with self._looking:
            return shown | await self._store.aside(look)

    async def body(self, wanted: ShowArguments) -> memoryview:
        """The whole body, however large it is, or opened if that is asked for. Refusals as of `show`, and
        MESSAGE_TOO_LARGE for what is too large once it is opened."""
        row = (await self._one(wanted)).row
        if wanted.decode is None:
            return RowView(row).payload_view
        async with self._looking:
            return await self._store.aside(whole_body, row, wanted.decode)

    async def _one(self, wanted: ShowArguments) -> DeadLetter:
        found = await self._reader.one(wanted.dead_id)
        if found.letters and wanted.queue in (None, found.letters[0].queue):
            return found.letters[0]
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
            AuthFailed, NotAuthorized: the caller may not go on.
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
                parts.append(await put_back(caller, self._local, self._store, queue, letters))
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

        Raises AuthFailed, NotAuthorized: the caller may not go on.
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
        counted = await caller.step(
            self._local, lambda session, token: PurgeDead(session, token, ids, known, caller.session)
        )
        caller.done.count += counted.count
        return int(counted.count)

    async def _find(
        self,
        wanted: LetterListArguments,
        sees: Sees | None = None,
        *,
        seconds: float | None = None,
        max_bytes: int = ANSWER_BYTES_MAX,
    ) -> Found:
        """Raises QueueNotFound for a queue that neither exists nor has left letters."""
        chosen = LetterFilter(wanted, self._clock.now(), may_see=sees)
        queue_ids = await self._queue_ids(wanted, sees)
        after, below = chosen.after, chosen.below
        newest_first = wanted.order == NEWEST
        if wanted.after:
            after, below = (after, min(below, wanted.after)) if newest_first else (max(after, wanted.after), below)
        found = await self._reader.find(
            chosen.fits,
            choice=chosen.choice(queue_ids),
            stretches=chosen.stretches,
            after=after,
            below=below,
            newest_first=newest_first,
            limit=page_size(wanted.limit, PAGE_LETTERS),
            max_bytes=max_bytes,
            scan=SCAN_MAX if wanted.need_scan else INDEX_SCAN_MAX,
            seconds=seconds,
            row_fits=chosen.row_fits if wanted.need_rows else None,
        )
        found.damaged = [letter for letter in found.damaged if _may_be_meant(wanted, letter)]
        if sees is not None:
            found.damaged = [letter for letter in found.damaged if letter.queue and sees(letter.queue)]
        return found

    async def _queue_ids(self, wanted: LetterListArguments, sees: Sees | None) -> frozenset[int] | None:
        if wanted.after:
            # The last letters of a queue that is gone may have gone since the page before.
            return await self._reader.queue_ids(wanted.queue, sees)
        return await known_queue_ids(self._engine, self._reader, wanted.queue, sees)


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
        LetterPageArguments,
        DeadLetters,
        task=DeadLetters.page,
        scans=True,
        logged=True,
        reads_bodies=lambda wanted: wanted.payloads,
    ),
    Operation(
        "dlq.show",
        "One dead letter with its message.",
        ShowArguments,
        DeadLetters,
        task=DeadLetters.show,
        scans=True,
        logged=True,
        reads_bodies=lambda wanted: True,
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
