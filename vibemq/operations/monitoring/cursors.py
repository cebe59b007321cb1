"""Groups that read by ranges, of all queues that one may inspect: those that are furthest behind come first."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import orjson
from pydantic import Field

from vibemq.auth.policy import Policy
from vibemq.errors import InvalidPayload, VibeMQError
from vibemq.operations.arguments import TEXT_MAX, Arguments, Limit, QueueName, page_size
from vibemq.operations.contracts import EngineQuestions
from vibemq.operations.groups import RUNS_SHOWN, cursor_json
from vibemq.operations.monitoring.readings import CursorView, Readings
from vibemq.operations.monitoring.turns import in_slices, sort_steps
from vibemq.operations.monitoring.visible import visible_rows
from vibemq.operations.registry import Caller, Operation

PAGE_CURSORS = 50
PAGE_CURSORS_MAX = 500

Place = tuple[int, str, str]
"""What the list is sorted by: (backlog, negative, or 0), queue, group."""


class CursorListArguments(Arguments):
    queue: QueueName | None = Field(None, description="Only cursors of this queue.")
    order: Literal["backlog", "name"] = Field("backlog", description="The furthest behind first, or by name.")
    after: str | None = Field(None, max_length=2 * TEXT_MAX, description="Go on there: `next` of the page before.")
    limit: Limit = None


class CursorList:
    def __init__(self, readings: Readings, engine: EngineQuestions, policy: Policy) -> None:
        self._readings = readings
        self._engine = engine
        self._policy = policy

    async def page(self, caller: Caller, wanted: CursorListArguments) -> dict[str, Any]:
        """Which cursors there are, and their order, is of the latest picture; what is said of each is of now."""
        reading = await self._readings.reading()
        rows = await visible_rows(reading, self._policy, caller.principal)
        seen = {reading.now.names[row] for row in rows}
        by_backlog = wanted.order == "backlog"
        after = _place(wanted.after)
        places: list[Place] = []
        await in_slices(_places(reading.now.cursors, seen, wanted.queue, by_backlog, after, places))
        ordered: list[Place] = []
        await in_slices(sort_steps(places, lambda place: place, ordered))
        limit = page_size(wanted.limit, PAGE_CURSORS, PAGE_CURSORS_MAX)
        shown: list[dict[str, Any]] = []
        await in_slices(self._described(ordered[:limit], shown))
        more = len(ordered) > limit
        return {
            "cursors": shown,
            "next": orjson.dumps(ordered[limit - 1]).decode() if more else None,
            "sampled_at": reading.at_ms,
        }

    def _described(self, places: Sequence[Place], into: list[dict[str, Any]]) -> Iterator[None]:
        for _, queue, group in places:
            try:
                found = self._engine.readers.groups(queue, None, 1, only=group)
            except VibeMQError:
                # The queue has gone since the picture was taken.
                found = []
            for info, cursor in found:
                if cursor is not None:
                    entry = {"queue": queue, "group": group, "where": info.where, **cursor_json(cursor)}
                    for name in ("lost", "quarantined"):
                        entry[name] = entry[name][:RUNS_SHOWN]
                    into.append(entry)
            yield


def _places(
    cursors: Sequence[CursorView],
    seen: set[str],
    queue: str | None,
    by_backlog: bool,
    after: Place | None,
    into: list[Place],
) -> Iterator[None]:
    for cursor in cursors:
        if cursor.queue in seen and queue in (None, cursor.queue):
            place = (-cursor.backlog if by_backlog else 0, cursor.queue, cursor.group)
            if after is None or place > after:
                into.append(place)
        yield


def _place(text: str | None) -> Place | None:
    if text is None:
        return None
    try:
        backlog, queue, group = orjson.loads(text)
    except (ValueError, TypeError):
        backlog, queue, group = None, None, None
    if not (isinstance(backlog, int) and isinstance(queue, str) and isinstance(group, str)):
        raise InvalidPayload("argument after of cursor.list must be `next` of the page before, as it was")
    return backlog, queue, group


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "cursor.list",
        "Cursors of all queues that the caller may inspect, with their lag, in pages.",
        CursorListArguments,
        CursorList,
        task=CursorList.page,
    ),
]
