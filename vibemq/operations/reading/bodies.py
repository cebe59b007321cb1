"""One message: what is known of it, and its body in parts, as it is stored or opened."""

import asyncio
import hashlib
import time
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import Field

from vibemq.errors import MessageNotFound
from vibemq.model.effects import NOTHING_KNOWN, MessageFacts
from vibemq.model.rows import RowView
from vibemq.operations.arguments import INSTANT_MAX, Text, Whole
from vibemq.operations.contracts import EngineQuestions, Peers
from vibemq.operations.messages import part_json
from vibemq.operations.queues import ANSWER_BYTES_MAX, QueueArguments
from vibemq.operations.reading.decoding import DECODED_BYTES_MAX, decoded, decoded_whole
from vibemq.operations.reading.peeks import facts_json, whereabouts
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.steps import in_turns
from vibemq.operations.transfer.kept_messages import KeptMessages

T = TypeVar("T")

PART_BYTES = 65_536
PART_BYTES_MAX = 262_144
"""As text with every byte escaped, it still fits an answer."""
ASIDE_BYTES_LEAST = 65_536
"""Shorter bodies are hashed on the loop."""
ASIDE_MAX = 2
"""Bodies that are opened or hashed at a time."""


class MessageShowArguments(QueueArguments):
    sequence: Whole = Field(description="Sequence of the message.")
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: `incarnation` of the queue.")
    decode: Literal["gzip", "br"] | None = Field(None, description="Open the body first: `gzip` or `br`.")
    offset: int = Field(0, ge=0, le=DECODED_BYTES_MAX, description="Where in the body the part begins.")
    length: int = Field(PART_BYTES, ge=0, le=PART_BYTES_MAX, description="Most bytes of the part.")
    digest: bool = Field(False, description="Tell the SHA-256 of the body as it is stored.")


class FoundMessage(NamedTuple):
    """As it was when it was looked for."""

    row: bytes
    published_at: int
    incarnation: str
    facts: MessageFacts


class MessageBodies:
    def __init__(self, engine: EngineQuestions, kept: KeptMessages, peers: Peers) -> None:
        self._readers = engine.readers
        self._kept = kept
        self._peers = peers
        self._aside = asyncio.Semaphore(ASIDE_MAX)

    async def show(self, caller: Caller, wanted: MessageShowArguments) -> dict[str, Any]:
        """What is known of the message, and a part of its body. `decoded_size` is null when there is more to open."""
        found = await self._found(wanted)
        view = RowView(found.row)
        where = await whereabouts(self._readers, self._peers, wanted.queue, wanted.sequence)
        shown = facts_json(found.row, wanted.sequence, found.published_at, found.facts, where)
        shown |= {"queue": wanted.queue, "incarnation": found.incarnation}
        if wanted.digest:
            shown["sha256"] = await self._digest(view.payload_view)
        end = wanted.offset + wanted.length
        if wanted.decode is None:
            part, whole = view.payload_part(wanted.offset, wanted.length), end >= view.payload_size
        else:
            coding = wanted.decode
            opened = await self._in_thread(lambda: decoded(view.payload_view, coding, end, time.monotonic))
            part, whole = opened.data[wanted.offset :], opened.whole
            shown["decoded_size"] = len(opened.data) if whole else None
        return shown | part_json(part, wanted.offset, whole=whole)

    async def body(self, wanted: MessageShowArguments) -> memoryview:
        """The whole body, uncopied, or opened if that is asked for; `offset` and `length` do not count.

        Raises:
            MessageNotFound, InvalidPayload, MessageTooLarge
        """
        view, coding = RowView((await self._found(wanted)).row), wanted.decode
        if coding is None:
            return view.payload_view
        return memoryview(await self._in_thread(lambda: decoded_whole(view.payload_view, coding, time.monotonic)))

    async def _found(self, wanted: MessageShowArguments) -> FoundMessage:
        """Raises MessageNotFound: it was consumed, or never existed."""
        incarnation = self._readers.queue(wanted.queue, wanted.incarnation).incarnation
        sequence = min(wanted.sequence, INSTANT_MAX - 1)
        facts = await in_turns(self._readers.facts(wanted.queue, [(sequence, sequence)], incarnation))
        page = await self._kept.page(
            wanted.queue, start=sequence, below=sequence + 1, max_bytes=ANSWER_BYTES_MAX, incarnation=incarnation
        )
        if not page.slices:
            raise MessageNotFound(
                f"queue {wanted.queue!r} has no message {wanted.sequence}; it was consumed or removed, or never existed"
            )
        part = page.slices[0]
        return FoundMessage(part.rows[0], part.published_at, incarnation, facts.get(sequence, NOTHING_KNOWN))

    async def _digest(self, payload: memoryview) -> str:
        def digest() -> str:
            return hashlib.sha256(payload).hexdigest()

        return digest() if len(payload) < ASIDE_BYTES_LEAST else await self._in_thread(digest)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        async with self._aside:
            return await asyncio.to_thread(work)


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "message.show",
        "Look at one stored message without taking it, and at a part of its body.",
        MessageShowArguments,
        MessageBodies,
        task=MessageBodies.show,
        scans=True,
        logged=True,
        reads_bodies=lambda wanted: True,
    ),
]
