"""The one reader of the DLQ.

It works in slices of a few milliseconds between which the loop goes on, starts where the page before ended, and steps
over letters that cannot be read.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from time import monotonic

from vibemq.errors import QueueNotFound
from vibemq.model.dead.fingerprint import OTHER
from vibemq.model.dead.groups import EVERY_LETTER, DeadGroup, DeadGroupsWanted, LetterChoice
from vibemq.model.records import DeadFacts
from vibemq.model.stored import DamagedLetter, DeadLetter, DeadPageWanted
from vibemq.operations.arguments import INSTANT_MAX
from vibemq.operations.contracts import EngineQuestions, StoreAccess
from vibemq.operations.dead_letters.stretches import EVERYWHERE, IdStretches
from vibemq.operations.reading.giving_way import give_way

SLICE_LETTERS = 32
SLICE_SCAN = 128
"""Letters read, and letters looked at, before the loop has its turn."""
SCAN_MAX = 10_000
"""Letters looked at for one request; a filter that fits few returns early with `next`."""
INDEX_SCAN_MAX = 1_000_000
"""The same where only the index is read."""
SCAN_S = 0.2
"""How long one request looks for letters that the index does not decide on."""
SCAN_LEAST = 500
"""So many letters are looked at however long it takes."""
ANSWER_BYTES_MAX = 768 * 1024
"""An answer must fit a frame."""
LETTERS_AT_ONCE = 1000
SLICE_IDS = 32
"""Ids looked for before the loop has its turn, which may be as many places to look at."""
SLICE_QUEUES = 100
SLICE_GROUPS = 100

Fits = Callable[[DeadFacts, str], bool]


def _every_letter(facts: DeadFacts, queue: str) -> bool:
    return True


@dataclass(slots=True)
class Found:
    letters: list[DeadLetter] = field(default_factory=list)
    damaged: list[DamagedLetter] = field(default_factory=list)
    last: int = 0
    """Everything up to this id was looked at, in the order that was asked for."""
    done: bool = False
    examined: int = 0
    """Letters that were looked at."""


class DeadLetterReader:
    """Reads the DLQ for every operation that wants letters."""

    def __init__(self, store: StoreAccess) -> None:
        self._store = store

    async def find(
        self,
        fits: Fits = _every_letter,
        *,
        choice: LetterChoice = EVERY_LETTER,
        stretches: IdStretches = EVERYWHERE,
        after: int = 0,
        below: int = INSTANT_MAX,
        newest_first: bool = False,
        limit: int,
        max_bytes: int = ANSWER_BYTES_MAX,
        scan: int = SCAN_MAX,
        seconds: float | None = None,
        rows: bool = True,
        row_fits: Callable[[DeadLetter], bool] | None = None,
    ) -> Found:
        """Letters with ids in (after, below) in their order: at most `limit`, at least one if there is one to be found
        among the first `scan`, and before so many seconds are over (and `SCAN_LEAST` letters were looked at).

        Args:
            choice: what the index decides; `fits` is asked about those that it finds.
            stretches: where they are looked for; what is between them is not read.
            rows: without them the letters have their facts only, and `row_fits` is not asked.
        """
        below = min(below, INSTANT_MAX)
        found = Found(last=below if newest_first else after)
        loop = asyncio.get_running_loop()
        deadline = None if seconds is None else loop.time() + seconds
        size = examined_to_last = 0
        while found.examined < scan:
            stretch = stretches.beneath(found.last, after) if newest_first else stretches.above(found.last, below)
            if stretch is None:
                found.last, found.done = (after + 1 if newest_first else below - 1), True
                break
            wanted = DeadPageWanted(
                after=stretch[0],
                below=stretch[1],
                newest_first=newest_first,
                choice=choice,
                limit=min(SLICE_LETTERS if rows else SLICE_SCAN, limit + 1 - len(found.letters)),
                scan=SLICE_SCAN,
                max_bytes=max_bytes,
                rows=rows,
                fits=fits,
            )
            began = monotonic()
            page = await self._store.dead_page(wanted)
            if not page.is_ready:
                # That takes no time of what this request has.
                deadline = None if seconds is None else loop.time() + seconds
                await asyncio.sleep(0)
                continue
            last = page.last
            for letter in page.letters if row_fits is None or not rows else filter(row_fits, page.letters):
                size += len(letter.row)
                if found.letters and (len(found.letters) >= limit or size > max_bytes):
                    last = found.letters[-1].facts.dead_id
                    break
                found.letters.append(letter)
                examined_to_last = found.examined + page.examined_to.get(letter.facts.dead_id, 0)
            else:
                found.done = page.done and stretches.everywhere
            found.damaged += page.damaged
            if last == page.last:
                found.examined += page.examined
            else:
                # Those behind the last one are looked at again with the next page, which may come of several stretches.
                found.examined = examined_to_last
                found.damaged = [letter for letter in found.damaged if _is_reached(letter, last, wanted)]
            found.last = last
            if last == page.last and page.done and not stretches.everywhere:
                found.last = stretch[0] + 1 if newest_first else stretch[1] - 1
                if not page.examined:
                    # A look as well; and of ids that are gone there may be very many.
                    found.examined += 1
                    found.last = await self._next_place(replace(wanted, after=after, below=below), found.last)
            if found.done or last != page.last or _is_over(found, deadline):
                break
            await give_way(monotonic() - began)
        return found

    async def _next_place(self, whole: DeadPageWanted, last: int) -> int:
        """Where a search of the whole stretch that has come to `last` goes on: before the next letter there is."""
        rest = replace(whole, below=last) if whole.newest_first else replace(whole, after=last)
        page = await self._store.dead_page(
            replace(rest, choice=EVERY_LETTER, limit=1, scan=1, rows=False, fits=_every_letter)
        )
        there = [letter.facts.dead_id for letter in page.letters] + [letter.dead_id for letter in page.damaged]
        if there:
            return min(last, max(there) + 1) if whole.newest_first else max(last, min(there) - 1)
        if not page.is_ready or not page.done:
            return last
        return whole.after + 1 if whole.newest_first else whole.below - 1

    async def groups(self, wanted: DeadGroupsWanted) -> AsyncIterator[list[DeadGroup]]:
        """All groups that fit, in parts, ascending by key; the loop has a turn after each part."""
        after, done = wanted.after, False
        while not done:
            part = replace(wanted, after=after, limit=SLICE_GROUPS)
            page = await self._store.dead_groups(part)
            if page.groups:
                yield page.groups
            after, done = page.last, page.done
            await asyncio.sleep(0)

    async def may_be_others(self, wanted: DeadGroupsWanted) -> bool:
        """Whether letters of the fingerprint that is wanted may stand in a group of others, beside its own."""
        if not wanted.fingerprint:
            return False
        async for _ in self.groups(replace(wanted, fingerprint=OTHER)):
            return True
        return False

    async def queue_ids(self, name: str | None, may_see: Callable[[str], bool] | None) -> frozenset[int] | None:
        """Ids of the queues with that name, deleted ones with letters among them, or of those that may be seen; None:
        of all."""
        if name is None and may_see is None:
            return None
        found: set[int] = set()
        after = 0
        while True:
            part = await self._store.dead_queues(after, SLICE_QUEUES, name)
            found.update(queue_id for queue_id, queue in part if may_see is None or may_see(queue))
            if len(part) < SLICE_QUEUES:
                return frozenset(found)
            after = part[-1][0]
            await asyncio.sleep(0)

    async def named(self, ids: Iterable[int]) -> AsyncIterator[Found]:
        """The letters among these ids that are there, in parts of bounded size, ascending."""
        wanted = iter(sorted(ids))
        while some := list(islice(wanted, SLICE_IDS)):
            is_named, stretches = frozenset(some).__contains__, IdStretches(some)
            part = Found()
            while not part.done:
                fits = partial(_fits_id, is_named)
                part = await self.find(fits, stretches=stretches, after=part.last, limit=LETTERS_AT_ONCE)
                part.damaged = [letter for letter in part.damaged if is_named(letter.dead_id)]
                if part.letters or part.damaged:
                    yield part
            await asyncio.sleep(0)

    async def one(self, dead_id: int) -> Found:
        """The letter of that id, if it is there."""
        async for found in self.named([dead_id]):
            return found
        return Found(done=True)


async def known_queue_ids(
    engine: EngineQuestions, reader: DeadLetterReader, name: str | None, may_see: Callable[[str], bool] | None
) -> frozenset[int] | None:
    """What `queue_ids` of the reader answers. A name that is misspelt has no letters, and is no empty list.

    Raises QueueNotFound for a queue that neither exists nor has left letters.
    """
    queue_ids = await reader.queue_ids(name, may_see)
    if name is not None and not queue_ids and engine.readers.tail(name) is None:
        raise QueueNotFound(name)
    return queue_ids


def _fits_id(is_named: Callable[[int], bool], facts: DeadFacts, queue: str) -> bool:
    return is_named(facts.dead_id)


def _is_over(found: Found, deadline: float | None) -> bool:
    return deadline is not None and found.examined >= SCAN_LEAST and asyncio.get_running_loop().time() >= deadline


def _is_reached(letter: DamagedLetter, last: int, wanted: DeadPageWanted) -> bool:
    return letter.dead_id >= last if wanted.newest_first else letter.dead_id <= last
