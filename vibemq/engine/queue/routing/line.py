"""The consumers of a group that want the same messages."""

from collections.abc import Iterator
from itertools import chain

from vibemq.engine.queue.consumer import Consumer, Rotation
from vibemq.engine.queue.routing.places import QueuePlaces
from vibemq.model.selector import Selector


class Line:
    """Of them, only those of the highest priority receive.

    What the group has looked at, and is neither known nor behind, is not for this line.
    """

    __slots__ = ("above", "behind", "by_priority", "key", "known", "priority", "selector", "top", "turn")

    def __init__(self, selector: Selector | None, key: int) -> None:
        self.selector = selector
        """None: they take every message."""
        self.key = key
        """Names it within the group while it is there; not 0."""
        self.known = QueuePlaces()
        """Of messages that it matches, and no line above it does."""
        self.behind = QueuePlaces()
        """What it has yet to be asked about, beside what is fresh."""
        self.above: frozenset[Line] = frozenset()
        """The lines of a higher priority."""
        self.by_priority: dict[int, Rotation] = {}
        self.top = Rotation()
        self.priority = 0
        """Of `top`."""
        self.turn = 0
        """As in a group without selectors."""

    def join(self, consumer: Consumer) -> None:
        level = self.by_priority.get(consumer.priority)
        if level is None:
            level = self.by_priority[consumer.priority] = Rotation()
            self._look_for_top()
        level.join(consumer)

    def take_over(self, by_priority: dict[int, Rotation], turn: int) -> None:
        """All of these, who were somewhere else."""
        self.by_priority, self.turn = by_priority, turn
        self._look_for_top()

    def retire(self, consumer: Consumer) -> None:
        level = self.by_priority[consumer.priority]
        level.remove(consumer)
        if not level.members:
            del self.by_priority[consumer.priority]
            self._look_for_top()

    def _look_for_top(self) -> None:
        if self.by_priority:
            self.priority = max(self.by_priority)
            self.top = self.by_priority[self.priority]

    def offer(self, consumer: Consumer) -> None:
        self.by_priority[consumer.priority].offer(consumer)

    @property
    def active(self) -> int:
        return sum(len(level.members) for level in self.by_priority.values())

    def consumers(self) -> Iterator[Consumer]:
        """All that are active."""
        return chain.from_iterable(level.members.values() for level in self.by_priority.values())

    def room(self, most: int) -> int:
        """How many messages those who receive can take, up to so many."""
        room = 0
        for place in self.top.open:
            room += max(0, self.top.members[place].room())
            if room >= most:
                return most
        return room

    def has_room(self) -> bool:
        """Whether one of those who receive can take a message; those who cannot stand aside."""
        places, members = self.top.open, self.top.members
        while places:
            consumer = members[places[-1]]
            if consumer.room() > 0:
                return True
            places.pop()
            consumer.stand_aside()
        return False
