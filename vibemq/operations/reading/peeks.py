"""What a queue holds, by what becomes of it next: ready, delayed, in flight. Nothing is taken, counted or written."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, Literal, NamedTuple

from pydantic import Field

from vibemq.model.effects import NOTHING_KNOWN, HeldMessage, MessageFacts
from vibemq.model.rows import RowView
from vibemq.model.runs import Run, run_count, runs_of
from vibemq.model.stored import Slice
from vibemq.operations.arguments import Headers, Limit, Text, Whole, page_size
from vibemq.operations.contracts import (
    EngineQuestions,
    HoldingPeer,
    InstantSource,
    Peers,
    ReaderQuestions,
    StoreAccess,
)
from vibemq.operations.messages import message_json, part_of, priority_of
from vibemq.operations.queues import ANSWER_BYTES_MAX, MESSAGES_PER_TURN, QueueArguments
from vibemq.operations.reading.giving_way import give_way
from vibemq.operations.reading.positions import sequence_at
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.steps import in_turns
from vibemq.operations.transfer.kept_messages import KeptMessages, KeptPage
from vibemq.storage.reading import Piece, read_piece

PREVIEW_BYTES = 1_024
PREVIEW_BYTES_MAX = 4_096

SEARCHED_BYTES = 256 << 10
"""Read at a time while a search looks for messages."""
SEARCH_S = 0.2
"""How long one request looks for messages; `next` says where another one goes on."""
SEARCH_LEAST = 1_000
"""So many messages are looked at however long it takes, unless one is found before."""
HOLDERS_MAX = 100
"""Shown of one message."""
HOLDERS_PER_ANSWER = 1_000
"""Of a search; behind them the page ends."""

State = Literal["ready", "delayed", "in_flight"]


class PeekArguments(QueueArguments):
    from_: Whole = Field(0, alias="from", description="First sequence to look at.")
    newer_than_ms: Whole | None = Field(
        None,
        description="Look from the first message on that was published within this time; with `from`, the later one.",
    )
    limit: Limit = None
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: `incarnation` of the queue.")
    state: State | None = Field(
        None, description="Only these, in a page: `ready`, `delayed` or `in_flight`. Left out: a list of all that wait."
    )
    preview_bytes: int | None = Field(
        None,
        ge=0,
        le=PREVIEW_BYTES_MAX,
        description=f"Of each body, with `state`; left out: {PREVIEW_BYTES:,}.",
    )
    message_id: Text | None = Field(
        None,
        description="Search: only messages with this id, in a page. A search looks at one message after the other, for "
        "a moment, and tells in `examined` how many these were; it goes on at `next`.",
    )
    header: Headers = Field(default_factory=dict, description="Search: only messages that have these headers.")

    @property
    def is_search(self) -> bool:
        return self.message_id is not None or bool(self.header)

    @property
    def is_plain(self) -> bool:
        """Whether it is answered with whole bodies, and not with their beginnings."""
        return self.state is None and not self.is_search


class Peeks:
    def __init__(self, engine: EngineQuestions, store: StoreAccess, peers: Peers, clock: InstantSource) -> None:
        self._engine = engine
        self._readers = engine.readers
        self._store = store
        self._peers = peers
        self._clock = clock
        self._kept = KeptMessages(engine, store)

    async def peek(self, caller: Caller, wanted: PeekArguments) -> Any:
        if wanted.newer_than_ms is not None:
            instant = max(0, self._clock.now() - wanted.newer_than_ms)
            first = await sequence_at(self._readers, self._store, wanted.queue, instant)
            wanted = wanted.model_copy(update={"from_": max(wanted.from_, first)})
        limit = page_size(wanted.limit, 100)
        preview = PREVIEW_BYTES if wanted.preview_bytes is None else wanted.preview_bytes
        if wanted.is_search:
            return await self._found(wanted, limit, preview)
        if wanted.state is None:
            return await self._listed(wanted, limit)
        match wanted.state:
            case "ready":
                return await self._ready(wanted, limit, preview)
            case "delayed":
                return await self._delayed(wanted, limit, preview)
            case "in_flight":
                return await self._in_flight(wanted, limit, preview)

    async def _listed(self, wanted: PeekArguments, limit: int) -> list[dict[str, Any]]:
        """Whole bodies, as many as an answer holds."""
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        runs = self._engine.waiting_runs(wanted.queue, limit, wanted.from_)
        facts = await in_turns(self._readers.facts(wanted.queue, runs, head.incarnation))
        piece = await self._read(head.queue_id, runs)
        shown: list[dict[str, Any]] = []
        for part in piece.slices:
            for sequence, row in enumerate(part.rows, part.first_sequence):
                priority = facts[sequence].priority if sequence in facts else 1
                shown.append(message_json(row, sequence=sequence, published_at=part.published_at, priority=priority))
                if not len(shown) % MESSAGES_PER_TURN:
                    await asyncio.sleep(0)
        return shown

    async def _ready(self, wanted: PeekArguments, limit: int, preview: int) -> dict[str, Any]:
        """In the order of hand-out. A queue that goes by priority has no second page in that order."""
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        runs = self._readers.ready(wanted.queue, wanted.from_, limit)
        shown, rest = await self._shown(wanted, head.queue_id, head.incarnation, runs, preview, {})
        after = rest if rest is not None else _after([last for _, last in runs], run_count(runs), limit)
        ordered = self._readers.is_ordered(wanted.queue)
        return {"messages": shown, "next": None if ordered else after, "incarnation": head.incarnation}

    async def _delayed(self, wanted: PeekArguments, limit: int, preview: int) -> dict[str, Any]:
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        waiting = dict(self._readers.delayed(wanted.queue, wanted.from_, limit))
        about: dict[int, dict[str, Any]] = {sequence: {"due_at": due} for sequence, due in waiting.items()}
        shown, rest = await self._shown(
            wanted, head.queue_id, head.incarnation, runs_of(sorted(waiting)), preview, about
        )
        after = rest if rest is not None else _after(waiting, len(waiting), limit)
        return {"messages": shown, "next": after, "incarnation": head.incarnation}

    async def _in_flight(self, wanted: PeekArguments, limit: int, preview: int) -> dict[str, Any]:
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        held = await in_turns(self._readers.held(wanted.queue, wanted.from_, limit))
        is_full = len(held) == limit
        if is_full and len({one.sequence for one in held}) > 1:
            # Several groups may hold the last one, and not all of them are here.
            last = held[-1].sequence
            held = [one for one in held if one.sequence != last] or held
        by_sequence: dict[int, list[HeldMessage]] = {}
        for one in held:
            by_sequence.setdefault(one.sequence, []).append(one)
        holders = holders_of(held, self._peers)
        about: dict[int, dict[str, Any]] = {
            sequence: {"holders": [_holder(one, holders) for one in some]} for sequence, some in by_sequence.items()
        }
        shown, rest = await self._shown(
            wanted, head.queue_id, head.incarnation, runs_of(sorted(by_sequence)), preview, about
        )
        after = rest if rest is not None else (max(by_sequence) + 1 if is_full else None)
        return {"messages": shown, "next": after, "incarnation": head.incarnation}

    async def _found(self, wanted: PeekArguments, limit: int, preview: int) -> dict[str, Any]:
        """A page of a search: by sequence, of all states if none is named."""
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        search = _Search(wanted, limit, preview)
        start: int | None = wanted.from_
        while start is not None and not search.is_over:
            began = monotonic()
            page = await self._kept.page(
                wanted.queue, start=start, max_bytes=SEARCHED_BYTES, incarnation=head.incarnation
            )
            start = await self._show_found(search, page, wanted, head.incarnation)
            # A page of a few large messages takes a millisecond, and has no turns of its own.
            await give_way(monotonic() - began)
        return {
            "messages": search.shown,
            "next": start,
            "examined": search.examined,
            "incarnation": head.incarnation,
        }

    async def _show_found(
        self, search: "_Search", page: KeptPage, wanted: PeekArguments, incarnation: str
    ) -> int | None:
        """Where the search goes on."""
        found = [match for part in page.slices for match in await search.look(part)]
        facts = await in_turns(
            self._readers.facts(wanted.queue, runs_of(match.sequence for match in found), incarnation)
        )
        for match in found:
            if search.has_no_room:
                return match.sequence
            where = await whereabouts(self._readers, self._peers, wanted.queue, match.sequence)
            search.show(match, where, facts.get(match.sequence, NOTHING_KNOWN))
        return found[-1].sequence + 1 if search.is_full else page.next

    async def _shown(
        self,
        wanted: PeekArguments,
        queue_id: int,
        incarnation: str,
        runs: list[Run],
        preview: int,
        about: Mapping[int, dict[str, Any]],
    ) -> tuple[list[dict[str, Any]], int | None]:
        """The messages, and the sequence where an answer had no room for more."""
        facts = await in_turns(self._readers.facts(wanted.queue, runs, incarnation))
        piece = await self._read(queue_id, runs)
        assert wanted.state is not None
        shown: list[dict[str, Any]] = []
        for part in piece.slices:
            for sequence, row in enumerate(part.rows, part.first_sequence):
                known = facts.get(sequence, NOTHING_KNOWN)
                where = {"state": wanted.state, **about.get(sequence, {})}
                item = facts_json(row, sequence, part.published_at, known, where)
                shown.append(item | part_of(RowView(row), 0, preview))
                if not len(shown) % MESSAGES_PER_TURN:
                    await asyncio.sleep(0)
        return shown, piece.rest[0][0] if piece.rest else None

    async def _read(self, queue_id: int, runs: list[Run]) -> Piece:
        return await self._store.read_rows(partial(read_piece, self._store.provider), queue_id, runs, ANSWER_BYTES_MAX)


class _Match(NamedTuple):
    sequence: int
    row: bytes
    published_at: int


class _Search:
    """Messages that fit, as far as they were looked at."""

    def __init__(self, wanted: PeekArguments, limit: int, preview: int) -> None:
        self._id = None if wanted.message_id is None else wanted.message_id.encode(errors="replace")
        self._headers = wanted.header.items()
        self._state = wanted.state
        self._limit = limit
        self._preview = preview
        self._deadline = asyncio.get_running_loop().time() + SEARCH_S
        self._found = self._found_bytes = self._placed = self._holders = 0
        self.examined = 0
        self.shown: list[dict[str, Any]] = []

    @property
    def is_full(self) -> bool:
        """Whether an answer has no room for more."""
        return self._found >= self._limit or self._found_bytes > ANSWER_BYTES_MAX

    @property
    def is_over(self) -> bool:
        return self.is_full or self.has_no_room or (self.examined >= SEARCH_LEAST and self._is_late)

    @property
    def has_no_room(self) -> bool:
        """Whether what was found has to wait for the next page; the first never has to."""
        return self._placed > 0 and (self._holders >= HOLDERS_PER_ANSWER or self._is_late)

    @property
    def _is_late(self) -> bool:
        return asyncio.get_running_loop().time() > self._deadline

    async def look(self, part: Slice) -> list[_Match]:
        """The loop has turns in between."""
        rows = part.rows
        matches: list[_Match] = []
        for position, raw in enumerate(rows.ids()):
            if self.is_full:
                break
            self.examined += 1
            if self._id in (None, raw) and self._has_headers(row := rows[position]):
                matches.append(_Match(part.first_sequence + position, row, part.published_at))
                self._found += 1
                self._found_bytes += len(row)
            if not self.examined % MESSAGES_PER_TURN:
                await asyncio.sleep(0)
        return matches

    def _has_headers(self, row: bytes) -> bool:
        return not self._headers or self._headers <= RowView(row).headers.items()

    def show(self, match: _Match, where: dict[str, Any], known: MessageFacts) -> None:
        """`where`: see `whereabouts`. One of another state than was asked for is not shown."""
        self._placed += 1
        if self._state not in (None, where["state"]):
            return
        self._holders += len(where["holders"])
        item = facts_json(match.row, match.sequence, match.published_at, known, where)
        self.shown.append(item | part_of(RowView(match.row), 0, self._preview))


async def whereabouts(readers: ReaderQuestions, peers: Peers, queue: str, sequence: int) -> dict[str, Any]:
    """The state of one message that the queue keeps, and who holds it; `settled` where a log keeps it all the same."""
    held = [one for one in await in_turns(readers.held(queue, sequence, HOLDERS_MAX)) if one.sequence == sequence]
    if held:
        return {"state": "in_flight", "due_at": None, "holders": holders_json(held, peers)}
    waiting = dict(readers.delayed(queue, sequence, 1))
    if sequence in waiting:
        return {"state": "delayed", "due_at": waiting[sequence], "holders": []}
    wanted = await in_turns(readers.is_wanted(queue, sequence))
    return {"state": "ready" if wanted else "settled", "due_at": None, "holders": []}


def facts_json(
    row: bytes, sequence: int, published_at: int, known: MessageFacts, where: Mapping[str, Any]
) -> dict[str, Any]:
    """All that is known of a message but its body; what is not so is null.

    Args:
        where: its state, and who holds it.
    """
    view = RowView(row)
    headers = view.headers
    return {
        "sequence": sequence,
        "id": view.message_id,
        "published_at": published_at,
        "priority": known.priority if known.priority != 1 else priority_of(headers),
        "expires_at": known.expires_at or None,
        "deliver_at": known.deliver_at or None,
        # The first delivery of a message is noted nowhere but with its consumer.
        "attempts": max(known.attempts, *(holder["attempts"] for holder in where.get("holders", ())), 0),
        "headers": headers,
        "payload_size": view.payload_size,
        **where,
    }


def holders_json(held: Sequence[HeldMessage], peers: Peers) -> list[dict[str, Any]]:
    holders = holders_of(held, peers)
    return [_holder(one, holders) for one in held]


def holders_of(held: Sequence[HeldMessage], peers: Peers) -> dict[int, HoldingPeer]:
    sessions = {one.session for one in held}
    return {peer.number: peer for peer in peers.peers() if peer.number in sessions} if sessions else {}


def _holder(held: HeldMessage, holders: Mapping[int, HoldingPeer]) -> dict[str, Any]:
    peer = holders.get(held.session)
    principal = peer.principal if peer is not None else None
    return {
        "group": held.group,
        "connection": peer.connection_id if peer is not None else None,
        "client": peer.client_name if peer is not None else None,
        "protocol": peer.protocol if peer is not None else None,
        "user": principal.name if principal is not None else None,
        "deadline_at": held.deadline or None,
        "attempts": held.attempts,
    }


def _after(sequences: Iterable[int], count: int, limit: int) -> int | None:
    """Where the next page begins; None: this one was not full."""
    return max(sequences) + 1 if count >= limit else None


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.peek",
        "Look at stored messages without taking them.",
        PeekArguments,
        Peeks,
        task=Peeks.peek,
        scans=True,
        logged=True,
        reads_bodies=lambda wanted: wanted.is_plain,
    ),
]
