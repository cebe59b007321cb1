"""Publishing, and requests that somebody waits for."""

from dataclasses import dataclass
from typing import Any

from vibemq.model.commands.queues import QueueName
from vibemq.model.extras.message_extra import Extras
from vibemq.model.rows import Rows


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
