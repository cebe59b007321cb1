"""Messages that become visible together."""

from dataclasses import dataclass
from typing import Any

from vibemq.model.commands.queues import QueueName
from vibemq.model.extras.message_extra import Extras
from vibemq.model.rows import Rows


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
    """What one staged batch of a committed stage holds enters its queue, or some messages of its plain part do. The
    server has read them. Reply: `Counted`."""

    session: int
    token: Any
    stage: str
    """Name of the stage's queue."""
    sequence: int
    """Of the staged batch, or of the first of these messages."""
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
