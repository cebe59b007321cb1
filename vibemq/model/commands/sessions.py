"""What the server says of its connections, of users, and of its own state."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.model.records import AccountRecord


@dataclass(slots=True)
class ChangeAccounts:
    """Users and access tokens of the store, as they are from now on. Who asks has checked that they fit together; the
    engine only has them kept, all or none of them. Reply: `Counted`, once they are durable."""

    session: int
    token: Any
    records: list[AccountRecord]


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
    """The session may have lost rights. It is asked what may go on when this is decided, so that all that was decided
    before is found."""

    session: int
    subscriptions: Callable[[str], VibeMQError | None]
    """Asked for the queue of each subscription: the error with which it ends, if it may not go on; what it holds goes
    back unharmed."""
    publishes: Callable[[str], VibeMQError | None] | None = None
    """Asked for each queue where something that the session has published waits for room: the error with which it is
    refused, if it may not go on."""


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
