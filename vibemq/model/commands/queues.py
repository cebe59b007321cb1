"""What is asked about queues and the messages that wait in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from vibemq.model.extras.message_extra import Extras
from vibemq.model.options import DeliveryMode, QueueOptions
from vibemq.model.rows import Rows
from vibemq.model.runs import Run
from vibemq.model.selector import Selector
from vibemq.model.shared.queue_info import QueueInfo

QueueName = Annotated[str, "name of a queue"]
"""Every field of a command that names a queue is annotated so: before the command is carried out, the engine looks
whether the queue has gone away or belongs to another connection (`vibemq.engine.departure`)."""


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
    mode: DeliveryMode | None = None
    """The mode that whoever asks reads by, as that of `Subscribe`."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


@dataclass(slots=True)
class ChangeQueue:
    session: int
    token: Any
    queue: QueueName
    changes: dict[str, Any] = field(default_factory=dict)
    dry_run: bool = False
    """Only check, and reply what the reply would be."""
    if_tag: str | None = None
    """Refuse with PreconditionFailed if `options_tag` of the queue is another one."""


@dataclass(slots=True)
class DeleteQueue:
    """Deleting a missing queue succeeds."""

    session: int
    token: Any
    queue: QueueName
    dry_run: bool = False
    """Only check, and reply what the reply would be."""
    at_most: int | None = None
    """Refuse with PreconditionFailed if it has more messages than that: those that are ready or delayed in the group
    that has most, and those that consumers hold. What only a log keeps does not count."""
    if_tag: str | None = None
    """Refuse with PreconditionFailed if `options_tag` of the queue is another one. A missing queue has none to be
    compared: whichever was meant is gone."""


@dataclass(slots=True)
class PurgeQueue:
    """Drop what waits (not what is in flight). Reply: `Counted`."""

    session: int
    token: Any
    queue: QueueName
    dry_run: bool = False
    """Only check, and reply what the reply would be."""
    at_most: int | None = None
    """Refuse with PreconditionFailed if more messages than that are ready or delayed in the group that has most. What
    only a log keeps does not count."""


@dataclass(slots=True)
class RemoveMessages:
    """Drop waiting messages by sequence. Reply: `Counted`."""

    session: int
    token: Any
    queue: QueueName
    runs: list[Run]
    incarnation: str | None = None
    """Of the queue in which the sequences were found; None: of whichever it is."""
    dry_run: bool = False
    """Only check, and reply what the reply would be."""


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
    groups_max: int = 1 << 62
    """Groups described; the figures are of all."""


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
    patterns: int = 0
    """To which `visible` may compare a name."""
    groups_max: int = 1 << 62
    """Groups described of each queue."""
    shown: Callable[[QueueInfo], QueueInfo] | None = None
    """What of a description may be told; None = all of it."""


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
