"""Sessions and their consumers."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibemq.engine.queue.unacked import NEVER, Unacked

if TYPE_CHECKING:
    from vibemq.engine.queue.group import Group
    from vibemq.engine.queue.queue import Queue


@dataclass(slots=True, eq=False)
class Consumer:
    session: "SessionState"
    number: int
    queue: "Queue"
    group: "Group"
    capacity_messages: int
    """0 = nothing for now."""
    capacity_bytes: int
    """0 = no limit."""
    credit: int | None
    priority: int
    ack_timeout_ms: int
    """0 = held for ever."""
    unacked: Unacked = field(default_factory=Unacked)
    active: bool = False
    """False after Unsubscribe: nothing new, but what it holds stays its own."""
    place: int = -1
    """In its group, by the order of joining; -1 before it has joined."""
    offered: bool = False
    """Whether its group counts it among those that may have room."""
    acknowledges: bool = True
    """False: it holds what has not been written to it, and is given the next all the same."""
    settling: bool = False
    """A settlement of many of its messages is carried out in steps: it is given nothing until then."""
    attends: bool = False
    """Whether it has been more than a fetch, so that its queue has had a consumer."""
    armed_at: int = NEVER
    """When it wants to be seen to: see `EngineState.arm_part`."""

    def room(self) -> int:
        """How many more messages it may be given now."""
        if self.settling or not self.session.open:
            return 0
        room = self.capacity_messages - self.unacked.count if self.acknowledges else self.capacity_messages
        if self.credit is not None and self.credit < room:
            room = self.credit
        if self.acknowledges and self.capacity_bytes and self.unacked.size >= self.capacity_bytes:
            return 0
        return room


class Rotation:
    """The active consumers of one priority, and who of them may have room.

    Each has a place, given when it joined the group. One that is found full is left out of `open` until it is offered
    again, so a hand-out looks at those that may take something, however many others there are.
    """

    __slots__ = ("members", "open")

    def __init__(self) -> None:
        self.members: dict[int, Consumer] = {}
        """By place."""
        self.open: list[int] = []
        """Places of those that may have room, ascending."""

    def offer(self, consumer: Consumer) -> None:
        """It may have room again."""
        if not consumer.offered:
            consumer.offered = True
            insort(self.open, consumer.place)

    def remove(self, consumer: Consumer) -> None:
        del self.members[consumer.place]
        if consumer.offered:
            consumer.offered = False
            del self.open[bisect_left(self.open, consumer.place)]


@dataclass(slots=True, eq=False)
class SessionState:
    number: int
    open: bool = True
    """Whether its connection takes more (SetFlow)."""
    consumers: dict[int, Consumer] = field(default_factory=dict)
    own_queues: "dict[Queue, None]" = field(default_factory=dict)
    """Those that are exclusive to it."""

    def forget(self, consumer: Consumer) -> None:
        """The consumer has ended; its number may have been given to another one meanwhile."""
        if self.consumers.get(consumer.number) is consumer:
            del self.consumers[consumer.number]
