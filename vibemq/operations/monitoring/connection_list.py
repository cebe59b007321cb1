"""Who is connected: in the order of arrival, or sorted and chosen."""

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, TypeAdapter

from vibemq.operations.arguments import LIMIT_MAX, TEXT_MAX, Arguments, Limit, Whole, page_size
from vibemq.operations.contracts import EngineQuestions, ListedPeer, Peers
from vibemq.operations.monitoring.kept_lists import KEYS_CONFIG, KeptLists, ListPlace, not_as_it_was
from vibemq.operations.monitoring.turns import in_slices, sort_steps
from vibemq.operations.registry import Caller, Operation

SORTS = (
    "connection_id",
    "name",
    "protocol",
    "remote",
    "user",
    "since",
    "bytes_received",
    "bytes_sent",
    "bytes_in_rate",
    "bytes_out_rate",
    "consumers",
    "unsettled",
    "stuck_since",
)


SortedPeer = tuple[tuple[bool, Any], int]
"""What it is sorted by (see `_comparable`), and its number."""
_KEYS: TypeAdapter[SortedPeer] = TypeAdapter(tuple[tuple[bool, int | float | str], int], config=KEYS_CONFIG)


class ConnectionListArguments(Arguments):
    after: Whole | Annotated[str, Field(max_length=TEXT_MAX)] | None = Field(
        None, description="Go on behind this connection: `next` of the page before."
    )
    limit: Limit = None
    connection_id: str | None = Field(None, max_length=TEXT_MAX, description="Only this one.")
    protocol: str | None = Field(None, max_length=TEXT_MAX, description="Only those that speak this protocol.")
    user: str | None = Field(
        None, max_length=TEXT_MAX, description="Only those of this user; who is no superuser gives the own name."
    )
    name: str | None = Field(
        None, max_length=TEXT_MAX, description="Only those whose client's name or address contains this."
    )
    stuck: bool | None = Field(None, description="Only those that do, or do not, read what they are sent.")
    sort: Literal[SORTS] | None = Field(  # type: ignore[valid-type]
        None, description="A field of the connections; left out: in the order of arrival."
    )
    descending: bool = Field(False, description="The greatest first; only with sort.")


class ByteRates(Protocol):
    def of(self, number: int) -> tuple[float, float]:
        """Bytes received and sent per second, of the connection with this number."""


class ConnectionList:
    def __init__(
        self,
        peers: Peers,
        engine: EngineQuestions,
        rates: ByteRates,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._peers = peers
        self._readers = engine.readers
        self._rates = rates
        self._kept: KeptLists[list[SortedPeer]] = KeptLists(monotonic)

    async def page(self, caller: Caller, wanted: ConnectionListArguments) -> Any:
        """Oldest first, or sorted: then the pages are cut from one list as long as it is kept, and go on at the same
        place in another one. A request without arguments is answered with a plain list if it fits.

        Raises:
            InvalidPayload
        """
        limit = page_size(wanted.limit, LIMIT_MAX)
        if wanted.sort is not None:
            return await self._sorted_page(wanted, limit)
        if isinstance(wanted.after, str):
            raise not_as_it_was("connections.list")
        after = wanted.after or 0
        found: list[dict[str, Any]] = []
        last: list[int] = []

        def look() -> Iterator[None]:
            for peer in self._peers:
                if peer.number > after and _fits(row := self._row(peer), wanted):
                    found.append(row)
                    last.append(peer.number)
                    if len(found) > limit:
                        return
                yield

        await in_slices(look())
        if not wanted.model_fields_set and len(found) <= limit:
            return found
        return {"connections": found[:limit], "next": last[limit - 1] if len(found) > limit else None}

    async def _sorted_page(self, wanted: ConnectionListArguments, limit: int) -> dict[str, Any]:
        asked = wanted.model_dump(exclude={"after", "limit"})
        place = ListPlace.read(wanted.after, _KEYS, "connections.list")
        kept = self._kept.find(place.number, asked)
        if kept is None:
            kept = self._kept.add(asked, await self._order(wanted))
        order = kept.items
        first = place.position if kept.number == place.number else _behind(place, order, descending=wanted.descending)
        rows: list[dict[str, Any]] = []
        page = [number for _, number in order[first : first + limit]]

        def look() -> Iterator[None]:
            on_page, here = set(page), dict[int, ListedPeer]()
            for peer in self._peers:
                if peer.number in on_page:
                    here[peer.number] = peer
                yield
            for number in page:
                # Who has gone meanwhile is left out.
                if number in here:
                    rows.append(self._row(here[number]))
                yield

        await in_slices(look())
        last = first + limit
        ends = last >= len(order)
        return {"connections": rows, "next": None if ends else ListPlace(kept.number, last, order[last - 1]).text()}

    async def _order(self, wanted: ConnectionListArguments) -> list[SortedPeer]:
        found: list[SortedPeer] = []
        sort = wanted.sort or "since"

        def look() -> Iterator[None]:
            for peer in self._peers:
                if _fits(row := self._row(peer), wanted):
                    found.append((_comparable(row[sort]), peer.number))
                yield

        await in_slices(look())
        ordered: list[SortedPeer] = []
        await in_slices(sort_steps(found, lambda one: one, ordered))
        return ordered[::-1] if wanted.descending else ordered

    def _row(self, peer: ListedPeer) -> dict[str, Any]:
        consumers, unsettled = self._readers.session_load(peer.number)
        came, went = self._rates.of(peer.number)
        return {
            **peer.described(),
            "bytes_in_rate": came,
            "bytes_out_rate": went,
            "consumers": consumers,
            "unsettled": unsettled,
        }


def _fits(row: dict[str, Any], wanted: ConnectionListArguments) -> bool:
    if wanted.connection_id is not None and row["connection_id"] != wanted.connection_id:
        return False
    if wanted.protocol is not None and row["protocol"] != wanted.protocol:
        return False
    if wanted.user is not None and row["user"] != wanted.user:
        return False
    if wanted.stuck is not None and (row["stuck_since"] is not None) != wanted.stuck:
        return False
    if wanted.name is None:
        return True
    part = wanted.name.casefold()
    return part in (row["name"] or "").casefold() or part in row["remote"]


def _comparable(value: Any) -> tuple[bool, Any]:
    """Nothing comes before everything else."""
    return (value is not None, value if value is not None else 0)


def _behind(place: ListPlace[SortedPeer], order: Sequence[SortedPeer], *, descending: bool) -> int:
    """The first position behind it. Raises InvalidPayload for a value that is none of what the order is by."""
    if place.last is None:
        return 0
    try:
        return len(order) - bisect_left(order[::-1], place.last) if descending else bisect_right(order, place.last)
    except TypeError:
        raise not_as_it_was("connections.list") from None


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "connections.list",
        "Who is connected, oldest first or sorted, chosen, in pages.",
        ConnectionListArguments,
        ConnectionList,
        task=ConnectionList.page,
        logged=True,
    ),
]
