"""Groups of dead letters: what died of the same, how often, since when and until when."""

import asyncio
from typing import Any

from pydantic import Field

from vibemq.errors import InvalidPayload
from vibemq.model.dead.fingerprint import fingerprint_number, fingerprint_text
from vibemq.model.dead.groups import DeadGroup, DeadGroupsWanted, GroupKey
from vibemq.model.options import enum_of
from vibemq.model.records import Reason
from vibemq.operations.arguments import Arguments, Limit, QueueName, page_size
from vibemq.operations.contracts import EngineQuestions, StoreAccess
from vibemq.operations.dead_letters.letters import LetterAccess
from vibemq.operations.dead_letters.reader import SLICE_GROUPS, DeadLetterReader, known_queue_ids
from vibemq.operations.registry import Caller, Operation

PAGE_GROUPS = 100


class DeadGroupListArguments(Arguments):
    queue: QueueName | None = Field(None, description="The queue they died in.")
    reason: str | None = Field(None, description="Why they died: " + ", ".join(r.name.lower() for r in Reason) + ".")
    after: str | None = Field(None, description="Go on behind this group: `next` of the page before.")
    limit: Limit = None


class DeadLetterGroups:
    def __init__(
        self, engine: EngineQuestions, store: StoreAccess, reader: DeadLetterReader, access: LetterAccess
    ) -> None:
        self._engine = engine
        self._store = store
        self._reader = reader
        self._access = access

    async def page(self, caller: Caller, wanted: DeadGroupListArguments) -> dict[str, Any]:
        """Raises QueueNotFound for a queue that neither exists nor has left letters."""
        reason = None if wanted.reason is None else int(enum_of(Reason, wanted.reason, "reason"))
        after = None if wanted.after is None else _key(wanted.after)
        sees = self._access.sees(caller, wanted.queue)
        queue_ids = await known_queue_ids(self._engine, self._reader, wanted.queue, sees)
        limit = page_size(wanted.limit, PAGE_GROUPS)
        shown: list[dict[str, Any]] = []
        done = False
        while not done and len(shown) < limit:
            part = DeadGroupsWanted(
                after=after, queue_ids=queue_ids, reason=reason, limit=min(SLICE_GROUPS, limit - len(shown))
            )
            page = await self._store.dead_groups(part)
            shown += map(group_json, page.groups)
            after, done = page.last, page.done
            # Some stores answer without a wait.
            await asyncio.sleep(0)
        return {"groups": shown, "next": None if done or after is None else _text(after)}


def group_json(group: DeadGroup) -> dict[str, Any]:
    letters = group.letters
    return {
        "queue": group.queue,
        "reason": Reason(group.key.reason).name.lower(),
        "fingerprint": fingerprint_text(group.key.fingerprint),
        "count": letters.count,
        "first_id": letters.first_id,
        "first_at": letters.first_at,
        "last_id": letters.last_id,
        "last_at": letters.last_at,
        "sample": letters.sample.decode(errors="replace"),
    }


def _text(key: GroupKey) -> str:
    return f"{key.queue_id}-{key.reason}-{fingerprint_text(key.fingerprint)}"


def _key(text: str) -> GroupKey:
    """Raises InvalidPayload."""
    parts = text.split("-")
    try:
        queue_id, reason = (int(part) for part in parts[:2] if part.isascii() and part.isdigit() and len(part) <= 10)
        key = GroupKey(queue_id, reason, fingerprint_number(*parts[2:]))
        if queue_id < 2**32 and reason < 2**8:
            return key
    except (TypeError, ValueError):
        pass  # As below.
    raise InvalidPayload(f"argument after of dlq.groups must be `next` of a page, not {text[:40]!r}")


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "dlq.groups",
        "Groups of dead letters of one queue that died of the same, with counts.",
        DeadGroupListArguments,
        DeadLetterGroups,
        task=DeadLetterGroups.page,
        scans=True,
        logged=True,
    ),
]
