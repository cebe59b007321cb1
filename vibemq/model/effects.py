"""The engine's answers; a session receives them when the durability of their outcome holds."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

from vibemq.errors import VibeMQError
from vibemq.model.jobs.job import StoredJob
from vibemq.model.options import Durability
from vibemq.model.records import Record
from vibemq.model.rows import Rows
from vibemq.model.runs import Run, RunSet
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import GroupInfo as GroupInfo
from vibemq.model.shared.queue_info import QueueInfo as QueueInfo
from vibemq.model.stored import Slice


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
class Tried:
    """Of a dry run whose change has nothing to tell."""

    dry_run: bool = True


@dataclass(slots=True)
class TriedCount(Counted):
    """The same of one that counts."""

    dry_run: bool = True


@dataclass(slots=True)
class AccountsChanged:
    """Result of `ChangeAccounts`. When it could not be written, nothing of it is kept."""

    count: int
    """Records."""


@dataclass(slots=True)
class SettledRuns:
    """Result of `Settle` and `Extend`: the runs that the consumer held until then. What else was asked for was settled
    before, was taken back when its time was over, or never was this consumer's."""

    runs: list[Run]


@dataclass(slots=True)
class Removed:
    removed: list[Run]
    """Gone from every group where they waited."""
    in_flight: list[Run]
    """With a consumer or a cursor, which keeps them until they are settled; some may have waited for other groups."""


@dataclass(slots=True)
class Moved:
    count: int
    left: int
    """Messages that stay where they are, because the other queue has no room for them."""


@dataclass(slots=True)
class Imported:
    position: int
    """How many messages of the file are done with."""
    imported: int
    expired: int
    left: int
    """Messages that were given and not taken, because the queue has no room."""


@dataclass(slots=True)
class Replayed:
    count: int
    left: int
    """Dead letters that stay where they are, because the queue has no room for them."""


@dataclass(slots=True)
class JobStepped:
    count: int
    """Letters that this step has done."""
    left: int
    """Dead letters that stay where they are, because the queue has no room for them, or the job's limit is reached."""
    job: StoredJob
    """As it is now."""
    passed: int = 0
    """Letters of queues of other connections: they stay, and are found again until the cursor is behind them."""
    too_large: int = 0
    """The first letter that has stayed, where it fits into no room that its queue can have; 0 = it may fit some day."""


@dataclass(slots=True)
class CursorInfo:
    """A cursor as it is, for its owner and for operators."""

    group: str
    queue_id: int
    incarnation: str
    epoch: int = 0
    committed: int = 0
    head: int = 0
    """Everything below may be gone as far as this group is concerned."""
    tail: int = 0
    backlog_messages: int = 0
    backlog_bytes: int = 0
    oldest_at: int = 0
    """published_at of the oldest message not acknowledged (to within its chunk); 0 when there is none."""
    hold_ms: int = 0
    max_lag_ms: int = 0
    max_lag_bytes: int = 0
    expired: bool = False
    moved: bool = False
    """By acknowledgements, since it was made or sought."""
    expired_messages: int = 0
    """Unread when their time to live was over, since the broker started."""
    plans: int = 0
    """Batches of its reader whose ends are remembered."""
    joins: int = 0
    owner: str = ""
    """What its reader calls itself."""
    user: str = ""
    """Whom it belongs to; empty: nobody."""
    lost: list[Run] = field(default_factory=list)
    quarantined: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class Rejected:
    rejected: int
    already: int
    """Rejected or acknowledged before, or never this group's."""
    unchanged: bool = False
    """And nothing else became of the request either."""
    acknowledged: int = 0
    """Of `already`: below the group's position, so acknowledged, skipped by a seek, or before its start; and neither
    rejected nor quarantined before, as far as the group remembers it: until the hold of the acknowledgement is over."""


@dataclass(slots=True)
class Decided:
    duplicate: bool
    """Nothing was changed: this version or a later one was committed before."""
    stages: list[str]
    """Names of the committed stages' queues that still hold something, in order."""
    version: int = 0
    """The last committed one."""
    tag: str = ""
    """Its note."""


@dataclass(slots=True)
class Reach:
    """How far a reader may go."""

    end: int
    messages: int
    size: int
    """Estimated bytes."""
    tail: int
    more: bool = False
    """Whether it has only been looked up to `end`, and the reader may perhaps go further."""


@dataclass(slots=True)
class Span:
    """What a reader may be given of a range."""

    queue_id: int
    incarnation: str
    wanted: list[Run]
    """Must be there."""
    allowed: list[Run]
    """May be given if it is there."""
    end: int
    """Where a reader goes on that has read everything of it: the range's end, but before every
    number that may yet be given to another message."""
    lost: list[Run] = field(default_factory=list)
    quarantined: list[Run] = field(default_factory=list)


@dataclass(slots=True)
class Fetched:
    """Rows of a range, on their way to a reader."""

    columns: frozenset[str]
    first: int
    next: int
    slices: list[Slice]
    gaps: list[tuple[int, int, str]]
    incarnation: str
    priorities: dict[int, int] = field(default_factory=dict)
    """Sequence -> priority, for those that are not normal."""
    facts: list[list[Any]] | None = None
    """Of dead letters, one for each row; the first is the letter's id."""
    compact: bool = False
    """The reader takes columns that have no buffers of their own."""
    max_bytes: int = 0
    """Rows that the reader has asked for: it takes an answer of so much, whatever the limit of other frames is."""

    @property
    def count(self) -> int:
        return sum(part.rows.count for part in self.slices)

    def only(self, count: int) -> "Fetched":
        """The first `count` rows, fewer than there are; the others are for the next fetch."""
        slices: list[Slice] = []
        left = count
        for part in self.slices:
            taken = min(left, part.rows.count)
            if taken:
                slices.append(Slice(part.first_sequence, part.published_at, part.rows.slice(0, taken)))
            left -= taken
        if self.facts is not None:
            return replace(self, slices=slices, facts=self.facts[:count], next=self.facts[count][0])
        after = slices[-1].first_sequence + slices[-1].rows.count
        gaps = [(first, last, why) for first, last, why in self.gaps if first < after]
        return replace(self, slices=slices, gaps=gaps, next=after)


class QueueHead(NamedTuple):
    """Which queue it is, and what is said of it at no cost, however many groups it has."""

    queue_id: int
    incarnation: str
    dead: int
    tail: int
    """The first sequence that cannot be read yet."""


class Kept(NamedTuple):
    """Messages of a stretch of a queue, whoever still waits for them."""

    queue_id: int
    runs: list[Run]
    held: RunSet
    """Those of the stretch that are with a consumer."""
    next: int | None
    """Where the next stretch begins; None: this was the last one."""
    ordered: bool
    """By priority, so that the engine knows each message's."""
    ttl_ms: int
    """Of every message of the queue; 0 = no limit."""


class HeldMessage(NamedTuple):
    """A message that is with a consumer; they are in the order of their sequences."""

    sequence: int
    group: str
    session: int
    """Whose consumer has it."""
    consumer: int
    deadline: int
    """When it is taken back; 0 = never."""
    attempts: int
    """Hand-outs so far, this one included."""


class Movable(NamedTuple):
    """Waiting messages of a queue that another one may take."""

    queue_id: int
    incarnation: str
    runs: list[Run]
    waiting: int
    """All that wait, those that are published meanwhile included."""
    limited: bool
    """The other queue has limits, and may have no room."""


class MessageFacts(NamedTuple):
    """What is known of a message beside its row."""

    priority: int = 1
    """Of a queue that is ordered by it."""
    expires_at: int = 0
    """By its own time to live; 0 = never."""
    deliver_at: int = 0
    """To come; 0 = at once."""
    attempts: int = 0
    """Hand-outs of a message that came back, in the group that had it most often."""


NOTHING_KNOWN = MessageFacts()


class Extent(NamedTuple):
    """Where what a queue keeps begins."""

    first_sequence: int
    oldest_at: int
    """published_at of the oldest waiting message; 0 when none waits."""


COUNTERS = ("published", "delivered", "settled", "redelivered", "dead_lettered", "expired", "dropped", "refused")
"""What every queue counts since the start, in the order of `QueueFigures`."""


class CursorFigures(NamedTuple):
    """What a metric says of a group that reads by ranges."""

    group: str
    backlog: int
    committed: int
    epoch: int


class QueueDepth(NamedTuple):
    """What a scaler of consumers asks of one queue."""

    ready: int
    in_flight: int
    delayed: int
    dead: int
    consumers: int
    oldest_at: int
    """When the oldest waiting message was published; 0 when none waits."""


class QueueFigures(NamedTuple):
    """What metrics say of one queue; `QueueInfo` without its parts, so that ten thousand of them are cheap."""

    name: str
    queue_id: int
    ready: int
    size: int
    in_flight: int
    delayed: int
    dead: int
    consumers: int
    oldest_at: int
    published: int
    delivered: int
    settled: int
    redelivered: int
    dead_lettered: int
    expired: int
    dropped: int
    refused: int
    filled: int
    """Percent of max_messages or max_bytes, of the one that is nearer; from 100 on not one more message fits."""
    durability: int
    cursors: list[CursorFigures]


class ConsumerFigures(NamedTuple):
    """One consumer of a queue, for an operator."""

    session: int
    number: int
    queue: str
    group: str
    active: bool
    """False: it is given nothing new, and still holds something."""
    prefetch: int
    """Most messages that it may hold."""
    in_flight: int
    deadline: int
    """Earliest instant at which something that it holds comes back; 0 = never, or it holds nothing."""
    ack_timeout_ms: int
    settled_at: int
    """When it settled something last; 0 = not yet."""


class StageFigures(NamedTuple):
    """What a transaction has staged under one name and not moved into its queues yet."""

    stage: str
    version: int
    created_at: int
    size: int


class ApplicationFigures(NamedTuple):
    """An application that commits transactions."""

    app: str
    owner: str
    version: int | None
    """The last one that was committed; None = none yet."""
    decided_at: int
    stages: list[StageFigures]


@dataclass(slots=True)
class QueuePage:
    """Some of the queues, by name."""

    names: list[str]
    queues: list[QueueInfo]
    """Empty where only names were asked for."""
    next: str | None = None
    """The next page begins behind this name; None: there is nothing more."""


@dataclass(slots=True)
class Reply:
    """Answer to one command: a result from this module, None, or an error of the family."""

    session: int
    token: Any
    result: Any
    order: int = -1
    """Which command of its step it answers; -1: one of an earlier step."""
    unchanged: bool = False
    """What was asked for was so already: nothing has been done."""
    ends_deliveries: bool = False
    """Nothing is handed out to the consumer after this, until it subscribes again."""


class StandingReply(Reply):
    """What it tells stays so when its outcome could not be written: its facts are kept later, and it is told then.

    Any other reply is refused with its outcome.
    """

    __slots__ = ()


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
    """The consumer does not acknowledge (fan-out without ack): the session need not remember it, and the server settles
    what has been written."""
    failed: dict[int, int] | None = None
    """Failed attempts so far, for those that have any."""
    ack_timeout_ms: int = 0
    """The time to settle them, which begins with the hand-out; 0: there is no limit. What waits to be written for long
    must be extended."""


@dataclass(slots=True)
class ConsumerEnded:
    """The subscription is over through no wish of its session."""

    session: int
    consumer: int
    queue: str
    error: VibeMQError


@dataclass(slots=True)
class ConsumerLeft:
    """A consumer that its session had unsubscribed holds nothing any more."""

    session: int
    consumer: int


@dataclass(slots=True)
class Responded:
    """A request has come to its end."""

    session: int
    token: Any
    """Of the `Requester`."""
    result: Rows | VibeMQError
    """The reply, one row; or why there is none."""


class Departure(StrEnum):
    """Why the broker has deleted a queue by itself."""

    EXPIRED = "expired"
    AUTO_DELETE = "auto_delete"
    EXCLUSIVE = "exclusive"


@dataclass(slots=True)
class QueueGone:
    """The broker has deleted a queue by itself; told to the server."""

    session: int
    queue: str
    why: Departure


@dataclass(slots=True)
class Classify:
    """Which of these selectors match which of these messages? Asked of the server, which reads their headers, and
    answers each question once, with `Classified`. A message that is gone matches none."""

    session: int
    number: int
    """Of the question."""
    queue_id: int
    runs: list[Run]
    selectors: tuple[Selector, ...]


Effect = Reply | Deliver | ConsumerEnded | ConsumerLeft | Responded | QueueGone | Classify


@dataclass(slots=True)
class Outcome:
    """What one engine step decided.

    `records` go to storage in order. `effects` may be told at once: they tell no fact that has to be kept. What stands
    in `after_append` may be told when the records, and those of all outcomes before this one, survive a kill of the
    process; `gated` when `durability` holds for them. Then, and only then, the server calls
    `Engine.committed(ticket, now)` (ticket 0: nothing to say), and tells them.
    """

    records: list[Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    after_append: list[Effect] = field(default_factory=list)
    gated: list[Effect] = field(default_factory=list)
    durability: Durability = Durability.TRANSIENT
    ticket: int = 0

    @property
    def mixed(self) -> bool:
        """Whether its effects are told at different moments."""
        return (bool(self.effects) + bool(self.after_append) + bool(self.gated)) > 1


NOTHING_FOLLOWS = Outcome()
"""Of `Engine.committed`, which says so of most outcomes that only hand out or settle. Always this object."""


class Payment(Outcome):
    """Of `Engine.pay`: what earlier outcomes have left owed. The answers that wait for it are not among its effects, as
    the server has them. If it cannot be written either, `Engine.failed` refuses them, and they are told at once."""

    __slots__ = ()


class Incomplete(Outcome):
    """Of `Engine.committed`, which is to be called again."""

    __slots__ = ()
