"""Whole queues, read in pages as the lines of a file, and the parts of messages that are too large for a page."""

import asyncio
import base64
from collections import OrderedDict
from typing import Any, NamedTuple

import orjson
from pydantic import Field

from vibemq.errors import MessageNotFound
from vibemq.model.effects import NOTHING_KNOWN, MessageFacts
from vibemq.model.message_lines import message_line
from vibemq.model.quantities import NUMBER_MAX
from vibemq.model.rows import RowView
from vibemq.operations.arguments import INSTANT_MAX, Text, Whole
from vibemq.operations.contracts import EngineQuestions
from vibemq.operations.messages import priority_of
from vibemq.operations.queues import QueueArguments
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.steps import in_turns
from vibemq.operations.transfer.kept_messages import KeptMessages, KeptPage

PAGE_BYTES = 384 * 1024
"""Of the rows, and of the answer that is made of them: it must fit a frame."""
LINE_BYTES_MAX = 128 * 1024
"""Of a message within a page; of a larger one the row is read in parts."""
PART_BYTES = 384 * 1024
KEPT_BYTES = 64 << 20
"""Of rows between two of their parts, of all sessions together."""
MESSAGES_PER_TURN = 100
"""Lines made before the loop has its turn."""


class ExportArguments(QueueArguments):
    from_: Whole = Field(0, alias="from", description="First sequence to read: `next` of the page before.")
    below: Whole | None = Field(None, description="Sequences from here on are left out: `below` of the first page.")
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: `incarnation` of the queue.")


class PartArguments(QueueArguments):
    sequence: Whole = Field(description="Sequence of the message.")
    offset: Whole = Field(0, description="Where in the message the part begins.")
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: `incarnation` of the queue.")


class Begun(NamedTuple):
    """A row of which a session has read some parts and not the last one."""

    incarnation: str
    sequence: int
    offset: int
    """Where the next part begins."""
    row: bytes


class BegunRows:
    """The row that each session is reading, so that storage is not read anew for every part of it."""

    def __init__(self) -> None:
        self._rows: OrderedDict[int, Begun] = OrderedDict()
        self._bytes = 0

    def take(self, session: int, incarnation: str, sequence: int, offset: int) -> bytes | None:
        """The row, if this is the part behind the one that the session has read last."""
        begun = self._rows.pop(session, None)
        if begun is None:
            return None
        self._bytes -= len(begun.row)
        return begun.row if begun[:3] == (incarnation, sequence, offset) else None

    def keep(self, session: int, begun: Begun) -> None:
        """Those that were read the longest ago make room; they are read from storage again."""
        self.forget(session)
        self._rows[session] = begun
        self._bytes += len(begun.row)
        while self._bytes > KEPT_BYTES and len(self._rows) > 1:
            self.forget(next(iter(self._rows)))

    def forget(self, session: int) -> None:
        begun = self._rows.pop(session, None)
        if begun is not None:
            self._bytes -= len(begun.row)


class QueueExports:
    def __init__(self, engine: EngineQuestions, kept: KeptMessages) -> None:
        self._readers = engine.readers
        self._kept = kept
        self._begun = BegunRows()

    async def page(self, caller: Caller, wanted: ExportArguments) -> dict[str, Any]:
        """What the queue keeps for anybody, ascending. Nothing is consumed; what was consumed while the pages were read
        may be among them or not, and what was published after the first page is not."""
        head = self._readers.queue(wanted.queue, wanted.incarnation)
        below = head.tail if wanted.below is None else wanted.below
        page = await self._kept.page(
            wanted.queue, start=wanted.from_, below=below, max_bytes=PAGE_BYTES, incarnation=head.incarnation
        )
        lines: list[orjson.Fragment] = []
        size, after = 0, page.next
        facts = await in_turns(self._readers.facts(wanted.queue, page.runs, head.incarnation))
        for part in page.slices:
            for sequence, row in enumerate(part.rows, part.first_sequence):
                about = _about(page, part.published_at, sequence, facts.get(sequence, NOTHING_KNOWN))
                line = _encoded(row, about, ordered=page.ordered)
                size += len(line)
                if lines and size > PAGE_BYTES:
                    return self._answer(lines, sequence, below, head.incarnation)
                lines.append(orjson.Fragment(line))
                if not len(lines) % MESSAGES_PER_TURN:
                    await asyncio.sleep(0)
        return self._answer(lines, after, below, head.incarnation)

    def _answer(self, lines: list[orjson.Fragment], after: int | None, below: int, incarnation: str) -> dict[str, Any]:
        return {"messages": lines, "next": after, "below": below, "incarnation": incarnation}

    async def part(self, caller: Caller, wanted: PartArguments) -> dict[str, Any]:
        """Of the row as the broker stores it, whose form `vibemq.model.rows` describes. Of a message that is consumed
        while its parts are read the rest may be answered or not.

        Raises:
            MessageNotFound: it was consumed, or never existed.
        """
        incarnation = self._readers.queue(wanted.queue, wanted.incarnation).incarnation
        row = self._begun.take(caller.session, incarnation, wanted.sequence, wanted.offset)
        if row is None:
            row = await self._row(wanted, incarnation)
        end = wanted.offset + PART_BYTES
        if end < len(row):
            self._begun.keep(caller.session, Begun(incarnation, wanted.sequence, end, row))
        piece = row[wanted.offset : end]
        return {"row_size": len(row), "offset": wanted.offset, "row_base64": base64.b64encode(piece).decode()}

    async def _row(self, wanted: PartArguments, incarnation: str) -> bytes:
        page = await self._kept.page(
            wanted.queue,
            start=wanted.sequence,
            below=min(wanted.sequence, INSTANT_MAX - 1) + 1,
            max_bytes=PAGE_BYTES,
            incarnation=incarnation,
        )
        if not page.slices:
            raise MessageNotFound(
                f"queue {wanted.queue!r} has no message {wanted.sequence}; it was consumed or removed, or never existed"
            )
        return page.slices[0].rows[0]

    def forget_session(self, session: int) -> None:
        """The message that it was reading in parts."""
        self._begun.forget(session)


def _about(page: KeptPage, published_at: int, sequence: int, facts: MessageFacts) -> dict[str, int | str]:
    in_flight = sequence in page.held
    state = "in_flight" if in_flight else "delayed" if facts.deliver_at else "ready"
    expiries = [facts.expires_at, published_at + page.ttl_ms if page.ttl_ms else 0]
    expires_at = min((at for at in expiries if at), default=0)
    return {
        "sequence": sequence,
        "published_at": published_at,
        "state": state,
        "attempts": facts.attempts or int(in_flight),
        "priority": facts.priority,
        # An import takes no larger instants. Programs that want no limit give the largest number as their TTL.
        "expires_at": expires_at if expires_at <= NUMBER_MAX else 0,
        "deliver_at": min(facts.deliver_at, NUMBER_MAX),
    }


def _encoded(row: bytes, about: dict[str, int | str], *, ordered: bool) -> bytes:
    """The line; of a message that is too large, what is known beside its row, and `row_size`."""
    if not ordered:
        # Nothing but its header says so: the engine knows priorities only where they mean something.
        about["priority"] = priority_of(RowView(row).headers)
    priority = about.pop("priority")
    extra = {} if priority == 1 else {"priority": priority}
    if len(row) <= LINE_BYTES_MAX:
        line = orjson.dumps(message_line(row, **about) | extra)
        if len(line) <= 2 * LINE_BYTES_MAX:
            return line
    return orjson.dumps({name: value for name, value in about.items() if value} | extra | {"row_size": len(row)})


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "queue.export",
        "Read everything that a queue keeps, in pages, without consuming it.",
        ExportArguments,
        QueueExports,
        task=QueueExports.page,
        scans=True,
        logged=True,
        reads_bodies=lambda wanted: True,
    ),
    Operation(
        "message.part",
        "Read a part of one stored message, which may be too large for a page.",
        PartArguments,
        QueueExports,
        task=QueueExports.part,
        scans=True,
        reads_bodies=lambda wanted: True,
    ),
]
