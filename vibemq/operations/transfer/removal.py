"""Single messages, removed by sequence or by id."""

from typing import Any

from pydantic import Field

from vibemq.errors import InvalidPayload
from vibemq.model.commands import RemoveListed
from vibemq.model.effects import Removed
from vibemq.model.runs import RunSet
from vibemq.operations.arguments import Numbers, Text, Texts, Whole
from vibemq.operations.contracts import CommandSession, EngineQuestions
from vibemq.operations.queues import QueueArguments
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.transfer.kept_messages import KeptMessages, KeptPage

LISTED_MAX = 1_000
"""Messages that one call names."""
SEARCHED_BYTES = 1 << 20
PAGES_SEARCHED = 16
"""Of one call that looks for ids; `next` says where the following one goes on."""


class MessageRemoveArguments(QueueArguments):
    sequences: Numbers | None = Field(None, description=f"Sequences of messages, at most {LISTED_MAX:,} with the ids.")
    ids: Texts | None = Field(None, description="Ids of messages; every message with such an id is removed.")
    from_: Whole = Field(0, alias="from", description="Where the search for ids begins: `next` of the call before.")
    incarnation: Text | None = Field(None, description="Refuse if the queue was made anew: that of the call before.")
    dry_run: bool = Field(False, description="Say what would be removed, and change nothing.")


class MessageRemoval:
    def __init__(self, engine: EngineQuestions, kept: KeptMessages, local: CommandSession) -> None:
        self._readers = engine.readers
        self._kept = kept
        self._local = local

    async def remove(self, caller: Caller, wanted: MessageRemoveArguments) -> dict[str, Any]:
        """What a consumer holds stays with it, and is named. Ids are looked for in a part of the queue at a time.

        Raises:
            WrongIncarnation: the queue was deleted and made anew, before the call or since its messages were read.
        """
        sequences, ids = wanted.sequences or [], set(wanted.ids or [])
        if not 0 < len(sequences) + len(ids) <= LISTED_MAX:
            raise InvalidPayload(
                f"message.remove takes 1 to {LISTED_MAX:,} sequences and ids in one call, not "
                f"{len(sequences) + len(ids):,}; name them in `sequences` or `ids`, in several calls if there are more"
            )
        incarnation = self._readers.queue(wanted.queue, wanted.incarnation).incarnation
        found, after = await self._search(wanted, incarnation, ids) if ids else ([], None)
        done = await self._take_out(caller, wanted, incarnation, [*sequences, *(sequence for sequence, _ in found)])
        removed, held = RunSet(done.removed), RunSet(done.in_flight)
        named = [sequence for sequence in dict.fromkeys(sequences) if sequence not in held]
        return {
            "count": removed.count,
            "removed": list(removed),
            "in_flight": list(held),
            "missing": [sequence for sequence in named if sequence not in removed],
            "matched": found,
            "next": after,
            "incarnation": incarnation,
        }

    async def _search(
        self, wanted: MessageRemoveArguments, incarnation: str, ids: set[str]
    ) -> tuple[list[tuple[int, str]], int | None]:
        """(sequence, id) of messages with one of the ids, and where to go on."""
        names = {text.encode(errors="replace"): text for text in ids}
        found: list[tuple[int, str]] = []
        start: int | None = wanted.from_
        for _ in range(PAGES_SEARCHED):
            page = await self._kept.page(
                wanted.queue, start=start or 0, max_bytes=SEARCHED_BYTES, incarnation=incarnation
            )
            found += _named(page, names)
            start = page.next
            if start is None or len(found) >= LISTED_MAX:
                break
        return found, start

    async def _take_out(
        self, caller: Caller, wanted: MessageRemoveArguments, incarnation: str, sequences: list[int]
    ) -> Removed:
        removed: Removed = await caller.step(
            self._local,
            lambda session, token: RemoveListed(
                session, token, wanted.queue, sequences, wanted.dry_run, incarnation, caller.session
            ),
        )
        return removed


def _named(page: KeptPage, names: dict[bytes, str]) -> list[tuple[int, str]]:
    return [
        (sequence, names[raw])
        for part in page.slices
        for sequence, raw in enumerate(part.rows.ids(), part.first_sequence)
        if raw in names
    ]


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "message.remove",
        "Remove single waiting messages, by sequence or by id; what consumers hold stays.",
        MessageRemoveArguments,
        MessageRemoval,
        task=MessageRemoval.remove,
        scans=True,
        logged=True,
        audited=True,
    ),
]
