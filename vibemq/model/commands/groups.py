"""Groups, and those that read by ranges: cursors."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from vibemq.model.commands.consumers import StartAt
from vibemq.model.commands.queues import QueueName
from vibemq.model.runs import Run
from vibemq.model.selector import Selector


@dataclass(slots=True)
class DeleteGroup:
    session: int
    token: Any
    queue: QueueName
    group: str
    user: str = ""
    manage: bool = True
    """False: only a group of `user`."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


@dataclass(slots=True)
class SeekGroup:
    """Create or move a durable group's cursor and take it over (its epoch goes up). Reply: `GroupInfo`, of a cursor
    `CursorInfo`."""

    session: int
    token: Any
    queue: QueueName
    group: str
    start: StartAt
    start_sequence: int = 0
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


@dataclass(slots=True)
class FilterGroup:
    """Give a durable group of a fan-out queue a filter, another one, or none; the group is made if it is missing.

    What does not match is settled for the group by itself. A filter counts for all that waits and for all that comes;
    what is in flight is looked at if it comes back. Reply: `GroupInfo`.
    """

    session: int
    token: Any
    queue: QueueName
    group: str
    where: Selector | None
    start: StartAt = StartAt.DEFAULT
    """Where a group that is missing begins."""
    start_sequence: int = 0
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


class Begin(StrEnum):
    """What becomes of a reader without a position of its own, where the group has acknowledged messages before."""

    REFUSE = "refuse"
    CONTINUE = "continue"
    """At the cursor."""
    REPLAY = "replay"
    """From the earliest that is held."""


@dataclass(slots=True)
class JoinCursor:
    """Take over a cursor, made if missing: its epoch goes up. Reply: `CursorInfo`, durable."""

    session: int
    token: Any
    queue: QueueName
    group: str
    start: StartAt = StartAt.BEGINNING
    """Only for a group that does not exist yet."""
    start_sequence: int = 0
    owner: str = ""
    hold_ms: int | None = None
    """None = as it was; 0 for a new group."""
    max_lag_ms: int | None = None
    max_lag_bytes: int | None = None
    incarnation: str | None = None
    take_over: bool = True
    """False: an operator sets limits of an existing cursor; its owner goes on."""
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`; `owner` is only a text for operators."""
    create: bool = True
    """Make the group if it is missing."""
    begin: Begin | None = None
    """What a reader without a position of its own does with a group that was moved; None: it has one."""
    begin_epoch: int | None = None
    """The epoch of the moved group for which `begin` was decided; None: whichever it has."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


@dataclass(slots=True)
class CommitCursor:
    """Everything below `sequence` is acknowledged; never goes back. Reply: `CursorInfo`."""

    session: int
    token: Any
    queue: QueueName
    group: str
    epoch: int
    sequence: int
    incarnation: str | None = None
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""
    plan: str | None = None
    """Tag of the reader's whole position: what was planned before it is acknowledged as well."""


@dataclass(slots=True)
class ReaderBatch:
    """A batch of a reader, by the position where it begins."""

    session: int
    token: Any
    queue: QueueName
    group: str
    epoch: int
    tag: str
    """Of the position: `vibemq.model.records.tag_of`."""
    incarnation: str | None = field(default=None, kw_only=True)
    user: str = field(default="", kw_only=True)
    manage: bool = field(default=True, kw_only=True)
    """As in `DeleteGroup`."""


@dataclass(slots=True)
class PlanBatch(ReaderBatch):
    """It ends at another position, unless it was planned before. Reply: `Plan`, durable."""

    end: str
    anew: bool = False
    """Forget earlier plans if none of them leads here."""
    empty_mark: str | None = None
    """A batch that began there had no rows: the reader's own name of it, so that it counts once."""
    elsewhere: bool = False
    """Another group of the reader keeps its plans, and is told who has read them; this one only notes this plan."""


@dataclass(slots=True)
class EnterBatch(ReaderBatch):
    """It is planned, and about to be read as a batch of a query with a number. Reply: `Plan`, durable."""

    end_tag: str
    query: str
    """"" = not known: then it is noted only that somebody reads the batch."""
    batch: int


@dataclass(slots=True)
class RejectAt:
    """Dead-letter messages of a cursor, once each. Reply: `Rejected`."""

    session: int
    token: Any
    queue: QueueName
    group: str
    rejects: list[tuple[int, str]]
    """(sequence, error text)."""
    epoch: int | None = None
    incarnation: str | None = None
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""


@dataclass(slots=True)
class Quarantine:
    """Dead-letter whole runs, and leave them out of every later fetch. Reply: `Rejected`."""

    session: int
    token: Any
    queue: QueueName
    group: str
    runs: list[Run]
    incarnation: str | None = None
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""

    dry_run: bool = False
    """Only check, and reply what the reply would be."""
