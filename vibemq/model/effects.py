"""What the engine answers: to be told to sessions once the outcome they belong to holds."""

from dataclasses import dataclass, field
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model.options import Durability, QueueOptions
from vibemq.model.records import Record
from vibemq.model.runs import Run


@dataclass(slots=True)
class Published:
    """Result of `Publish`: what became of each row, by index."""

    queue: str
    first_sequence: int
    """Of the first accepted row; 0 when none was."""
    count: int
    """Rows in the command."""
    refused: dict[int, VibeMQError] | None = None
    """Index -> why it was not accepted. Everything else is accepted (or a known duplicate)."""
    duplicates: dict[int, int] | None = None
    """Index -> sequence of the message that already carries its dedup_id."""


@dataclass(slots=True)
class Subscribed:
    queue: str
    group: str
    consumer: int
    next_sequence: int
    """Where a new group stood at this moment: deliveries of the backlog are below the queue's next sequence."""


@dataclass(slots=True)
class Counted:
    count: int


@dataclass(slots=True)
class GroupInfo:
    name: str
    durable: bool
    head: int
    waiting: int
    in_flight: int
    consumers: int
    epoch: int


@dataclass(slots=True)
class QueueInfo:
    name: str
    queue_id: int
    incarnation: str
    options: QueueOptions
    created_at: int
    ready: int
    """Waiting to be handed out, in the group that is furthest behind."""
    in_flight: int
    delayed: int
    dead: int
    consumers: int
    size: int
    """Estimated bytes of waiting messages."""
    first_sequence: int
    next_sequence: int
    oldest_at: int
    """published_at of the oldest waiting message (to within its chunk); 0 when none waits."""
    groups: list[GroupInfo] = field(default_factory=list)
    counters: dict[str, int] = field(default_factory=dict)
    """published, delivered, settled, redelivered, dead_lettered, expired, dropped, refused since start."""


@dataclass(slots=True)
class Reply:
    """Answer to one command: a result from this module, None, or an error of the family."""

    session: int
    token: Any
    result: Any


@dataclass(slots=True)
class Deliver:
    """Hand these sequences to the consumer, in this order. The server reads the rows from storage."""

    session: int
    consumer: int
    queue: str
    queue_id: int
    group_id: int
    runs: list[Run]
    acquired: dict[int, int] | None = None
    """Hand-outs so far, this one included, for those above 1."""
    settled: bool = False
    """The hand-out is itself the settlement (fan-out without ack): the session need not remember it."""


@dataclass(slots=True)
class ConsumerEnded:
    """The subscription is over through no wish of its session."""

    session: int
    consumer: int
    queue: str
    error: VibeMQError


Effect = Reply | Deliver | ConsumerEnded


@dataclass(slots=True)
class Outcome:
    """What one engine step decided.

    `records` go to storage in order. `effects` may be told at once. `gated` may be told when `durability` holds for
    the records; then, and only then, the server calls `Engine.committed(ticket, now)` (ticket 0: nothing to say).
    """

    records: list[Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    gated: list[Effect] = field(default_factory=list)
    durability: Durability = Durability.TRANSIENT
    ticket: int = 0
