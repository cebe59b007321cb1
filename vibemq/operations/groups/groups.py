"""Groups and cursors: who reads a queue by ranges, how far each has come, and what its readers report."""

import asyncio
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any, Concatenate, ParamSpec

import orjson

from vibemq.errors import GroupNotFound, InvalidOptions
from vibemq.model.commands import (
    Begin,
    Command,
    CommitCursor,
    DeleteGroup,
    EnterBatch,
    FilterGroup,
    JoinCursor,
    PlanBatch,
    Quarantine,
    RejectAt,
    SeekGroup,
    StartAt,
)
from vibemq.model.effects import CursorInfo, Reach
from vibemq.model.runs import Run, run_count
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import GroupInfo
from vibemq.operations.arguments import page_size
from vibemq.operations.contracts import CommandSession, EngineQuestions, StoreAccess
from vibemq.operations.groups.arguments import (
    START,
    AdvanceArguments,
    CursorCommitArguments,
    DeleteArguments,
    EnterArguments,
    FilterArguments,
    GroupListArguments,
    JoinArguments,
    OffsetsArguments,
    PlanArguments,
    QuarantineArguments,
    RejectArguments,
    SeekArguments,
    SetArguments,
    SplitArguments,
)
from vibemq.operations.long_polls import LongPolls
from vibemq.operations.reading.positions import sequence_at
from vibemq.operations.registry import Caller, Operation

QUARANTINE_MAX = 65_536
PAGE_GROUPS = 500
PAGE_BYTES_MAX = 512 * 1024
GROUPS_PER_TURN = 50
"""Groups of a page between which the loop has a turn."""
RUNS_SHOWN = 100
"""Runs of lost and quarantined sequences that a list shows of each group; `group.offsets` has all."""
_CURSOR_SHOWN = tuple(field.name for field in fields(CursorInfo) if field.name != "queue_id")
P = ParamSpec("P")


class Groups:
    def __init__(
        self, engine: EngineQuestions, store: StoreAccess, local: CommandSession, long_polls: LongPolls
    ) -> None:
        self._readers = engine.readers
        self._store = store
        self._local = local
        self._long_polls = long_polls

    async def _ask(
        self, caller: Caller, command: Callable[Concatenate[int, int, P], Command], *values: P.args, **named: P.kwargs
    ) -> Any:
        """Have the command decided, as what the caller may do, and return the answer."""
        return await self._local.ask(lambda session, token: caller.owned(command(session, token, *values, **named)))

    async def join(self, caller: Caller, wanted: JoinArguments) -> dict[str, Any]:
        start, sequence = await self._start(wanted.queue, wanted.start or "earliest")
        begin = wanted.begin and Begin(wanted.begin)
        return await self._join(
            caller,
            wanted,
            start=start,
            start_sequence=sequence,
            create=wanted.create,
            begin=begin,
            begin_epoch=wanted.begin_epoch,
        )

    async def set(self, caller: Caller, wanted: SetArguments) -> dict[str, Any]:
        """An operator changes limits; the owner goes on."""
        return await self._join(caller, wanted, take_over=False)

    async def _join(self, caller: Caller, wanted: SetArguments | JoinArguments, **how: Any) -> dict[str, Any]:
        info = await self._ask(
            caller,
            JoinCursor,
            wanted.queue,
            wanted.group,
            owner=wanted.owner or "",
            hold_ms=wanted.hold_ms,
            max_lag_ms=wanted.max_lag_ms,
            max_lag_bytes=wanted.max_lag_bytes,
            incarnation=wanted.incarnation,
            dry_run=wanted.dry_run,
            **how,
        )
        return cursor_json(info)

    async def _start(self, queue: str, text: str) -> tuple[StartAt, int]:
        word, _, value = text.partition(":")
        if word in ("earliest", "beginning"):
            return StartAt.BEGINNING, 0
        if word in ("latest", "now"):
            return StartAt.NOW, 0
        if word in ("sequence", "time") and value.isascii() and value.isdecimal() and len(value) < 19:
            found = (
                int(value) if word == "sequence" else await sequence_at(self._readers, self._store, queue, int(value))
            )
            return StartAt.SEQUENCE, found
        raise InvalidOptions(f"start is {text[:40]!r}; use {START}")

    async def commit(self, caller: Caller, wanted: CursorCommitArguments) -> dict[str, Any]:
        info = await self._ask(
            caller,
            CommitCursor,
            wanted.queue,
            wanted.group,
            wanted.epoch,
            wanted.sequence,
            wanted.incarnation,
            plan=wanted.plan,
        )
        return {"committed": info.committed}

    async def plan(self, caller: Caller, wanted: PlanArguments) -> dict[str, Any]:
        made = await self._ask(
            caller,
            PlanBatch,
            wanted.queue,
            wanted.group,
            wanted.epoch,
            wanted.tag,
            wanted.end,
            wanted.anew,
            wanted.empty,
            wanted.elsewhere,
            incarnation=wanted.incarnation,
        )
        return {"end": made.end, "empty": made.empty, "unread": not made.begun_at}

    async def enter(self, caller: Caller, wanted: EnterArguments) -> dict[str, Any]:
        await self._ask(
            caller,
            EnterBatch,
            wanted.queue,
            wanted.group,
            wanted.epoch,
            wanted.tag,
            wanted.end,
            wanted.query,
            wanted.batch,
            incarnation=wanted.incarnation,
        )
        return {}

    async def reject(self, caller: Caller, wanted: RejectArguments) -> dict[str, Any]:
        done = await self._ask(
            caller, RejectAt, wanted.queue, wanted.group, wanted.rejects, wanted.epoch, wanted.incarnation
        )
        return {"rejected": done.rejected, "already": done.already, "acknowledged": done.acknowledged}

    async def quarantine(self, caller: Caller, wanted: QuarantineArguments) -> dict[str, Any]:
        if run_count(wanted.runs) > QUARANTINE_MAX:
            raise InvalidOptions(f"at most {QUARANTINE_MAX} messages can be quarantined at a time")
        done = await self._ask(
            caller, Quarantine, wanted.queue, wanted.group, wanted.runs, wanted.incarnation, dry_run=wanted.dry_run
        )
        return {"quarantined": done.rejected, **({"unchanged": True} if done.unchanged else {})}

    async def seek(self, caller: Caller, wanted: SeekArguments) -> dict[str, Any]:
        """Ordinary groups can be sought as well; their consumers are ended."""
        queue, group = wanted.queue, wanted.group
        if not self._readers.groups(queue, None, 1, wanted.incarnation, only=group):
            raise GroupNotFound(f"queue {queue!r} has no group {group!r}")
        start, sequence = await self._start(queue, wanted.start)
        found = await self._ask(caller, SeekGroup, queue, group, start, sequence, dry_run=wanted.dry_run)
        return cursor_json(found) if isinstance(found, CursorInfo) else asdict(found)

    async def filter(self, caller: Caller, wanted: FilterArguments) -> dict[str, Any]:
        """The group is made if it is missing."""
        queue, group = wanted.queue, wanted.group
        self._readers.groups(queue, None, 1, wanted.incarnation)
        where = Selector.parse(wanted.where) if wanted.where else None
        start, sequence = (StartAt.DEFAULT, 0) if wanted.start is None else await self._start(queue, wanted.start)
        found = await self._ask(caller, FilterGroup, queue, group, where, start, sequence, dry_run=wanted.dry_run)
        return asdict(found)

    async def delete(self, caller: Caller, wanted: DeleteArguments) -> dict[str, Any]:
        self._readers.groups(wanted.queue, None, 1, wanted.incarnation)
        await self._ask(caller, DeleteGroup, wanted.queue, wanted.group, dry_run=wanted.dry_run)
        return {}

    # -- positions ----------------------------------------------------------------------------------------------------

    async def page(self, caller: Caller, wanted: GroupListArguments) -> dict[str, Any]:
        """The loop has a turn after each few groups, so groups may come and go while a page is made."""
        limit = page_size(wanted.limit, PAGE_GROUPS)
        shown: list[dict[str, Any]] = []
        size, after = 0, wanted.after
        incarnation = self._readers.queue(wanted.queue, wanted.incarnation).incarnation
        while True:
            some = min(GROUPS_PER_TURN, limit - len(shown))
            found = self._readers.groups(wanted.queue, after, some + 1, incarnation, only=wanted.group)
            for group, cursor in found[:some]:
                entry = _entry(group, cursor)
                size += len(orjson.dumps(entry))
                if shown and size > PAGE_BYTES_MAX:
                    return {"groups": shown, "next": shown[-1]["group"]}
                shown.append(entry)
            if len(found) <= some:
                return {"groups": shown, "next": None}
            after = shown[-1]["group"]
            if len(shown) == limit:
                return {"groups": shown, "next": after}
            await asyncio.sleep(0)

    async def offsets(self, caller: Caller, wanted: OffsetsArguments) -> dict[str, Any]:
        queue = self._readers.queue(wanted.queue, wanted.incarnation)
        extent = self._readers.extent(wanted.queue, wanted.incarnation)
        answer: dict[str, Any] = {
            "head": min(extent.first_sequence, queue.tail),
            "tail": queue.tail,
            "incarnation": queue.incarnation,
            "oldest_at": extent.oldest_at,
        }
        if wanted.group is not None:
            answer |= cursor_json(self._readers.cursor(wanted.queue, wanted.group, wanted.incarnation))
        if wanted.group is not None and wanted.plan is not None:
            answer["unread"] = self._readers.is_unread(wanted.queue, wanted.group, wanted.plan, wanted.incarnation)
        if wanted.at_ms is not None:
            answer["sequence_at"] = await sequence_at(self._readers, self._store, wanted.queue, wanted.at_ms)
        return answer

    async def advance(self, caller: Caller, wanted: AdvanceArguments) -> dict[str, Any]:
        queue, start = wanted.queue, wanted.from_
        reach, lost = await self._reach(wanted)
        planned = self._planned(wanted)
        if reach.end <= start and wanted.wait_ms and planned is None:
            await self._long_polls.wait(queue, start, wanted.wait_ms / 1000)
            caller.check_again()
            reach, lost = await self._reach(wanted)
        found = {"end": reach.end, "messages": reach.messages, "bytes": reach.size, "tail": reach.tail, "lost": lost}
        return found if planned is None else {**found, "planned": planned}

    async def _reach(self, wanted: AdvanceArguments) -> tuple[Reach, list[Run]]:
        """The loop has a turn after each piece of very many runs."""
        asked = wanted.queue, wanted.group, wanted.from_, wanted.max_messages, wanted.max_bytes, wanted.incarnation
        reach, lost = self._readers.reach(*asked)
        while reach.more:
            await asyncio.sleep(0)
            reach, more = self._readers.reach(*asked, before=reach)
            lost += more
        return reach, lost

    def _planned(self, wanted: AdvanceArguments) -> str | None:
        if wanted.group is None or wanted.plan is None:
            return None
        known = self._readers.planned(wanted.queue, wanted.group, wanted.plan, wanted.incarnation)
        return None if known is None else known.end

    async def split(self, caller: Caller, wanted: SplitArguments) -> dict[str, Any]:
        queue, start, end = wanted.queue, wanted.from_, wanted.to
        self._readers.groups(queue, None, 1, wanted.incarnation)
        if start >= end:
            return {"cuts": []}
        size = self._readers.size_between(queue, start, end)
        parts = max(1, min(max(-(-size // max(1, wanted.target_bytes)), wanted.min), wanted.max))
        return {"cuts": self._readers.cuts(queue, wanted.group, start, end, parts, wanted.incarnation)}


def cursor_json(info: CursorInfo) -> dict[str, Any]:
    return {name: getattr(info, name) for name in _CURSOR_SHOWN}


def _entry(group: GroupInfo, cursor: CursorInfo | None) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "group": group.name,
        "cursor": group.cursor,
        "committed": group.head,
        "epoch": group.epoch,
        "backlog_messages": group.waiting,
        "in_flight": group.in_flight,
        "consumers": group.consumers,
        "user": group.user,
        "selectors": group.selectors,
        "where": group.where,
    }
    if cursor is not None:
        entry |= cursor_json(cursor)
        for name in ("lost", "quarantined"):
            entry[name] = entry[name][:RUNS_SHOWN]
    return entry


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "group.join",
        "Take over a cursor, made if it is missing; its epoch goes up.",
        JoinArguments,
        Groups,
        task=Groups.join,
    ),
    Operation(
        "group.set",
        "Change limits of a cursor; its reader continues.",
        SetArguments,
        Groups,
        task=Groups.set,
        audited=True,
    ),
    Operation(
        "group.commit", "Acknowledge everything below a sequence.", CursorCommitArguments, Groups, task=Groups.commit
    ),
    Operation("group.plan", "Where a batch ends, the same whenever asked.", PlanArguments, Groups, task=Groups.plan),
    Operation(
        "group.enter",
        "Say which batch of which query a planned batch is, before it is read.",
        EnterArguments,
        Groups,
        task=Groups.enter,
    ),
    Operation("group.reject", "Dead-letter messages, once each.", RejectArguments, Groups, task=Groups.reject),
    Operation(
        "group.quarantine",
        "Dead-letter whole runs and leave them out of later fetches.",
        QuarantineArguments,
        Groups,
        task=Groups.quarantine,
        audited=True,
        nothing_done=("unchanged", True),
    ),
    Operation(
        "group.seek",
        "Move a group; its reader is stopped with GROUP_FENCED.",
        SeekArguments,
        Groups,
        task=Groups.seek,
        audited=True,
    ),
    Operation(
        "group.filter",
        "Give a durable group of a fan-out queue a filter, made if it is missing.",
        FilterArguments,
        Groups,
        task=Groups.filter,
        audited=True,
    ),
    Operation("group.delete", "Delete a group.", DeleteArguments, Groups, task=Groups.delete, audited=True),
    Operation("group.list", "The groups of a queue, by name, in pages.", GroupListArguments, Groups, task=Groups.page),
    Operation("group.offsets", "Positions of a queue and of one group.", OffsetsArguments, Groups, task=Groups.offsets),
    Operation("group.advance", "How far a reader may go.", AdvanceArguments, Groups, task=Groups.advance),
    Operation(
        "group.split", "Cut a range into parts of about the same size.", SplitArguments, Groups, task=Groups.split
    ),
]
