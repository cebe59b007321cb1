"""Sessions and their consumers."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from vibemq.engine.queue.unacked import Held

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
    held: Held = field(default_factory=Held)
    active: bool = True
    """False after Unsubscribe: nothing new, but what it holds stays its own."""

    def room(self) -> int:
        """How many more messages it may be given now."""
        if not self.session.open:
            return 0
        room = self.capacity_messages - self.held.count
        if self.credit is not None and self.credit < room:
            room = self.credit
        if self.capacity_bytes and self.held.size >= self.capacity_bytes:
            return 0
        return room


@dataclass(slots=True, eq=False)
class SessionState:
    number: int
    open: bool = True
    """Whether its connection takes more (SetFlow)."""
    consumers: dict[int, Consumer] = field(default_factory=dict)
