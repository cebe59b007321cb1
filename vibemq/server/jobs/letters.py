"""The letters of a job, a page at a time, cut into the steps that the engine carries out.

A page is what follows the job's cursor. The cursor moves behind it with the page's last step; until then whoever reads
from the cursor again finds what is left of the page, because letters that are done are gone. Those of an export stay:
each of its pages is one step.
"""

from collections import deque
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from vibemq.model.commands import Command, PurgeDead
from vibemq.model.jobs.job import JobKind, JobStep, StoredJob
from vibemq.model.rows import LARGE_ROW_BYTES
from vibemq.model.stored import DamagedLetter, DeadLetter
from vibemq.operations.contracts import StoreAccess
from vibemq.operations.dead_letters import DeadLetterReader, LetterFilter, LetterFilters
from vibemq.operations.messages import origins, replay, replay_row, replay_rows

PAGE_LETTERS = 200


@dataclass(slots=True)
class PageStep:
    """What one command does."""

    queue: str
    letters: list[DeadLetter] = field(default_factory=list)
    origins: dict[int, int] = field(default_factory=dict)
    """dead_id -> queue_id of the letters, also of those that cannot be read."""
    cursor: int = 0
    examined: int = 0
    damaged: int = 0
    passed: int = 0

    def of(self, job_id: int) -> JobStep:
        return JobStep(job_id, self.cursor, self.examined, self.damaged, passed=self.passed)

    async def replay(self, store: StoreAccess, of: JobStep) -> Callable[[int, Any], Command]:
        letters = self.letters
        large = len(letters[0].row) > LARGE_ROW_BYTES
        rows = await store.prepared(partial(replay_row, letters[0])) if large else replay_rows(letters)
        return partial(replay, queue=self.queue, letters=letters, rows=rows, asked_by=0, step=of)

    def purge(self, of: JobStep) -> Callable[[int, Any], Command]:
        ids, known = sorted(self.origins), self.origins
        return lambda session, token: PurgeDead(session, token, ids, known, step=of)


class LetterPage:
    """Letters by their target, and what else was found."""

    def __init__(
        self, by_queue: dict[str, deque[DeadLetter]], unread: dict[int, int], *, last: int, is_last: bool
    ) -> None:
        """`unread`: dead_id -> queue_id of damaged letters that the job takes as well."""
        self._by_queue = {queue: letters for queue, letters in by_queue.items() if letters}
        self._unread = unread
        self.last = last
        self.is_last = is_last
        self.is_done = False
        self.is_complete = True
        """The cursor may move behind it; else letters of it, or before it, stay for later."""
        self.examined = 0
        self.damaged = 0
        self._counted = 0
        """Of the examined ones, with the steps before the last."""
        self._passed = 0
        """Letters that these have left where they are, which the last one counts."""

    @property
    def next_queue(self) -> str:
        """Where the letters of the next step go; "" = there are none."""
        return next(iter(self._by_queue), "")

    def take(self, most: int) -> PageStep:
        """The next step of at most so many letters; the last one brings the cursor behind the page."""
        queue = self.next_queue
        step = PageStep(queue)
        letters = self._by_queue.get(queue)
        while letters and len(step.letters) < most:
            large = len(letters[0].row) > LARGE_ROW_BYTES
            if large and step.letters:
                break
            step.letters.append(letters.popleft())
            if large:
                break
        if not letters:
            self._by_queue.pop(queue, None)
        step.origins = origins(step.letters)
        while self._unread and len(step.origins) < most:
            dead_id, queue_id = self._unread.popitem()
            step.origins[dead_id] = queue_id
        self.is_done = not self._by_queue and not self._unread
        if self.is_done and self.is_complete:
            step.cursor, step.examined, step.damaged = self.last, self.examined - self._counted, self.damaged
            step.passed = self._passed
        else:
            # Who reads the page again does not find them any more.
            step.examined = len(step.origins)
            self._counted += step.examined
        return step

    def note_passed(self, count: int) -> None:
        """So many of a step's letters are still there."""
        self._passed += count
        self._counted -= count

    def has_others(self, queue: str) -> bool:
        """Letters for other queues."""
        return any(other != queue for other in self._by_queue)

    def set_aside(self, queue: str) -> None:
        """The letters for that queue stay where they are, and are found again."""
        self._by_queue.pop(queue, None)
        self.pass_over()

    def pass_over(self) -> None:
        """The cursor stays before the page."""
        self.is_complete = False
        self.is_done = not self._by_queue and not self._unread

    def take_whole(self) -> PageStep:
        """All letters in one step: of an export, which leaves them where they are, to be found again."""
        letters = [letter for queue in self._by_queue.values() for letter in queue]
        self._by_queue.clear()
        self.is_done = True
        return PageStep("", letters, {}, self.last, self.examined, self.damaged)


class LetterPages:
    """Reads the pages of one job."""

    def __init__(self, reader: DeadLetterReader, job: StoredJob) -> None:
        self._reader = reader
        self._plan = job.plan
        # Ages were made instants when the job was made.
        self._wanted = LetterFilters.model_validate(job.plan.filter)
        self._chosen = LetterFilter(self._wanted, job.created_at)
        self._below = min(self._chosen.below, job.plan.last_id + 1)

    async def read(self, cursor: int, most: int = PAGE_LETTERS, without: Container[str] = ()) -> LetterPage:
        """At most so many letters. `without`: queues whose letters stay where they are."""
        chosen, plan = self._chosen, self._plan
        queue_ids = await self._reader.queue_ids(self._wanted.queue, None)
        found = await self._reader.find(
            lambda facts, queue: queue not in without and chosen.fits(facts, queue),
            choice=chosen.choice(queue_ids),
            stretches=chosen.stretches,
            after=max(cursor, chosen.after, plan.first_id - 1),
            below=self._below,
            limit=min(most, PAGE_LETTERS),
            row_fits=chosen.row_fits if self._wanted.need_rows else None,
        )
        by_queue: dict[str, deque[DeadLetter]] = {}
        one = "" if plan.kind is JobKind.REPLAY else "letters"
        for letter in found.letters:
            by_queue.setdefault(one or plan.to or letter.queue, deque()).append(letter)
        damaged = [letter for letter in found.damaged if self._may_be_meant(letter)]
        unread = self._purged_unread(damaged)
        last = max(plan.last_id, cursor) if found.done else found.last
        page = LetterPage(by_queue, unread, last=last, is_last=found.done)
        page.examined, page.damaged = found.examined, len(damaged) - len(unread)
        return page

    def _may_be_meant(self, letter: DamagedLetter) -> bool:
        wanted = self._wanted
        return (wanted.queue is None or not letter.queue or letter.queue == wanted.queue) and (
            wanted.ids is None or letter.dead_id in wanted.ids
        )

    def _purged_unread(self, damaged: list[DamagedLetter]) -> dict[int, int]:
        """Letters that cannot be read are purged where what can be read of them is all that the filter needs."""
        if self._plan.kind is not JobKind.PURGE_DEAD or self._wanted.need_rows:
            return {}
        return {letter.dead_id: letter.queue_id for letter in damaged if letter.queue_id or not self._wanted.need_facts}
