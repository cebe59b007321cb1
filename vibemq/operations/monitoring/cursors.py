"""Groups that read by ranges, as Spark does, of all queues that the caller may inspect: how far behind each is, and
what has become of it."""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from vibemq.auth.policy import Policy
from vibemq.errors import GroupNotFound, QueueNotFound
from vibemq.model.access import Principal
from vibemq.model.runs import run_count
from vibemq.operations.arguments import TEXT_MAX, Arguments, Limit, limit_of, page_size
from vibemq.operations.contracts import EngineQuestions
from vibemq.operations.groups import RUNS_SHOWN
from vibemq.operations.monitoring.kept_lists import KEYS_CONFIG, KeptList, KeptLists, ListPlace
from vibemq.operations.monitoring.readings import QueuesReading, Readings
from vibemq.operations.monitoring.turns import in_slices, sort_steps
from vibemq.operations.monitoring.visible import visible_rows
from vibemq.operations.registry import Caller, Operation

PAGE_CURSORS = 50
PAGE_CURSORS_MAX = 500

Named = tuple[str, str]
"""(queue, group)."""
Sorted = tuple[int, Named]
"""With the figure that it is sorted by."""
_KEYS: TypeAdapter[Sorted] = TypeAdapter(Sorted, config=KEYS_CONFIG)


class CursorListArguments(Arguments):
    queue: str | None = Field(None, max_length=TEXT_MAX, description="Only of queues whose names contain this.")
    group: str | None = Field(None, max_length=TEXT_MAX, description="Only groups whose names contain this.")
    sort: Literal["-backlog", "backlog", "name"] = Field(
        "-backlog", description="Those furthest behind first or last, or by the names of queue and group."
    )
    after: str | None = Field(None, max_length=TEXT_MAX, description="Go on there: `next` of the page before.")
    limit: Limit = limit_of(PAGE_CURSORS_MAX)


class CursorList:
    def __init__(
        self,
        readings: Readings,
        engine: EngineQuestions,
        policy: Policy,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readings = readings
        self._readers = engine.readers
        self._policy = policy
        self._kept: KeptLists[_Order] = KeptLists(monotonic)

    async def page(self, caller: Caller, wanted: CursorListArguments) -> dict[str, Any]:
        """Pages are cut from one list as long as it is kept, and go on at the same place in another one; what each row
        says is of now.

        Raises:
            InvalidPayload
        """
        place = ListPlace.read(wanted.after, _KEYS, "cursor.list")
        kept = await self._list(caller.principal, wanted, place)
        rows = kept.items.rows
        first = place.position if kept.number == place.number else _behind(place, rows)
        last = first + page_size(wanted.limit, PAGE_CURSORS, PAGE_CURSORS_MAX)
        shown: list[dict[str, Any]] = []
        await in_slices(self._look([named for _, named in rows[first:last]], shown))
        ends = last >= len(rows)
        return {"cursors": shown, "next": None if ends else ListPlace(kept.number, last, rows[last - 1]).text()}

    async def _list(
        self, principal: Principal | None, wanted: CursorListArguments, place: ListPlace[Sorted]
    ) -> KeptList["_Order"]:
        """The list that the place is in, if it is still there and the same is asked for; else one of now."""
        asked = (
            wanted.model_dump(exclude={"after", "limit"}),
            (principal, None if principal is None else principal.rules, self._policy.version),
        )
        kept = self._kept.find(place.number, asked)
        if kept is not None:
            return kept
        # Who has made a cursor finds it in the list.
        reading = await self._readings.reading(self._readers.cursors_made)
        kept = self._kept.newest(asked, lambda order: order.reading is reading)
        if kept is not None:
            return kept
        seen = await visible_rows(reading, self._policy, principal)
        return self._kept.add(asked, _Order(reading, await _sorted(reading, seen, wanted)))

    def _look(self, named: list[Named], into: list[dict[str, Any]]) -> Iterator[None]:
        for queue, group in named:
            try:
                info = self._readers.cursor(queue, group)
            except (QueueNotFound, GroupNotFound):
                continue  # It has gone meanwhile.
            into.append(
                {
                    "queue": queue,
                    "group": group,
                    "owner": info.owner,
                    "user": info.user,
                    "epoch": info.epoch,
                    "committed": info.committed,
                    "tail": info.tail,
                    "backlog": info.backlog_messages,
                    "backlog_bytes": info.backlog_bytes,
                    "oldest_at": info.oldest_at or None,
                    "hold_ms": info.hold_ms,
                    "max_lag_ms": info.max_lag_ms,
                    "max_lag_bytes": info.max_lag_bytes,
                    "expired": info.expired,
                    "lost": run_count(info.lost),
                    "lost_runs": info.lost[:RUNS_SHOWN],
                    "quarantined": run_count(info.quarantined),
                    "quarantined_runs": info.quarantined[:RUNS_SHOWN],
                }
            )
            yield


async def _sorted(reading: QueuesReading, rows: Sequence[int], wanted: CursorListArguments) -> list[Sorted]:
    found: list[Sorted] = []
    queue, group = (wanted.queue or "").casefold(), (wanted.group or "").casefold()
    sign = {"-backlog": -1, "backlog": 1, "name": 0}[wanted.sort]

    def look() -> Iterator[None]:
        visible: set[str] = set()
        for row in rows:
            visible.add(reading.now.names[row])
            yield
        for cursor in reading.now.cursors:
            if cursor.queue in visible and queue in cursor.queue.casefold() and group in cursor.group.casefold():
                found.append((sign * cursor.backlog, (cursor.queue, cursor.group)))
            yield

    await in_slices(look())
    ordered: list[Sorted] = []
    await in_slices(sort_steps(found, lambda one: one, ordered))
    return ordered


@dataclass(slots=True)
class _Order:
    """The cursors of one picture, sorted."""

    reading: QueuesReading
    rows: list[Sorted]


def _behind(place: ListPlace[Sorted], rows: Sequence[Sorted]) -> int:
    return 0 if place.last is None else bisect_right(rows, place.last)


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "cursor.list",
        "The groups that read by ranges of all queues that the caller may inspect, those furthest behind first.",
        CursorListArguments,
        CursorList,
        task=CursorList.page,
    ),
]
