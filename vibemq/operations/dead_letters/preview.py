"""What an action on dead letters would do: how many letters a filter means, of what, and where they would go.

Whole groups are counted by their rows. Whatever the index does not decide is looked at letter by letter, for a moment;
then the count says how many there are at least.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from typing import Any

from pydantic import Field

from vibemq.auth.matrix import INSPECT
from vibemq.auth.policy import Policy
from vibemq.model.dead.fingerprint import OTHER, fingerprint, sample_of
from vibemq.model.dead.groups import DeadGroup, GroupKey, LetterStretch, joined
from vibemq.model.records import Reason
from vibemq.model.rows import RowView
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.model.stored import DeadLetter
from vibemq.operations.arguments import QueueName
from vibemq.operations.contracts import EngineQuestions, InstantSource
from vibemq.operations.dead_letters.filters import GivenFilters, LetterFilter
from vibemq.operations.dead_letters.groups import group_json
from vibemq.operations.dead_letters.letters import LetterAccess
from vibemq.operations.dead_letters.rates import Rate
from vibemq.operations.dead_letters.reader import (
    INDEX_SCAN_MAX,
    SCAN_MAX,
    SCAN_S,
    DeadLetterReader,
    Found,
    known_queue_ids,
)
from vibemq.operations.messages import letter_json, replay_count
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.steps import in_turns

EXAMPLES = 5
GROUPS_SHOWN = 20
TARGETS_SHOWN = 100
GROUPS_LOOKED_AT = 50
SLICE = 250
"""Letters that are counted before the loop has its turn."""


class PreviewArguments(GivenFilters):
    to: QueueName | None = Field(None, description="Queue that they would go to; left out: where each died.")
    rate: Rate | None = Field(
        None,
        description="Letters in a second, 0.1 or more, for the time that it would take; 0: as many as possible. If it "
        "is left out or 0, the answer has no duration.",
    )


class _Tally:
    """What the letters have in common, as far as they were counted."""

    def __init__(self) -> None:
        self.is_whole = True
        """Every letter that is meant was counted."""
        self.by_queue = Counter[str]()
        self.by_reason = Counter[int]()
        self.oldest_at: int | None = None
        self.newest_at: int | None = None
        self.groups_count = 0
        self.largest: list[DeadGroup] = []
        self._of_letters: dict[GroupKey, DeadGroup] = {}
        """Groups of the letters that were counted one by one."""

    @property
    def count(self) -> int:
        return self.by_reason.total()

    def add_groups(self, groups: Sequence[DeadGroup]) -> None:
        """Whole groups, each once."""
        for group in groups:
            letters = group.letters
            self._note(group.queue, group.key.reason, letters.count, letters.first_at, letters.last_at)
        self._take_largest(groups)

    def add_letters(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            facts = letter.facts
            key = GroupKey(letter.queue_id, int(facts.reason), fingerprint(facts.error))
            known = self._of_letters.get(key)
            at = facts.dead_at
            one = LetterStretch(1, facts.dead_id, at, facts.dead_id, at, sample_of(facts.error))
            both = one if known is None else joined([known.letters, one])
            assert both is not None
            self._of_letters[key] = DeadGroup(key, letter.queue, both)
            self._note(letter.queue, key.reason, 1, at, at)

    def _note(self, queue: str, reason: int, count: int, first_at: int, last_at: int) -> None:
        self.by_queue[queue] += count
        self.by_reason[reason] += count
        self.oldest_at = first_at if self.oldest_at is None else min(self.oldest_at, first_at)
        self.newest_at = last_at if self.newest_at is None else max(self.newest_at, last_at)

    def _take_largest(self, groups: Sequence[DeadGroup]) -> None:
        self.groups_count += len(groups)
        self.largest = nsmallest(GROUPS_SHOWN, [*self.largest, *groups], key=_by_size)

    async def finish(self) -> None:
        """The loop has a turn now and then: there may be very many groups."""
        groups = list(self._of_letters.values())
        for at in range(0, len(groups), SLICE):
            self._take_largest(groups[at : at + SLICE])
            await asyncio.sleep(0)


def _by_size(group: DeadGroup) -> tuple[int, GroupKey]:
    return -group.letters.count, group.key


class LetterPreview:
    def __init__(
        self,
        engine: EngineQuestions,
        reader: DeadLetterReader,
        clock: InstantSource,
        access: LetterAccess,
        policy: Policy,
    ) -> None:
        self._engine = engine
        self._reader = reader
        self._clock = clock
        self._access = access
        self._policy = policy

    async def preview(self, caller: Caller, wanted: PreviewArguments) -> dict[str, Any]:
        """Raises QueueNotFound for a queue that neither exists nor has left letters."""
        sees = self._access.sees(caller, wanted.queue)
        chosen = LetterFilter(wanted, self._clock.now(), may_see=sees)
        queue_ids = await known_queue_ids(self._engine, self._reader, wanted.queue, sees)
        tally = _Tally()
        if wanted.means_groups and await self._count_groups(chosen, queue_ids, tally):
            sample, exact = await self._rows(wanted, chosen, queue_ids)
        elif wanted.need_rows:
            sample, exact = await self._rows(wanted, chosen, queue_ids)
            tally.add_letters(sample.letters)
            tally.is_whole = exact
        else:
            await self._count_letters(wanted, chosen, queue_ids, tally)
            sampled = _Tally()
            sample, exact = await self._rows(wanted, chosen, queue_ids, sampled)
            if sampled.count > tally.count or (exact and not tally.is_whole):
                # On a busy machine. All figures of the answer are those of the same letters.
                sampled.is_whole = exact
                tally = sampled
        whole = tally.is_whole and (exact or not wanted.need_rows)
        most = None if whole else await self._most(wanted, chosen, queue_ids)
        return await self._answer(caller, wanted, tally, sample, rows_are_all=exact, most=most)

    async def _most(self, wanted: PreviewArguments, chosen: LetterFilter, queue_ids: frozenset[int] | None) -> int:
        """No more letters than this can fit: so many are in the groups that the filter leaves."""
        groups, count = chosen.groups(queue_ids), 0
        whole = [groups]
        if await self._reader.may_be_others(groups):
            whole.append(replace(groups, fingerprint=OTHER))
        for some in whole:
            async for part in self._reader.groups(some):
                count += sum(group.letters.count for group in part)
        return min(count, max(0, chosen.below - chosen.after - 1), len(wanted.ids or ()) or count)

    async def _count_groups(self, chosen: LetterFilter, queue_ids: frozenset[int] | None, tally: _Tally) -> bool:
        """Return whether whole groups are meant, and were counted."""
        wanted = chosen.groups(queue_ids)
        if await self._reader.may_be_others(wanted):
            return False
        async for part in self._reader.groups(wanted):
            tally.add_groups(part)
        return True

    async def _count_letters(
        self, wanted: PreviewArguments, chosen: LetterFilter, queue_ids: frozenset[int] | None, tally: _Tally
    ) -> None:
        """By their facts alone."""
        most = SCAN_MAX if wanted.need_scan else INDEX_SCAN_MAX
        tally.is_whole = False
        async for found in self._slices(chosen, queue_ids, most, rows=False):
            tally.add_letters(found.letters)
            tally.is_whole = found.done

    async def _rows(
        self,
        wanted: PreviewArguments,
        chosen: LetterFilter,
        queue_ids: frozenset[int] | None,
        tally: _Tally | None = None,
    ) -> "tuple[_Rows, bool]":
        """What the messages say, of as many letters as are read in a moment; and whether these are all. `tally` gets
        them too."""
        rows, done = _Rows(), False
        row_fits = chosen.row_fits if wanted.need_rows else None
        async for found in self._slices(chosen, queue_ids, SCAN_MAX, row_fits=row_fits):
            rows.take(found.letters, keep=wanted.need_rows)
            if tally is not None:
                await asyncio.sleep(0)
                tally.add_letters(found.letters)
            done = found.done
        return rows, done

    async def _slices(
        self, chosen: LetterFilter, queue_ids: frozenset[int] | None, most: int, **reading: Any
    ) -> AsyncIterator[Found]:
        """The letters of a filter, as far as they are read in a moment and no more than `most` are looked at.

        Between two of them the loop has its turn. `reading`: as of `DeadLetterReader.find`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + SCAN_S / 2
        last, done, examined = chosen.after, False, 0
        while not done and examined < most and loop.time() < deadline:
            found = await self._reader.find(
                chosen.fits,
                choice=chosen.choice(queue_ids),
                stretches=chosen.stretches,
                after=last,
                below=chosen.below,
                limit=SLICE,
                scan=most - examined,
                seconds=deadline - loop.time(),
                **reading,
            )
            yield found
            last, done, examined = found.last, found.done, examined + found.examined
            await asyncio.sleep(0)

    async def _answer(
        self,
        caller: Caller,
        wanted: PreviewArguments,
        tally: _Tally,
        rows: "_Rows",
        *,
        rows_are_all: bool,
        most: int | None,
    ) -> dict[str, Any]:
        """`most`: None when every letter was counted."""
        count = tally.count
        await tally.finish()
        size = rows.size
        if not rows_are_all and rows.count:
            size = round(rows.size / rows.count * count)
        targets = await self._targets(caller, wanted, tally)
        answer = {
            "count": count,
            "count_max": count if most is None else max(count, most),
            "exact": most is None,
            "bytes": size,
            "bytes_exact": rows_are_all,
            "oldest_at": tally.oldest_at,
            "newest_at": tally.newest_at,
            "replayed_before": rows.replayed,
            "replayed_before_of": rows.count,
            "targets": targets,
            "targets_count": 1 if wanted.to is not None else len(tally.by_queue),
            "reasons": [{"reason": Reason(r).name.lower(), "count": n} for r, n in tally.by_reason.most_common()],
            "groups": [group_json(group) for group in tally.largest],
            "groups_count": tally.groups_count,
            "examples": rows.examples,
            "duration_ms": round(count / wanted.rate * 1000) if wanted.rate else None,
        }
        return answer | {"sentences": _sentences(answer, targets)}

    async def _targets(self, caller: Caller, wanted: PreviewArguments, tally: _Tally) -> list[dict[str, Any]]:
        """Those with the most letters first."""
        counted = tally.by_queue
        if wanted.to is not None:
            counted = Counter({wanted.to: counted.total()})
        shown: list[dict[str, Any]] = []
        for queue, count in counted.most_common(TARGETS_SHOWN):
            shown.append({"queue": queue, "count": count, "state": await self._state_of(caller, queue)})
            await asyncio.sleep(0)
        return shown

    async def _state_of(self, caller: Caller, queue: str) -> str | None:
        """None: the caller may not inspect it."""
        if not self._policy.allows(caller.principal, INSPECT, queue):
            return None
        info = await self._described(queue)
        if info is None:
            return "missing"
        options = info.options
        waiting = info.ready + info.in_flight + info.delayed
        if (options.max_messages and waiting >= options.max_messages) or (
            options.max_bytes and info.size >= options.max_bytes
        ):
            return "full"
        return "ok" if info.consumers or self._is_read_by_range(queue) else "no_consumers"

    def _is_read_by_range(self, queue: str) -> bool:
        """Whether one of its first groups is a cursor, as those of Spark."""
        readers = self._engine.readers
        if readers.tail(queue) is None:
            return False
        return any(cursor is not None for _, cursor in readers.groups(queue, None, GROUPS_LOOKED_AT))

    async def _described(self, queue: str) -> QueueInfo | None:
        steps = self._engine.describing(queue)
        return None if steps is None else await in_turns(steps)


@dataclass(slots=True)
class _Rows:
    """What was read of letters with their messages."""

    letters: list[DeadLetter] = field(default_factory=list)
    examples: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    size: int = 0
    replayed: int = 0

    def take(self, letters: Sequence[DeadLetter], *, keep: bool) -> None:
        self.count += len(letters)
        self.size += sum(len(letter.row) for letter in letters)
        self.replayed += sum(replay_count(RowView(letter.row).headers) > 0 for letter in letters)
        self.examples += (letter_json(one, with_payload=False) for one in letters[: EXAMPLES - len(self.examples)])
        if keep:
            self.letters += letters


def _letters(count: int) -> str:
    return f"{count} dead letter{'s' * (count != 1)}"


def _sentences(answer: dict[str, Any], targets: list[dict[str, Any]]) -> list[str]:
    """What somebody should know before the action."""
    count = answer["count"]
    if not count:
        return ["No dead letter fits."]
    told = [f"{'' if answer['exact'] else 'At least '}{_letters(count)} fit{'s' * (count == 1)}."]
    if answer["replayed_before"]:
        part = f"{answer['replayed_before']} of {answer['replayed_before_of']}"
        told.append(f"{part} that were read have been replayed before.")
    words = {
        "missing": "does not exist; name another queue with `to`, or create it",
        "full": "is full",
        "no_consumers": "has no consumers",
    }
    told += (
        f"{_letters(target['count'])} go{'es' * (target['count'] == 1)} to queue {target['queue']!r}, which "
        f"{words[target['state']]}."
        for target in targets
        if target["state"] in words
    )
    if answer["duration_ms"] is not None:
        told.append(f"At that rate it takes {answer['duration_ms'] / 1000:.0f} s.")
    return told


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "dlq.preview",
        "What an action on the dead letters that fit would do.",
        PreviewArguments,
        LetterPreview,
        task=LetterPreview.preview,
        scans=True,
        logged=True,
    ),
]
