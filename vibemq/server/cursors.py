"""Cursors as their owners and operators see them: positions, acknowledgements, rejects (docs/spec/cursor.md)."""

from dataclasses import asdict
from typing import Any

from vibemq.errors import GroupNotFound, InvalidOptions, InvalidPayload
from vibemq.model.commands import CommitCursor, DeleteGroup, JoinCursor, Quarantine, RejectAt, SeekGroup, StartAt
from vibemq.model.effects import CursorInfo
from vibemq.model.runs import run_count
from vibemq.model.stored import Slice
from vibemq.operations.long_polls import LongPolls
from vibemq.server.arguments import Arguments, items, number, number_or_none, runs, text, text_or_none
from vibemq.server.commit.storage_threads import Store
from vibemq.server.contracts import QueueEngine
from vibemq.server.net.local_session import Asking

LOOK_BYTES = 1 << 20
QUARANTINE_MAX = 65_536
WAIT_MS_MAX = 30_000
PARTS_MAX = 4096


class Cursors:
    """One method for each verb: (queue, arguments) to a JSON-ready answer."""

    def __init__(self, engine: QueueEngine, store: Store, inner: Asking, waiters: LongPolls) -> None:
        self._readers = engine.readers
        self._store = store
        self._inner = inner
        self._waiters = waiters

    async def join(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        start, sequence = await self._start(queue, arguments, "earliest")
        return await self._join(queue, arguments, start=start, start_sequence=sequence)

    async def set(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        """An operator changes limits; the owner goes on."""
        return await self._join(queue, arguments, take_over=False)

    async def _join(self, queue: str, arguments: Arguments, **how: Any) -> dict[str, Any]:
        info = await self._inner.ask(
            lambda session, token: JoinCursor(
                session,
                token,
                queue,
                text(arguments, "group"),
                owner=str(arguments.get("owner") or ""),
                hold_ms=number_or_none(arguments, "hold_ms"),
                max_lag_ms=number_or_none(arguments, "max_lag_ms"),
                max_lag_bytes=number_or_none(arguments, "max_lag_bytes"),
                incarnation=text_or_none(arguments, "incarnation"),
                **how,
            )
        )
        return cursor_json(info)

    async def _start(self, queue: str, arguments: Arguments, default: str) -> tuple[StartAt, int]:
        word, _, value = str(arguments.get("start") or default).partition(":")
        if word in ("earliest", "beginning"):
            return StartAt.BEGINNING, 0
        if word in ("latest", "now"):
            return StartAt.NOW, 0
        if word in ("sequence", "time") and value.isascii() and value.isdecimal() and len(value) < 19:
            found = int(value) if word == "sequence" else await self._sequence_at(queue, int(value))
            return StartAt.SEQUENCE, found
        raise InvalidOptions(
            f"start is {str(arguments.get('start'))[:40]!r}; use earliest, latest, sequence:N or time:MS"
        )

    async def commit(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        info = await self._inner.ask(
            lambda session, token: CommitCursor(
                session,
                token,
                queue,
                text(arguments, "group"),
                number(arguments, "epoch"),
                number(arguments, "sequence"),
                text_or_none(arguments, "incarnation"),
            )
        )
        return {"committed": info.committed}

    async def reject(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        rejects = [_reject_of(item) for item in items(arguments, "rejects")]
        done = await self._inner.ask(
            lambda session, token: RejectAt(
                session,
                token,
                queue,
                text(arguments, "group"),
                rejects,
                number_or_none(arguments, "epoch"),
                text_or_none(arguments, "incarnation"),
            )
        )
        return {"rejected": done.rejected, "already": done.already}

    async def quarantine(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        wanted = runs(arguments, "runs")
        if run_count(wanted) > QUARANTINE_MAX:
            raise InvalidOptions(f"at most {QUARANTINE_MAX} messages can be quarantined at a time")
        group, incarnation = text(arguments, "group"), text_or_none(arguments, "incarnation")
        done = await self._inner.ask(lambda s, t: Quarantine(s, t, queue, group, wanted, incarnation))
        return {"quarantined": done.rejected}

    async def seek(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        """Ordinary groups can be sought as well; their consumers are ended."""
        group = text(arguments, "group")
        info, _ = self._readers.queue(queue, text_or_none(arguments, "incarnation"))
        if arguments.get("start") is None:
            raise InvalidPayload("argument start is missing; use earliest, latest, sequence:N or time:MS")
        if group not in {known.name for known in info.groups}:
            raise GroupNotFound(f"queue {queue!r} has no group {group!r}")
        start, sequence = await self._start(queue, arguments, "")
        found = await self._inner.ask(lambda session, token: SeekGroup(session, token, queue, group, start, sequence))
        return cursor_json(self._readers.cursor(queue, group)) if found.cursor else asdict(found)

    async def delete(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        group = text(arguments, "group")
        self._readers.queue(queue, text_or_none(arguments, "incarnation"))
        await self._inner.ask(lambda session, token: DeleteGroup(session, token, queue, group))
        return {}

    # -- positions ----------------------------------------------------------------------------------------------------

    async def groups(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        info, _ = self._readers.queue(queue)
        known = {cursor.group: cursor_json(cursor) for cursor in self._readers.cursors(queue)}
        groups = [
            {
                "group": group.name,
                "cursor": group.cursor,
                "committed": group.head,
                "epoch": group.epoch,
                "backlog_messages": group.waiting,
                "in_flight": group.in_flight,
                "consumers": group.consumers,
                **known.get(group.name, {}),
            }
            for group in info.groups
        ]
        return {"groups": groups}

    async def offsets(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        group, incarnation = text_or_none(arguments, "group"), text_or_none(arguments, "incarnation")
        info, tail = self._readers.queue(queue, incarnation)
        answer: dict[str, Any] = {
            "head": min(info.first_sequence, tail),
            "tail": tail,
            "incarnation": info.incarnation,
            "oldest_at": info.oldest_at,
        }
        if group is not None:
            answer |= cursor_json(self._readers.cursor(queue, group, incarnation))
        at = number_or_none(arguments, "at_ms")
        if at is not None:
            answer["sequence_at"] = await self._sequence_at(queue, at)
        return answer

    async def _sequence_at(self, queue: str, instant: int) -> int:
        """The first sequence published at or after the instant. The index is coarse; the stored instants are exact."""
        info, tail = self._readers.queue(queue)
        first = max(self._readers.first_near(queue, instant), 1)
        while first < tail:
            slices = await self._read(info.queue_id, first, tail - 1)
            for part in slices:
                if part.published_at >= instant:
                    return part.first_sequence
            if not slices:
                break
            first = slices[-1].first_sequence + slices[-1].rows.count
        return tail

    async def _read(self, queue_id: int, first: int, last: int) -> list[Slice]:
        return await self._store.call(self._store.provider.read, queue_id, first, last, LOOK_BYTES)

    async def advance(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        group, incarnation = text_or_none(arguments, "group"), text_or_none(arguments, "incarnation")
        start = number(arguments, "from")
        limits = number(arguments, "max_messages", 0), number(arguments, "max_bytes", 0)
        wait_ms = number(arguments, "wait_ms", 0, most=WAIT_MS_MAX)
        reach, lost = self._readers.reach(queue, group, start, *limits, incarnation)
        if reach.end <= start and wait_ms:
            await self._waiters.wait(queue, start, wait_ms / 1000)
            reach, lost = self._readers.reach(queue, group, start, *limits, incarnation)
        return {"end": reach.end, "messages": reach.messages, "bytes": reach.size, "tail": reach.tail, "lost": lost}

    async def split(self, queue: str, arguments: Arguments) -> dict[str, Any]:
        group, incarnation = text_or_none(arguments, "group"), text_or_none(arguments, "incarnation")
        start, end = number(arguments, "from"), number(arguments, "to")
        self._readers.queue(queue, incarnation)
        if start >= end:
            return {"cuts": []}
        target = max(1, number(arguments, "target_bytes", 16 << 20))
        least, most = number(arguments, "min", 1), number(arguments, "max", 64, most=PARTS_MAX)
        size = self._readers.size_between(queue, start, end)
        parts = max(1, min(max(-(-size // target), least), most))
        return {"cuts": self._readers.cuts(queue, group, start, end, parts, incarnation)}


def cursor_json(info: CursorInfo) -> dict[str, Any]:
    shown = asdict(info)
    del shown["queue_id"]
    return shown


def _reject_of(item: Any) -> tuple[int, str]:
    if isinstance(item, list) and len(item) == 2 and type(item[0]) is int and isinstance(item[1], str):
        return item[0], item[1]
    raise InvalidPayload("argument rejects must be a list of pairs [sequence, error text]")
