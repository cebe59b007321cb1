"""What sessions ask of the engine. Every protocol speaks these words; none of them mentions a wire.

`session` names the connection (given by the server), `token` is the session's own note, returned untouched in the
`Reply`; commands whose token is None are not answered. Consumers are numbered by their session.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Annotated, Any

from vibemq.errors import VibeMQError
from vibemq.model.effects import QueueInfo
from vibemq.model.jobs.job import JobPlan, JobState, JobStep
from vibemq.model.options import QueueOptions
from vibemq.model.records import AccountRecord, Extras
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.model.selector import Selector

QueueName = Annotated[str, "name of a queue"]
"""Every field of a command that names a queue is annotated so: before the command is carried out, the engine looks
whether the queue has gone away or belongs to another connection (`vibemq.engine.departure`)."""


class Settlement(IntEnum):
    ACK = 0
    RETRY = 1
    """A failed delivery: counted, handed out again after a delay, dead-lettered after `max_attempts`."""
    RELEASE = 2
    """Given back unharmed: no attempt counted, back at its place at the head at once."""
    REJECT = 3
    """Straight to the DLQ (dropped and counted when the queue has none)."""


class StartAt(IntEnum):
    """Where a new group begins. An existing group always goes on where it was."""

    DEFAULT = 0
    """What waits for nobody else: all of it when this is the queue's first group, otherwise from now."""
    BEGINNING = 1
    SEQUENCE = 2
    NOW = 3


@dataclass(frozen=True, slots=True)
class Requester:
    """Who waits for the reply to a message."""

    address: str
    """Where the reply goes: known to nobody else, not to be guessed (128 random bits), and used once. The session has
    written it into the message's headers `reply-to`."""
    token: Any
    """Comes back in the `Responded` that ends the waiting; there is exactly one, unless the publish is refused or the
    session ends before. When the disk refuses the message late, both may be told: the first counts."""
    timeout_ms: int


@dataclass(slots=True)
class Publish:
    """New messages for one queue, in order. The reply is `Published`."""

    session: int
    token: Any
    queue: QueueName
    rows: Rows
    extras: Extras | None = None
    create: bool = True
    """Create a missing queue when the broker allows auto-creation."""
    requester: Requester | None = None
    """The one row is a request. It expires when its requester stops waiting."""


@dataclass(slots=True)
class GiveUp:
    """A session does not wait any more for the reply to one of its requests, which is taken out of its queue where it
    still waits there."""

    session: int
    token: Any
    address: str


@dataclass(slots=True)
class Respond:
    """The reply to a request, from whichever session. Its sender is told whether somebody still waited for it."""

    session: int
    token: Any
    address: str
    rows: Rows
    """One."""


@dataclass(frozen=True, slots=True)
class SharedCapacity:
    """One capacity of several consumers of a session, whatever their queues."""

    name: str
    """Within the session. The share ends with the last consumer that names it."""
    messages: int | None = None
    """Most unsettled messages of all of them; None = what the share has, or the engine's default for the first."""
    size: int | None = None
    """Most unsettled bytes; may be overshot by one message. 0 = no limit, None = what the share has."""


@dataclass(slots=True)
class Subscribe:
    session: int
    token: Any
    consumer: int
    queue: QueueName
    group: str | None = None
    """A named, durable group; None = the shared default group, or an own passing group in a fan-out queue."""
    capacity_messages: int | None = None
    """Most unsettled messages at a time; 0 = nothing for now, None = the engine's default, or with `share` no limit."""
    capacity_bytes: int = 0
    """Most unsettled bytes; may be overshot by one message. 0 = no limit."""
    share: SharedCapacity | None = None
    """Counts beside the consumer's own capacity. Another capacity than the share has is refused: see `SetShare`."""
    credit: int | None = None
    """Hand out no more than this many in all; None = no end."""
    priority: int = 0
    """Only the consumers of the highest priority in the group receive; with selectors, of each selector."""
    weight: int = 1
    """So many messages in a row are its turn, where several consumers take turns; from 1."""
    where: Selector | None = None
    """Only messages that it matches are handed out to this consumer."""
    ack_timeout_ms: int | None = None
    start: StartAt = StartAt.DEFAULT
    start_sequence: int = 0
    create: bool = True
    user: str = ""
    """Owner of the durable group that this makes, or that has none; "" = nobody."""


@dataclass(slots=True)
class Unsubscribe:
    """No more hand-outs; what the consumer holds stays its own until settled or the session ends."""

    session: int
    token: Any
    consumer: int


@dataclass(slots=True)
class SetCapacity:
    session: int
    token: Any
    consumer: int
    capacity_messages: int
    """0 = nothing for now."""
    capacity_bytes: int = 0
    add_credit: int = 0


@dataclass(slots=True)
class SetShare:
    """The capacity that consumers of the session share, from now on. New limits count for what is held already, of
    which nothing is taken back."""

    session: int
    token: Any
    share: str
    capacity_messages: int
    """0 = nothing for now."""
    capacity_bytes: int = 0


@dataclass(slots=True)
class SetFlow:
    """The server says whether the session's outgoing buffer has room; closed sessions are skipped by dispatch."""

    session: int
    open: bool


@dataclass(slots=True)
class Settle:
    """Only the holder settles; sequences that this consumer does not hold are counted. Reply: `SettledRuns`."""

    session: int
    token: Any
    consumer: int
    verb: Settlement
    runs: Sequence[Run]
    delay_ms: int | None = None
    """RETRY only: None = the queue's backoff."""
    reason: str = ""
    """Error text, kept with the message and in its dead letter."""


@dataclass(slots=True)
class Extend:
    """Move the deadline of held messages to now + ack_timeout_ms (None = the consumer's own timeout). Reply:
    `SettledRuns`."""

    session: int
    token: Any
    consumer: int
    runs: Sequence[Run]
    ack_timeout_ms: int | None = None


@dataclass(slots=True)
class CreateQueue:
    session: int
    token: Any
    queue: QueueName
    options: QueueOptions | None = None
    """None = the broker's defaults."""
    must_match: bool = False
    """An existing queue with other options is an error (QueueExists); otherwise it is left as it is."""
    groups: Sequence[str] = ()
    """Durable groups that it shall have from its beginning; those that an existing queue lacks are added to it, and
    get what it still keeps."""
    filters: Mapping[str, Selector | None] = field(default_factory=dict)
    """Of these groups: the filter that each shall have from now on, None for none. A group that is not named here
    keeps the one that it has."""
    implied: bool = False
    """Its protocol asks for it on the way to something else that the user has asked for."""


@dataclass(slots=True)
class ChangeQueue:
    session: int
    token: Any
    queue: QueueName
    changes: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class DeleteQueue:
    """Deleting a missing queue succeeds."""

    session: int
    token: Any
    queue: QueueName


@dataclass(slots=True)
class PurgeQueue:
    """Drop what waits (not what is in flight). Reply: `Counted`."""

    session: int
    token: Any
    queue: QueueName


@dataclass(slots=True)
class RemoveMessages:
    """Drop waiting messages by sequence. Reply: `Counted`."""

    session: int
    token: Any
    queue: QueueName
    runs: list[Run]
    incarnation: str | None = None
    """Of the queue in which the sequences were found; None: of whichever it is."""


@dataclass(slots=True)
class RemoveListed:
    """Drop the waiting ones of these messages, and say which they were. Reply: `Removed`."""

    session: int
    token: Any
    queue: QueueName
    sequences: list[int]
    dry_run: bool = False
    """Only say which."""
    incarnation: str | None = None
    """Of the queue in which the sequences were found; None: of whichever it is."""
    asked_by: int = 0
    """The session on whose behalf the server asks: its exclusive queues are open to it. 0 = that of no connection."""


@dataclass(slots=True)
class DescribeQueue:
    """Reply: `QueueInfo`, or None for a missing queue."""

    session: int
    token: Any
    queue: QueueName
    figures: bool = True
    """Else its name and options alone (`QueueInfo.restricted`): a figure takes a look at every group."""


@dataclass(slots=True)
class ListQueues:
    """Reply: `QueuePage`, by name."""

    session: int
    token: Any
    after: str = ""
    """Names behind this one."""
    limit: int = 0
    """Most queues of the page; 0 = all."""
    details: bool = False
    """Describe each, instead of only naming it."""
    visible: Callable[[str], bool] | None = None
    """Which names may be told; None = all."""
    groups_max: int = 1 << 62
    """Groups described of each queue."""
    shown: Callable[[QueueInfo], QueueInfo] | None = None
    """What of a description may be told; None = all of it."""


@dataclass(slots=True)
class DeleteGroup:
    session: int
    token: Any
    queue: QueueName
    group: str
    user: str = ""
    manage: bool = True
    """False: only a group of `user`."""


@dataclass(slots=True)
class SeekGroup:
    """Create or move a durable group's cursor and take it over (its epoch goes up). Reply: `GroupInfo`."""

    session: int
    token: Any
    queue: QueueName
    group: str
    start: StartAt
    start_sequence: int = 0
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""


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
class PlanBatch:
    """The batch that begins at one position ends at another, unless it was planned before. Reply: `Plan`, durable."""

    session: int
    token: Any
    queue: QueueName
    group: str
    epoch: int
    tag: str
    """Of the position where it begins: `vibemq.model.records.tag_of`."""
    end: str
    anew: bool = False
    """Forget earlier plans if none of them leads here."""
    empty_mark: str | None = None
    """A batch that began there had no rows: the reader's own name of it, so that it counts once."""
    elsewhere: bool = False
    """Another group of the reader keeps its plans, and is told who has read them; this one only notes this plan."""
    incarnation: str | None = None
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""


@dataclass(slots=True)
class EnterBatch:
    """A planned batch is about to be read, as a batch of a query with a number. Reply: `Plan`, durable."""

    session: int
    token: Any
    queue: QueueName
    group: str
    epoch: int
    tag: str
    """As in `PlanBatch`."""
    end_tag: str
    query: str
    """"" = not known: then it is noted only that somebody reads the batch."""
    batch: int
    incarnation: str | None = None
    user: str = ""
    manage: bool = True
    """As in `DeleteGroup`."""


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


@dataclass(slots=True)
class Stage:
    """Keep a piece of a transaction, invisible until it is committed. Reply: `Published`."""

    session: int
    token: Any
    queue: QueueName
    """Where the messages shall go."""
    app: str
    version: int
    stage: str
    chunk: int
    rows: Rows
    extras: Extras | None = None
    create: bool = True
    user: str = ""
    """Whose stage it is: no other user can write to, commit or drop it."""
    delayed: bool = False
    """Some of its messages are not to be delivered at once."""


@dataclass(slots=True)
class DecideTransaction:
    """Commit stages: from here on they will enter their queues. Reply: `Decided`, durable."""

    session: int
    token: Any
    app: str
    version: int
    stages: list[str]
    tag: str = ""
    """The application's own note, kept with the decision."""
    user: str = ""
    """Whose stages are meant; also the owner of an application that has none."""


@dataclass(slots=True)
class MoveStage:
    """All messages of the plain part of a committed stage enter their queue where they are. Reply: `Counted`; of 0
    when some are still to be seen, or the queue keeps its messages elsewhere, and nothing was moved."""

    session: int
    token: Any
    stage: str
    """Name of the queue of that part."""
    queue: QueueName


@dataclass(slots=True)
class MoveStaged:
    """What one bundle of a committed stage holds enters its queue, or some messages of its plain part do. The server
    has read them. Reply: `Counted`."""

    session: int
    token: Any
    stage: str
    """Name of the stage's queue."""
    sequence: int
    """Of the bundle, or of the first of these messages."""
    queue: QueueName
    rows: Rows
    extras: Extras | None = None
    count: int = 1
    """Sequences of the stage that are moved."""


@dataclass(slots=True)
class DropStages:
    """Stages that are moved, aborted or too old. Committed ones that still hold something are left alone."""

    session: int
    token: Any
    stages: list[str]


@dataclass(slots=True)
class ForgetApplication:
    """An application's last version and owner, so that it begins anew. Reply: `Counted`."""

    session: int
    token: Any
    app: str


@dataclass(slots=True)
class ChangeAccounts:
    """Users and access tokens of the store, as they are from now on. Who asks has checked that they fit together; the
    engine only has them kept, all or none of them. Reply: `Counted`, once they are durable."""

    session: int
    token: Any
    records: list[AccountRecord]


@dataclass(slots=True)
class MoveMessages:
    """Waiting messages leave a queue and enter another in one batch. The server has read them. Reply: `Moved`."""

    session: int
    token: Any
    queue: QueueName
    incarnation: str
    """Of `queue` when its rows were read: another one has other messages under these sequences."""
    to: QueueName
    sequences: list[int]
    """Ascending."""
    published_at: list[int]
    """Of each."""
    rows: Rows
    priorities: dict[int, int] = field(default_factory=dict)
    """Index -> priority as the row says it, for a source that is not ordered by it."""
    asked_by: int = 0
    """As in `RemoveListed`."""


@dataclass(slots=True)
class ImportMessages:
    """Messages of a file, each of which enters the queue once however often it is sent. Reply: `Imported`, durable.

    As far as the queue has room, whatever it does when it is full: nothing is dropped for them. Messages that have
    expired are passed over and counted.
    """

    session: int
    token: Any
    queue: QueueName
    import_id: str
    """Of the file."""
    position: int
    """How many messages of the file come before these. The reply to one without rows says how many are there."""
    rows: Rows
    extras: Extras | None = None
    user: str = ""
    """Whose import it is."""


@dataclass(slots=True)
class ReplayDead:
    """Put dead letters back. The server has read them from storage and prepared their rows.

    One batch: those of `dead_ids` that are still there leave the DLQ and their rows enter `queue`, from the first on as
    far as a queue that drops its oldest messages has room. Reply: `Replayed`. The server gives a few dozen at a time.
    """

    session: int
    token: Any
    queue: QueueName
    dead_ids: list[int]
    rows: Rows
    extras: Extras | None = None
    origins: dict[int, int] | None = None
    """dead_id -> queue_id that it died in (0 = unknown), as the store has it. Letters made since the start are known
    without; of older ones this is the only evidence that they are there, and those that are not named count as gone."""
    asked_by: int = 0
    """As in `RemoveListed`."""
    step: JobStep | None = None
    """Of the job that they go back for. A job that does not run any more moves nothing, and none more than its limit.
    Letters of another connection's queue are passed over. The reply is `JobStepped`."""


@dataclass(slots=True)
class PurgeDead:
    """Reply: `Counted`."""

    session: int
    token: Any
    dead_ids: list[int]
    origins: dict[int, int] | None = None
    """As in `ReplayDead`."""
    asked_by: int = 0
    """As in `RemoveListed`."""
    step: JobStep | None = None
    """As in `ReplayDead`."""


@dataclass(slots=True)
class StartJob:
    """Reply: the `StoredJob`, durable; that of an earlier request when both have the same key and are the same."""

    session: int
    token: Any
    plan: JobPlan
    rate: float = 0.0
    asked_at: int = 0
    """The instant from which the filter's ages are measured."""
    since: int = 0
    """When the user was made: an older job with the same key is somebody else's."""


@dataclass(slots=True)
class ChangeJob:
    """Reply: the `StoredJob` as it is now, durable."""

    session: int
    token: Any
    job_id: int
    state: JobState | None = None
    why: str = ""
    rate: float | None = None
    """None = it stays; 0 = no limit."""
    by: str = ""
    """Who wants it; "" = the broker."""
    canary_passed: bool = False
    turn: bool | None = None
    """False: the job waits, and another one may go on in its place; True: it would go on. Nothing is recorded."""


@dataclass(slots=True)
class AdvanceJob:
    """A step that moves no letter: none fitted, or they were copied. Reply: `JobStepped`."""

    session: int
    token: Any
    step: JobStep


@dataclass(slots=True)
class CloseSession:
    """The connection is gone. `clean`: it said goodbye (or the broker drains), so nothing counts as failed."""

    session: int
    clean: bool


@dataclass(slots=True)
class Classified:
    """The server's answer to a `Classify`; it is not answered."""

    session: int
    token: Any
    number: int
    """Of the question."""
    matched: list[tuple[int, int, int]]
    """(first, last, selectors that match these messages: a bit for each, by its place in the question). Ascending;
    messages that none matches are left out."""


@dataclass(slots=True)
class EndConsumers:
    """These subscriptions may not go on: each ends with its error, and what it holds goes back unharmed."""

    session: int
    consumers: Mapping[int, VibeMQError]
    publishes: Callable[[str], VibeMQError | None] | None = None
    """Asked for each queue where something that the session has published waits for room: the error with which it is
    refused, if it may not go on. Asked when this is decided, so that all that was decided before is found."""


class Pressure(IntEnum):
    """Memory or disk watermark, set by the server: 80, 90 and 95 percent."""

    NONE = 0
    HIGH = 1
    """80 %: warned and reported, nothing refused."""
    BLOCKING = 2
    """90 %: publishes are refused with `Blocked`, except on queues that drop their oldest."""
    OVERFLOWING = 3
    """95 %: every publish is refused."""


@dataclass(slots=True)
class SetPressure:
    level: Pressure
    why: str = ""


Command = (
    Publish
    | Respond
    | GiveUp
    | Subscribe
    | Unsubscribe
    | SetCapacity
    | SetShare
    | SetFlow
    | Settle
    | Extend
    | CreateQueue
    | ChangeQueue
    | DeleteQueue
    | PurgeQueue
    | RemoveMessages
    | RemoveListed
    | DescribeQueue
    | ListQueues
    | DeleteGroup
    | SeekGroup
    | FilterGroup
    | JoinCursor
    | CommitCursor
    | PlanBatch
    | EnterBatch
    | RejectAt
    | Quarantine
    | Stage
    | DecideTransaction
    | MoveStage
    | MoveStaged
    | DropStages
    | ForgetApplication
    | ChangeAccounts
    | MoveMessages
    | ImportMessages
    | ReplayDead
    | PurgeDead
    | StartJob
    | ChangeJob
    | AdvanceJob
    | CloseSession
    | Classified
    | EndConsumers
    | SetPressure
)
