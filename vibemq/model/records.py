"""Facts that storage keeps. One batch of records is applied whole or not at all.

The engine makes them; storage applies them in order to a `StoredState` (see
`vibemq.storage.state.reducer`) and keeps the rows.
Instants are wall-clock milliseconds, never decreasing. Runs are inclusive `(first, last)` sequences.
"""

from dataclasses import dataclass
from enum import IntEnum
from hashlib import sha256
from typing import NamedTuple

from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.extras.message_extra import Extras as Extras
from vibemq.model.extras.message_extra import MessageExtra as MessageExtra
from vibemq.model.jobs.job_records import JobRecord
from vibemq.model.options import QueueOptions
from vibemq.model.rows import Rows
from vibemq.model.runs import Run

ALL_GROUPS = 0xFFFF_FFFF
"""In place of a group id: the fact holds for every group of the queue."""

DEFAULT_GROUP = 0
"""The group that ordinary subscribers share; in a fan-out queue, the group that waits for the first subscriber."""


class Reason(IntEnum):
    """Why a message left its queue without being settled; the first four are the protocol's numbers."""

    MAX_ATTEMPTS = 0
    EXPIRED = 1
    DESERIALIZATION = 2
    REJECTED = 3
    OVERFLOW = 4
    PURGED = 5
    RETENTION = 6
    QUEUE_DELETED = 7
    MOVED = 8
    """It entered another queue in the same batch: moved by an operator, or as a piece of a committed stage."""


class Attempts(NamedTuple):
    """History of one message in one group; absent while it was handed out at most once and never failed."""

    acquired: int = 1
    """Hand-outs so far, whatever came of them."""
    failed: int = 0
    """Failed ones; only these lead to the DLQ."""
    first_failed_at: int = 0
    last_failed_at: int = 0
    due_at: int = 0
    """Not to be handed out again before this instant."""
    error: str = ""


class DeadFacts(NamedTuple):
    dead_id: int
    """Unique in the store, ascending, never reused."""
    sequence: int
    reason: Reason
    error: str
    acquired: int
    failed: int
    first_failed_at: int
    dead_at: int


class CursorFacts(NamedTuple):
    """What is kept of a group that reads by ranges, beside its head: docs/spec/cursor.md."""

    epoch: int
    committed: int
    """Everything below it is acknowledged; held back from there down to the group's head."""
    hold_ms: int
    max_lag_ms: int
    max_lag_bytes: int
    expired: bool
    joins: int
    """Since the last progress."""
    owner: str
    lost: tuple[Run, ...] = ()
    """At or above `committed`, gone before the group read them."""
    quarantined: tuple[Run, ...] = ()
    head: int = 0
    """Everything below it is released from the hold; 0 = not known, in what older versions wrote."""
    moved: bool = True
    """By acknowledgements, since it was made or sought: a reader without a position of its own may miss something."""
    begun: bool = False
    """Whether the reader joined without a position of its own."""


class Plan(NamedTuple):
    """How a reader cut its batches: one that begins at a position ends at another, whenever it is asked again."""

    tag: str
    """Of the position where it begins; see `tag_of`."""
    end: str
    """The position where it ends, as the reader writes it; "" = what followed was lost by a repair. Where it begins:
    the batch has no rows, and another plan may begin there."""
    made_at: int = 0
    query: str = ""
    """The query that has begun to read the batch, if it is known."""
    batch: int = 0
    """Its number in that query."""
    begun_at: int = 0
    """When somebody has begun to read the batch; 0 = nobody has."""
    empty: int = 0
    """How many batches without rows followed it, as far as the reader was told."""
    empty_mark: str = ""
    """The reader's own name of the last of them."""
    empty_at: int = 0
    """When it was told of."""
    empty_epoch: int = 0
    """The epoch of the reader that told of it."""
    empty_before: int = 0
    """How many were known when that reader told of its first."""

    @property
    def has_rows(self) -> bool:
        return tag_of(self.end) != self.tag


def tag_of(position: str) -> str:
    """Short for a reader's whole position, which may name many queues."""
    return sha256(position.encode()).hexdigest()[:16]


@dataclass(slots=True)
class QueueCreated:
    queue_id: int
    name: str
    options: QueueOptions
    created_at: int
    incarnation: str
    """Random hex: tells a queue from a later one of the same name."""


@dataclass(slots=True)
class QueueChanged:
    queue_id: int
    options: QueueOptions


@dataclass(slots=True)
class QueueDeleted:
    """The queue, its groups and its waiting messages are gone; its dead letters stay until purged or replayed."""

    queue_id: int


@dataclass(slots=True)
class QueueAttended:
    """The queue has had a consumer: with `auto_delete` it goes when the last one has left, or at the next start."""

    queue_id: int


@dataclass(slots=True)
class GroupCreated:
    queue_id: int
    group_id: int
    name: str
    durable: bool
    head: int
    """First sequence this group has not seen."""


@dataclass(slots=True)
class GroupRenamed:
    """The group keeps its progress under another name (a fan-out queue's waiting group finds its subscriber)."""

    queue_id: int
    group_id: int
    name: str
    durable: bool


@dataclass(slots=True)
class GroupDeleted:
    queue_id: int
    group_id: int


@dataclass(slots=True)
class GroupMoved:
    """The group's cursor is set: everything below `head` is settled, nothing is pending, nothing above is taken.

    Messages at or above `head` that are gone from the store follow as Settled, or they would count as waiting again.
    """

    queue_id: int
    group_id: int
    head: int
    epoch: int


@dataclass(slots=True)
class CursorChanged:
    """The group is a cursor, and this is what is known of it now."""

    queue_id: int
    group_id: int
    facts: CursorFacts


@dataclass(slots=True)
class PlanMade:
    """A batch of the cursor's reader has its end. The numbers of a group's plans ascend."""

    queue_id: int
    group_id: int
    number: int
    plan: Plan


@dataclass(slots=True)
class PlansForgotten:
    """Those below this number."""

    queue_id: int
    group_id: int
    below: int


@dataclass(slots=True)
class GroupOwned:
    """A durable group belongs to this user from now on."""

    queue_id: int
    group_id: int
    owner: str


@dataclass(slots=True)
class GroupFiltered:
    """Of a durable group's messages, those that do not match are settled by themselves from now on."""

    queue_id: int
    group_id: int
    where: str
    """The text of a selector; "" = every message is the group's."""


@dataclass(slots=True)
class MessagesAdded:
    """Consecutive new messages; `extras` maps an index in `rows` to what is special about that message."""

    queue_id: int
    first_sequence: int
    published_at: int
    rows: Rows
    extras: Extras | None = None
    apart: bool = False
    """A delay has ended since the message before was published: what fell due comes between the two."""


@dataclass(slots=True)
class StageMoved:
    """The messages of a stage enter a queue where they are: their rows are neither written nor read once more.

    Those of [stage_first, stage_first + count) become [first_sequence, first_sequence + count), and have nothing beside
    their rows. That is all that was ever added to the stage, also what has left it: the store may have it in one block
    with what is there. The same batch drops the messages from the stage, and everything else from the queue.
    """

    queue_id: int
    first_sequence: int
    published_at: int
    stage_id: int
    """queue_id of the stage, to which nothing is added any more."""
    stage_first: int
    count: int
    apart: bool = False
    """As of `MessagesAdded`."""

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.count - 1

    @property
    def stage_last(self) -> int:
        return self.stage_first + self.count - 1

    @property
    def shift(self) -> int:
        """How much higher the new sequences are; may be negative."""
        return self.first_sequence - self.stage_first

    def has(self, first: int, last: int) -> bool:
        """Whether these sequences of the stage are moved."""
        return self.stage_first <= first and last <= self.stage_last


@dataclass(slots=True)
class HandedOut:
    """Given to a consumer: pending in the group until settled. A repeated hand-out adds one to `acquired`."""

    queue_id: int
    group_id: int
    runs: list[Run]


@dataclass(slots=True)
class Returned:
    """Pending messages that wait to be handed out again, each with its history as it now is."""

    queue_id: int
    group_id: int
    attempts: dict[int, Attempts]


@dataclass(slots=True)
class Settled:
    queue_id: int
    group_id: int
    runs: list[Run]


@dataclass(slots=True)
class Dropped:
    """Gone from every group and from the store, by policy or by an operator."""

    queue_id: int
    runs: list[Run]
    reason: Reason


@dataclass(slots=True)
class DeadLettered:
    """Left the group (or ALL_GROUPS) and entered the DLQ: one fact, so it is never in both or in neither."""

    queue_id: int
    group_id: int
    letters: list[DeadFacts]


@dataclass(slots=True)
class DeadRemoved:
    """Left the DLQ: purged, or replayed (then the MessagesAdded stands in the same batch).

    Ids up to the highest here are not given to other letters, also if nothing was kept of theirs.
    """

    dead_ids: list[int]
    replayed: bool = False


APPLICATION_BYTES_MAX = 510
"""Of an application's name: LMDB takes keys of 511 bytes, of which one says what the key is of."""


@dataclass(slots=True)
class TransactionDecided:
    """The stages (queues of their own) will enter their queues, whatever happens from here on."""

    app: str
    version: int
    decided_at: int
    stages: list[int]
    """queue_id of each stage, in order; those of earlier decisions that are not empty yet come first."""
    tag: str = ""
    """The application's own note, told to whoever commits the same version again."""
    owner: str = ""
    """The user to whom the application belongs; "" = nobody."""


@dataclass(slots=True)
class TransactionsForgotten:
    apps: list[str]


@dataclass(slots=True)
class UserStored:
    """A user of the store is new, or is this from now on."""

    user: StoredUser


@dataclass(slots=True)
class UserRemoved:
    name: str


@dataclass(slots=True)
class TokenStored:
    token: StoredToken


@dataclass(slots=True)
class TokenRemoved:
    token_id: str


AccountRecord = UserStored | UserRemoved | TokenStored | TokenRemoved

Record = (
    QueueCreated
    | QueueChanged
    | QueueDeleted
    | QueueAttended
    | GroupCreated
    | GroupRenamed
    | GroupDeleted
    | GroupMoved
    | CursorChanged
    | PlanMade
    | PlansForgotten
    | GroupOwned
    | GroupFiltered
    | MessagesAdded
    | StageMoved
    | HandedOut
    | Returned
    | Settled
    | Dropped
    | DeadLettered
    | DeadRemoved
    | TransactionDecided
    | TransactionsForgotten
    | AccountRecord
    | JobRecord
)
