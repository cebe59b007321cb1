"""Sessions and their consumers."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibemq.engine.queue.share import Share, SharedUnacked
from vibemq.engine.queue.timing.alarms import Behind
from vibemq.engine.queue.unacked import NEVER, Unacked
from vibemq.model.selector import Selector

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
    armed_behind: Behind = None
    share: "Share[Consumer] | None" = None
    """What it shares its capacity with, beside its own."""
    weight: int = 1
    """Messages that are its turn, where they come singly; from 1."""
    turn_left: int = 0
    """What is left of its turn; 0 = it has none."""
    settled_at: int = 0
    """When it settled something last; 0 = not yet."""
    selector: Selector | None = None
    """It is given only what this matches. Changed while it is not active."""

    def room(self) -> int:
        """How many more messages it may be given now."""
        room = self._own_room()
        return min(room, self.share.room(self)) if self.share is not None and room > 0 else room

    def stand_aside(self) -> None:
        """It was asked and has no room; a consumer that only its share holds up stands in line there."""
        self.offered = False
        if self.share is not None and self._own_room() > 0:
            self.share.wait(self)

    @property
    def weighed(self) -> bool:
        """Whether the bytes that it holds are limited."""
        shared = self.share is not None and self.share.capacity_bytes > 0
        return self.acknowledges and (shared or self.capacity_bytes > 0)

    def room_bytes(self) -> int:
        """Of a consumer that is `weighed`."""
        room = self.capacity_bytes - self.unacked.size if self.capacity_bytes else NEVER
        if self.share is not None and self.share.capacity_bytes:
            room = min(room, self.share.capacity_bytes - self.share.size)
        return room

    def join_share(self, share: "Share[Consumer]") -> None:
        """Before it holds anything."""
        self.share = share
        self.unacked = SharedUnacked(share.hold)
        share.members[self] = None

    def _own_room(self) -> int:
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

    __slots__ = ("members", "open", "weight")

    def __init__(self) -> None:
        self.members: dict[int, Consumer] = {}
        """By place."""
        self.weight = 0
        """Of all members."""
        self.open: list[int] = []
        """Places of those that may have room, ascending."""

    def join(self, consumer: Consumer) -> None:
        self.members[consumer.place] = consumer
        self.weight += consumer.weight
        self.offer(consumer)

    def offer(self, consumer: Consumer) -> None:
        """It may have room again."""
        if not consumer.offered:
            consumer.offered = True
            insort(self.open, consumer.place)

    def remove(self, consumer: Consumer) -> None:
        del self.members[consumer.place]
        self.weight -= consumer.weight
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
    shares: dict[str, Share[Consumer]] = field(default_factory=dict)
    """By name; each ends with its last member."""

    def forget(self, consumer: Consumer) -> None:
        """The consumer has ended; its number may have been given to another one meanwhile."""
        if self.consumers.get(consumer.number) is consumer:
            del self.consumers[consumer.number]
        if consumer.share is not None:
            self._leave_share(consumer, consumer.share)

    def _leave_share(self, consumer: Consumer, share: Share[Consumer]) -> None:
        share.leave(consumer)
        share.members.pop(consumer, None)
        consumer.unacked.take_all()
        if not share.members and self.shares.get(share.name) is share:
            del self.shares[share.name]
