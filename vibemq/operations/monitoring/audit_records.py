"""The audit records: who changed what, over which protocol, and what became of it; who logged in, and who could not."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from pydantic import Field

from vibemq.errors import InvalidOptions, InvalidPayload
from vibemq.operations.arguments import TEXT_MAX, Arguments, Limit, QueueName, Text, Whole, page_size
from vibemq.operations.registry import Caller, Operation

PAGE_RECORDS = 100
SHOWN = ("at", "request_id", "user", "address", "protocol", "operation", "resource", "arguments", "outcome", "count")


class AuditArguments(Arguments):
    user: str | None = Field(None, max_length=TEXT_MAX, description="Only what this user did, or tried to.")
    operation: Text | None = Field(
        None, description="Only this operation, such as queue.delete or login, or all of a noun, such as queue."
    )
    queue: QueueName | None = Field(None, description="Only what concerns this queue.")
    outcome: Literal["done", "failed", "refused"] | None = Field(None, description="Only what ended so.")
    newer_than_ms: Whole | None = Field(None, description="Only what was recorded within this time.")
    order: Literal["newest", "oldest"] = Field("newest", description="Which records come first: newest or oldest.")
    after: Text | None = Field(
        None, description="Go on there: `next` of the page before; with order oldest also `position`."
    )
    limit: Limit = None


@dataclass(frozen=True, slots=True)
class AuditWanted:
    """Which records a page shall have."""

    user: str | None
    operation: str | None
    queue: str | None
    outcome: str | None
    newest_first: bool
    after: tuple[int, int] | None
    limit: int
    since: int = 0
    """ms since 1970."""

    def fits(self, record: dict[str, Any]) -> bool:
        if self.user is not None and record.get("user") != self.user:
            return False
        if self.since and int(record.get("at") or 0) < self.since:
            return False
        if self.outcome is not None and record.get("outcome") != self.outcome:
            return False
        if self.operation is not None:
            operation = str(record.get("operation", ""))
            if operation != self.operation and not operation.startswith(f"{self.operation}."):
                return False
        return self.queue is None or self._concerns_queue(record)

    def _concerns_queue(self, record: dict[str, Any]) -> bool:
        arguments = record.get("arguments")
        named = arguments if isinstance(arguments, dict) else {}
        letters, created = named.get("filter"), named.get("created")
        of_letters = letters.get("queue") if isinstance(letters, dict) else None
        made = created if isinstance(created, list) else ()
        return self.queue in (named.get("queue"), named.get("to"), of_letters, *made)


@dataclass(frozen=True, slots=True)
class AuditPage:
    records: list[dict[str, Any]]
    next: tuple[int, int] | None
    examined: int
    """Records that were looked at."""
    position: tuple[int, int]
    """Behind the last record there is."""


class AuditReading(Protocol):
    async def page(self, wanted: AuditWanted) -> AuditPage: ...


class AuditRecords:
    def __init__(self, reader: AuditReading | None, *, wall: Callable[[], float] = time.time) -> None:
        """None: there is no file."""
        self._reader = reader
        self._wall = wall

    async def page(self, caller: Caller, wanted: AuditArguments) -> dict[str, Any]:
        """`position` is where the records end: whoever asks for those behind it, oldest first, misses none.

        Raises:
            InvalidOptions: the broker keeps no audit file.
        """
        if self._reader is None:
            raise InvalidOptions(
                'this broker keeps no audit file; set audit = "file" and start it again with a provider that stores in '
                "the data directory"
            )
        found = await self._reader.page(
            AuditWanted(
                user=wanted.user,
                operation=wanted.operation,
                queue=wanted.queue,
                outcome=wanted.outcome,
                newest_first=wanted.order == "newest",
                after=_position(wanted.after),
                limit=page_size(wanted.limit, PAGE_RECORDS),
                since=0 if wanted.newer_than_ms is None else max(0, int(1000 * self._wall()) - wanted.newer_than_ms),
            )
        )
        return {
            "records": [_shown(record) for record in found.records],
            "next": None if found.next is None else _text(found.next),
            "examined": found.examined,
            "position": _text(found.position),
        }


def _shown(record: dict[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(SHOWN), **record}


def _text(position: tuple[int, int]) -> str:
    return f"{position[0]}.{position[1]}"


def _position(text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    number, dot, offset = text.partition(".")
    if not dot or not all(part.isdecimal() and part.isascii() and len(part) <= 18 for part in (number, offset)):
        raise InvalidPayload("argument after of audit.list must be `next` or `position` of the page before, as it was")
    return int(number), int(offset)


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "audit.list",
        "Who changed what and who logged in or could not: records of the audit file, newest first, in pages.",
        AuditArguments,
        AuditRecords,
        task=AuditRecords.page,
        scans=True,
    ),
]
