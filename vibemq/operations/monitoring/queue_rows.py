"""The table of queues: figures, rates and a state in a word, of each queue that the caller may inspect.

A list that is sorted by a figure is cut from one picture, which is kept for a while (`kept_lists`): its pages neither
repeat a queue nor leave one out, whatever the figures do meanwhile. Later the list goes on behind the last row's figure
and name.
"""

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import Field, TypeAdapter

from vibemq.auth.matrix import INSPECT
from vibemq.auth.policy import Policy
from vibemq.errors import InvalidPayload
from vibemq.model.access import Principal
from vibemq.model.options import Durability
from vibemq.operations.arguments import TEXT_MAX, Arguments, Limit, limit_of, page_size
from vibemq.operations.monitoring.kept_lists import KEYS_CONFIG, KeptList, KeptLists, ListPlace
from vibemq.operations.monitoring.readings import QueuesReading, Readings
from vibemq.operations.monitoring.states import BY_URGENCY, QueueState, state_of
from vibemq.operations.monitoring.turns import Comparable, in_slices, sort_steps
from vibemq.operations.monitoring.visible import visible_rows
from vibemq.operations.registry import Caller, Operation

PAGE_ROWS = 50
PAGE_ROWS_MAX = 500
NAME_ONLY = "queue"

Key = tuple[float, str]
"""The figure that a list is sorted by, 0 in one by name; and the queue."""
_KEYS: TypeAdapter[Key] = TypeAdapter(Key, config=KEYS_CONFIG)

Value = Callable[[QueuesReading, int], Any]
COLUMNS: dict[str, Value] = {
    NAME_ONLY: lambda reading, row: reading.now.names[row],
    "state": lambda reading, row: BY_URGENCY[state_of(reading, row)],
    "oldest_age_ms": lambda reading, row: reading.oldest_age_ms(row),
    **{
        name: lambda reading, row, name=name: reading.now.columns[name][row]  # type: ignore[misc]
        for name in ("ready", "in_flight", "delayed", "dead", "consumers", "durability")
    },
    "bytes": lambda reading, row: reading.now.columns["size"][row],
    "in_rate": lambda reading, row: reading.rate("published", row),
    "out_rate": lambda reading, row: reading.rate("delivered", row),
    "ack_rate": lambda reading, row: reading.rate("settled", row),
}
"""What the list can be sorted by."""


class QueueRowsArguments(Arguments):
    queue: str | None = Field(None, max_length=TEXT_MAX, description="Only the queue of this name.")
    name: str | None = Field(None, max_length=TEXT_MAX, description="Only queues whose names contain this.")
    state: (
        Literal["idle", "delayed", "flowing", "awaiting_acks", "falling_behind", "stuck", "full", "no_consumer"] | None
    ) = Field(None, description="Only queues in this state.")
    sort: str = Field(
        NAME_ONLY, max_length=32, description="A field of the rows; with `-` before it, the greatest first."
    )
    after: str | None = Field(None, max_length=TEXT_MAX, description="Go on there: `next` of the page before.")
    limit: Limit = limit_of(PAGE_ROWS_MAX)


@dataclass(slots=True)
class _Order:
    """The queues of one picture, sorted."""

    reading: QueuesReading
    rows: list[int]
    key: Callable[[int], Comparable] = field(repr=False)


class QueueRows:
    def __init__(self, readings: Readings, policy: Policy, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._readings = readings
        self._policy = policy
        self._kept: KeptLists[_Order] = KeptLists(monotonic)

    async def page(self, caller: Caller, wanted: QueueRowsArguments) -> dict[str, Any]:
        """`sampled_at`: when the figures were so."""
        if wanted.sort.removeprefix("-") not in COLUMNS:
            raise InvalidPayload(
                f"argument sort of queue.rows must be one of {', '.join(COLUMNS)}, with or without - before it"
            )
        place = ListPlace.read(wanted.after, _KEYS, "queue.rows")
        if wanted.queue is not None:
            return await self._one(caller.principal, wanted.queue)
        kept = await self._list(caller.principal, wanted, place)
        order = kept.items
        here = kept.number == place.number
        first = place.position if here else await _behind(order, wanted, place)
        last = first + page_size(wanted.limit, PAGE_ROWS, PAGE_ROWS_MAX)
        rows = order.rows[first:last]
        ends = last >= len(order.rows)
        found: list[dict[str, Any]] = []
        await in_slices(_shown(order.reading, rows, found))
        return {
            "queues": found,
            "next": None if ends else ListPlace(kept.number, last, _key_of(order, wanted, rows[-1])).text(),
            "sampled_at": order.reading.at_ms,
        }

    async def _one(self, principal: Principal | None, queue: str) -> dict[str, Any]:
        """A page of one row, or of none."""
        reading = await self._readings.reading()
        names, rows = reading.now.names, reading.by_name
        position = bisect_left(rows, queue, key=names.__getitem__)
        found: list[dict[str, Any]] = []
        if position < len(rows) and names[rows[position]] == queue and self._policy.allows(principal, INSPECT, queue):
            found.append(shown(reading, rows[position]))
        return {"queues": found, "next": None, "sampled_at": reading.at_ms}

    async def _list(
        self, principal: Principal | None, wanted: QueueRowsArguments, place: ListPlace[Key]
    ) -> KeptList[_Order]:
        """The list that the place is in, if it is still there and the same is asked for; else one of now."""
        asked = (
            (wanted.sort, wanted.name, wanted.state),
            (principal, None if principal is None else principal.rules, self._policy.version),
        )
        kept = self._kept.find(place.number, asked)
        if kept is not None:
            return kept
        reading = await self._readings.reading()
        kept = self._kept.newest(asked, lambda order: order.reading is reading)
        return kept or self._kept.add(asked, await self._sorted(reading, principal, wanted))

    async def _sorted(self, reading: QueuesReading, principal: Principal | None, wanted: QueueRowsArguments) -> _Order:
        rows: Sequence[int] = await visible_rows(reading, self._policy, principal)
        if wanted.name or wanted.state:
            chosen: list[int] = []
            await in_slices(_chosen(reading, rows, wanted.name or "", wanted.state, chosen))
            rows = chosen
        key = _key(reading, wanted.sort)
        if wanted.sort == NAME_ONLY:
            ordered = list(rows)
        elif wanted.sort == f"-{NAME_ONLY}":
            ordered = list(reversed(rows))
        else:
            keys: dict[int, Comparable] = {}
            await in_slices(_keys(rows, key, keys))
            ordered = []
            await in_slices(sort_steps(rows, keys.__getitem__, ordered))
        return _Order(reading, ordered, key)


def shown(reading: QueuesReading, row: int) -> dict[str, Any]:
    """One row of the table."""
    columns = reading.now.columns
    return {
        "queue": reading.now.names[row],
        "state": state_of(reading, row).value,
        "oldest_age_ms": reading.oldest_age_ms(row),
        **{name: columns[name][row] for name in ("ready", "in_flight", "delayed", "dead")},
        "in_rate": reading.rate("published", row),
        "out_rate": reading.rate("delivered", row),
        "ack_rate": reading.rate("settled", row),
        "consumers": columns["consumers"][row],
        "bytes": columns["size"][row],
        "durability": Durability(columns["durability"][row]).name.lower(),
    }


def _shown(reading: QueuesReading, rows: Sequence[int], into: list[dict[str, Any]]) -> Iterator[None]:
    for row in rows:
        into.append(shown(reading, row))
        yield


def _chosen(
    reading: QueuesReading, rows: Sequence[int], part: str, state: QueueState | str | None, into: list[int]
) -> Iterator[None]:
    names, part = reading.now.names, part.casefold()
    for row in rows:
        if part in names[row].casefold() and (state is None or state_of(reading, row) == state):
            into.append(row)
        yield


def _key(reading: QueuesReading, sort: str) -> Callable[[int], Any]:
    """Of a row: what the list is sorted by. Of equals the name decides, by which rows come in."""
    value = COLUMNS[sort.removeprefix("-")]
    if sort.startswith("-") and sort != f"-{NAME_ONLY}":
        return lambda row: -value(reading, row)
    return lambda row: value(reading, row)


def _keys(rows: Sequence[int], key: Callable[[int], Any], into: dict[int, Any]) -> Iterator[None]:
    for row in rows:
        into[row] = key(row)
        yield


def _key_of(order: _Order, wanted: QueueRowsArguments, row: int) -> Key:
    by_name = wanted.sort.removeprefix("-") == NAME_ONLY
    return 0.0 if by_name else order.key(row), order.reading.now.names[row]  # type: ignore[return-value]


async def _behind(order: _Order, wanted: QueueRowsArguments, place: ListPlace[Key]) -> int:
    """The first position behind the place in another list than the one it was in."""
    last = place.last
    if last is None:
        return 0
    found = len(order.rows)
    backwards = wanted.sort == f"-{NAME_ONLY}"

    def steps() -> Iterator[None]:
        nonlocal found
        for position, row in enumerate(order.rows):
            here = _key_of(order, wanted, row)
            if (here < last) if backwards else (here > last):
                found = position
                return
            yield

    await in_slices(steps())
    return found


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.rows",
        "The queues that the caller may inspect, with figures, rates and states: sorted, chosen, in pages.",
        QueueRowsArguments,
        QueueRows,
        task=QueueRows.page,
    ),
]
