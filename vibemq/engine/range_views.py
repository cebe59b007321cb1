"""Questions of readers by range and of transactions' movers: read-only, answered at once from the indexes."""

from collections.abc import Generator, Iterator
from heapq import nsmallest
from typing import TypeGuard

from vibemq.engine import views
from vibemq.engine.handlers import transactions
from vibemq.engine.handlers.cursors import lookup, ranges
from vibemq.engine.handlers.cursors.plans import unknown_plan
from vibemq.engine.handlers.queues import find_same
from vibemq.engine.handlers.transfer.moves import check_route
from vibemq.engine.kept import delayed_from, facts_of, held_from, is_wanted, kept_within, ready_from
from vibemq.engine.queue.cursor import Cursor
from vibemq.engine.queue.group import Group
from vibemq.engine.queue.queue import WAITING_NAME, Queue
from vibemq.engine.stage_names import is_plain, plain_of
from vibemq.engine.state import EngineState
from vibemq.engine.views import extent_of, group_info
from vibemq.errors import OffsetGone
from vibemq.model.effects import (
    ApplicationFigures,
    ConsumerFigures,
    CursorInfo,
    Extent,
    HeldMessage,
    Kept,
    MessageFacts,
    Movable,
    QueueHead,
    Reach,
    Span,
)
from vibemq.model.options import QueueOptions
from vibemq.model.records import DeadLettered, Plan, Record
from vibemq.model.runs import END, Run, RunSet
from vibemq.model.shared.queue_info import GroupInfo


class Readers:
    """`group` None: anybody who reads what the queue keeps. Raises QueueNotFound, GroupNotFound, WrongIncarnation,
    GroupExpired and OffsetGone, as docs/spec/cursor.md says."""

    def __init__(self, state: EngineState) -> None:
        self._state = state

    @property
    def cursors_made(self) -> int:
        """Since the start, those that are gone by now included."""
        return self._state.totals.cursors_made

    def queue(self, name: str, incarnation: str | None = None) -> QueueHead:
        queue = find_same(self._state, name, incarnation)
        return QueueHead(queue.queue_id, queue.incarnation, queue.dead, ranges.tail_of(queue))

    def options(self, name: str) -> QueueOptions:
        return find_same(self._state, name, None).options

    def extent(self, name: str, incarnation: str | None = None) -> Extent:
        """Looks at every group once."""
        return extent_of(find_same(self._state, name, incarnation))

    def cursor(self, name: str, group: str, incarnation: str | None = None) -> CursorInfo:
        """Of an expired group too."""
        return ranges.describe(*lookup.find_cursor(self._state, name, group, incarnation))

    def groups(
        self, name: str, after: str | None, limit: int, incarnation: str | None = None, *, only: str | None = None
    ) -> list[tuple[GroupInfo, CursorInfo | None]]:
        """Up to `limit` groups behind `after`, by name, or the one called `only`; with what is known of cursors."""
        queue = find_same(self._state, name, incarnation)
        if only is None:
            names = nsmallest(limit, (group for group in queue.groups if after is None or group > after))
        else:
            names = [only] if only in queue.groups else []
        found = [queue.groups[group] for group in names]
        return [
            (
                group_info(group, queue.next_sequence),
                None if group.cursor is None else ranges.describe(queue, group, group.cursor),
            )
            for group in found
        ]

    def dead_tail(self) -> int:
        """The first id that cannot be read yet and may yet be given to another letter."""
        state = self._state
        batches = [state.owed, state.owed_behind, *(outcome.records for outcome in state.open.values())]
        unsure = (record.letters[0].dead_id for batch in batches for record in batch if _has_letters(record))
        return min(unsure, default=state.next_dead_id)

    def last_dead_id(self) -> int:
        """The highest of a letter that can be read, or is on its way to the disk; 0 = none. Others are owed."""
        state = self._state
        owed = (record.letters[0].dead_id for record in (*state.owed, *state.owed_behind) if _has_letters(record))
        return min(owed, default=state.next_dead_id) - 1

    def tail(self, name: str) -> int | None:
        """None when the queue is gone."""
        queue = self._state.queues.get(name)
        return None if queue is None else ranges.tail_of(queue)

    def first_near(self, name: str, instant: int) -> int:
        """A sequence that nothing published at or after the instant is below; the tail when there is nothing."""
        queue = find_same(self._state, name, None)
        found = queue.sizes.first_after(instant)
        return ranges.tail_of(queue) if found is None else min(found, ranges.tail_of(queue))

    def reach(
        self,
        name: str,
        group: str | None,
        start: int,
        max_messages: int,
        max_bytes: int,
        incarnation: str | None,
        before: Reach | None = None,
    ) -> tuple[Reach, list[Run]]:
        """(how far a reader at `start` may go, what of that is lost to the group).

        Args:
            before: an answer with `more`; the lost ones are then those behind it.
        """
        start = start if before is None else before.end
        queue, members, stop, cursor = self._readable(name, group, start, incarnation, END, max_messages or END)
        reach = ranges.reach(queue, members, start, stop, max_messages, max_bytes, before)
        lost = [] if cursor is None else cursor.lost.overlap(start, reach.end - 1)
        return reach, lost

    def planned(self, name: str, group: str, tag: str, incarnation: str | None) -> Plan | None:
        """None: not yet. It may not be on the disk yet: `PlanBatch` answers when it is.

        Raises:
            PlanUnknown: no plan begins there any more, and none may.
        """
        queue, found, cursor = lookup.find_cursor(self._state, name, group, incarnation)
        known = cursor.plans.find(tag)
        if known is None and not (cursor.plans.may_begin(tag) or cursor.may_plan_anew()):
            raise unknown_plan(queue, found)
        return known

    def is_unread(self, name: str, group: str, tag: str, incarnation: str | None) -> bool:
        """Whether a batch ends there that nobody has begun to read."""
        _, _, cursor = lookup.find_cursor(self._state, name, group, incarnation)
        return cursor.plans.is_unread(tag)

    def cuts(
        self, name: str, group: str | None, start: int, end: int, parts: int, incarnation: str | None
    ) -> list[int]:
        queue, members, stop, _ = self._readable(name, group, start, incarnation, end)
        return ranges.cuts(queue, members, start, stop, end, parts)

    def size_between(self, name: str, start: int, end: int) -> int:
        """Estimated bytes of [start, end)."""
        return find_same(self._state, name, None).sizes.between(start, end - 1)

    def span(self, name: str, group: str | None, start: int, end: int, incarnation: str | None) -> Span:
        """What may be read of [start, end), or of as much of it as one question looks at."""
        queue, members, end, cursor = self._readable(name, group, start, incarnation, end)
        if cursor is not None:
            end = cursor.rejected.cut_runs(start, end - 1, ranges.RUNS_AT_ONCE)[0] + 1
        reached = max(start, min(end, ranges.known_end(queue)))
        last = min(end, ranges.tail_of(queue)) - 1
        wanted = members.overlap(start, last)
        if cursor is None:
            gone = ranges.gone_from_log(queue, start, last)
            return Span(queue.queue_id, queue.incarnation, wanted, wanted, reached, gone)
        # What is acknowledged counts as read, and yet a batch of it that is read again shall have all its rows.
        lost = ranges.gone_from_log(queue, start, min(last, cursor.committed - 1))
        lost += cursor.lost.overlap(start, end - 1)
        quarantined = cursor.quarantined.overlap(start, end - 1)
        # What the group has rejected is part of a batch that is read again, as long as the DLQ keeps it. Other rows may
        # lie in the store for a while yet: removed, expired, or never for this group.
        allowed = RunSet(wanted)
        allowed.add_all(cursor.rejected.overlap(start, last))
        for run in lost + quarantined:
            allowed.remove(*run)
        return Span(queue.queue_id, queue.incarnation, wanted, allowed.runs(), reached, lost, quarantined)

    def priorities(self, name: str, first: int, last: int) -> dict[int, int]:
        """Sequence -> priority, for those of a priority queue that are not normal."""
        levels = find_same(self._state, name, None).levels or {}
        return {
            sequence: level
            for level, members in levels.items()
            for start, stop in members.overlap(first, last)
            for sequence in range(start, stop + 1)
        }

    def _readable(
        self, name: str, group: str | None, start: int, incarnation: str | None, end: int, max_messages: int = END
    ) -> tuple[Queue, RunSet, int, Cursor | None]:
        """(…, members, up to where they are known, …)."""
        if group is None:
            queue = find_same(self._state, name, incarnation)
            return queue, *ranges.readable(queue, None, self._state.now, start, end, max_messages), None
        queue, found, cursor = lookup.find_cursor(self._state, name, group, incarnation)
        lookup.check_expired(queue, found, cursor)
        _check_start(queue, found, cursor, start)
        return queue, *ranges.readable(queue, found, self._state.now, start, end, max_messages), cursor

    # -- whole messages --------------------------------------------------------------------------------------------

    def kept(
        self, name: str, start: int, end: int, most: int, incarnation: str | None = None
    ) -> Generator[None, None, Kept]:
        """Up to `most` messages of [start, end) that the queue keeps for anybody: see `vibemq.engine.kept`."""
        return kept_within(find_same(self._state, name, incarnation), start, end, most)

    def held(self, name: str, start: int, most: int) -> Generator[None, None, list[HeldMessage]]:
        """Up to `most` messages from `start` on that are with a consumer: see `vibemq.engine.kept`."""
        return held_from(find_same(self._state, name, None), start, most)

    def delayed(self, name: str, start: int, most: int) -> list[tuple[int, int]]:
        """(sequence, due at) of those that wait for an instant, ascending."""
        return delayed_from(find_same(self._state, name, None), start, most, self._state.now)

    def ready(self, name: str, start: int, most: int) -> list[Run]:
        """Those that may be handed out, in that order."""
        return ready_from(find_same(self._state, name, None), start, most)

    def is_wanted(self, name: str, sequence: int) -> Generator[None, None, bool]:
        """Whether a message that the queue keeps is still to be settled: see `vibemq.engine.kept`."""
        return is_wanted(find_same(self._state, name, None), sequence)

    def is_ordered(self, name: str) -> bool:
        """Whether messages are handed out by priority."""
        return find_same(self._state, name, None).levels is not None

    def movable(self, name: str, to: str, start: int, below: int, most: int, incarnation: str | None = None) -> Movable:
        """Up to `most` messages of [start, below) that may be moved into the other queue, the oldest first. Raises
        InvalidOptions when the two queues cannot be used so."""
        source, target = find_same(self._state, name, incarnation), find_same(self._state, to, None)
        check_route(source, target)
        group = source.groups[WAITING_NAME]
        oldest = group.oldest_waiting(most, start)
        limited = bool(target.options.max_messages or target.options.max_bytes)
        runs = RunSet(oldest).overlap(start, below - 1)
        return Movable(source.queue_id, source.incarnation, runs, group.waiting, limited)

    def facts(
        self, name: str, runs: list[Run], incarnation: str | None = None
    ) -> Generator[None, None, dict[int, MessageFacts]]:
        """What is known of messages beside their rows; those of which nothing is known are left out."""
        return facts_of(find_same(self._state, name, incarnation), runs, self._state.now)

    # -- transactions -----------------------------------------------------------------------------------------------

    def last_version(self, app: str, user: str = "") -> int | None:
        """Raises NotAuthorized: the application belongs to another user."""
        done = transactions.decided_of(self._state, app, user)
        return None if done is None else done.version

    def unfinished_stages(self, app: str | None = None) -> list[str]:
        """Names of committed stages that still hold something or have not been removed, in order; of all applications,
        or of one."""
        state = self._state
        apps = state.stages_of if app is None else (app,)
        decided = (done for app in apps if (done := state.transactions.get(app)) is not None)
        return [name for transaction in decided for name in transactions.unfinished_of(state, transaction)]

    def staged_batches(self, stage: str) -> tuple[int, list[Run]]:
        """(queue_id, sequences of the staged batches that wait); (0, []) when the stage is gone."""
        queue = self._state.stages.get(stage)
        return (0, []) if queue is None else (queue.queue_id, queue.groups[WAITING_NAME].ready.runs())

    def plain_part(self, stage: str) -> tuple[int, list[Run], bool, bool]:
        """(queue_id, sequences that wait, whether more is still to be seen, whether all can enter the queue as they
        are) of a plain part of a stage; (0, [], False, True) when it is gone."""
        queue = self._state.stages.get(stage)
        if queue is None:
            return 0, [], False, True
        target = self._state.queues.get(plain_of(stage)[1])
        is_whole = target is None or not target.transient
        return queue.queue_id, queue.groups[WAITING_NAME].ready.runs(), bool(queue.unseen), is_whole

    def old_stages(self) -> list[str]:
        """Stages that nobody committed for too long."""
        oldest = self._state.now - transactions.STAGE_TTL_MS
        old = [name for name, queue in self._state.stages.items() if queue.created_at < oldest]
        # All of a stage goes with the first of its parts: a commit takes what is there for all of it.
        return list(dict.fromkeys(plain_of(name)[0] if is_plain(name) else name for name in old))

    def consumers(self, name: str) -> Generator[None, None, list[ConsumerFigures]]:
        """Of one queue, step by step. Raises QueueNotFound."""
        return views.consumers_of(find_same(self._state, name, None))

    def consumers_of_session(self, session: int, first: int, most: int) -> list[ConsumerFigures]:
        """In the order of their subscriptions; none when the session has gone."""
        return views.consumers_of_session(self._state, session, first, most)

    def session_consumers(self, session: int) -> list[int]:
        """Their numbers; of those that have ended too, as long as they hold messages."""
        return views.session_consumers(self._state, session)

    def session_load(self, session: int) -> tuple[int, int]:
        """(consumers, messages that they hold)."""
        return views.session_load(self._state, session)

    def applications(self) -> Iterator[ApplicationFigures]:
        """Those that commit transactions, by name. To be read at once, up to where one has seen enough."""
        return views.applications(self._state)


def _has_letters(record: Record) -> TypeGuard[DeadLettered]:
    return isinstance(record, DeadLettered) and bool(record.letters)


def _check_start(queue: Queue, group: Group, cursor: Cursor, start: int) -> None:
    head = cursor.head
    if start < head:
        raise OffsetGone(
            f"sequence {start} of queue {queue.name!r} is below {head}, up to which group {group.name!r} has "
            "acknowledged and released everything; go on there, or seek the group if the queue still keeps more"
        )
