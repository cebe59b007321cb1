"""Consumers: what they are handed, and what they say of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from vibemq.model.commands.queues import QueueName
from vibemq.model.options import DeliveryMode
from vibemq.model.runs import Run
from vibemq.model.selector import Selector
from vibemq.model.shared.settlement import Settlement as Settlement


class StartAt(IntEnum):
    """Where a new group begins. An existing group always goes on where it was."""

    DEFAULT = 0
    """What waits for nobody else: all of it when this is the queue's first group, otherwise from now."""
    BEGINNING = 1
    SEQUENCE = 2
    NOW = 3


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
    mode: DeliveryMode | None = None
    """The mode that the subscriber reads by. A queue that is a fan-out where this says none, or waits for
    acknowledgements where this says it does not, or the other way round, is an error (QueueExists)."""
    beside: int | None = None
    """A consumer of the same session and queue: if it is active and has a passing group, this one joins that, so that
    each message is for one of them."""


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
    own: bool = False
    """The server's own: what of it is not held any more is no settlement that a peer has got wrong."""
