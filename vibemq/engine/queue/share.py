"""One capacity of several consumers of a session, whatever their queues."""

from collections.abc import Callable
from typing import Generic, TypeVar

from vibemq.engine.queue.unacked import Unacked
from vibemq.model.runs import END, Run

T = TypeVar("T")

_TURNS_PER_FILL = 4
"""While others wait, one turn takes a quarter of an even part of the capacity: long enough to be one hand-out of many
messages, short enough that nobody waits for a whole capacity."""


class Share(Generic[T]):
    """Who finds it full stands in line, and is called when there is room again; so no queue starves, however deep
    another one of the same share is. Members are consumers.
    """

    __slots__ = (
        "_called",
        "_left",
        "capacity_bytes",
        "capacity_messages",
        "count",
        "line",
        "members",
        "name",
        "size",
        "turn",
    )

    def __init__(self, name: str, capacity_messages: int, capacity_bytes: int, called: "dict[Share[T], None]") -> None:
        """`called`: where it notes itself when somebody has to be called."""
        self.name = name
        self.capacity_messages = capacity_messages
        """0 = nothing for now."""
        self.capacity_bytes = capacity_bytes
        """0 = no limit."""
        self.count = 0
        """Messages that its members hold."""
        self.size = 0
        """Their bytes; counted where they are limited."""
        self.members: dict[T, None] = {}
        """Those that only hold messages included."""
        self.line: dict[T, None] = {}
        self.turn: T | None = None
        """Who was called, until it has had its turn; nobody else is given anything meanwhile."""
        self._left = 0
        """How much the turn may still take while others wait."""
        self._called = called

    @property
    def free(self) -> int:
        if self.capacity_bytes and self.size >= self.capacity_bytes:
            return 0
        return max(0, self.capacity_messages - self.count)

    def room(self, member: T) -> int:
        """How many messages this member may be given now."""
        if self.turn is None:
            return 0 if self.line else self.free
        if self.turn is not member:
            return 0
        return min(self.free, self._left) if self.line else self.free

    def wait(self, member: T) -> None:
        """It would take more, and has no room: behind the others in line."""
        if self.turn is member:
            self.turn = None
        self.line[member] = None

    def took(self, member: T, count: int) -> None:
        if self.turn is member:
            self._left -= count

    def next(self) -> T | None:
        """Whose turn it is now; None when nobody waits, or there is no room. Whoever had the turn has had it."""
        self.turn = None
        if not self.line or not self.free:
            return None
        member = next(iter(self.line))
        del self.line[member]
        self.turn = member
        self._left = max(1, self.capacity_messages // (_TURNS_PER_FILL * (1 + len(self.line))))
        return member

    def hold(self, count: int, size: int) -> None:
        """So much more is held by its members, or less."""
        self.count += count
        self.size += size
        if count < 0 or size < 0:
            self.call()

    def call(self) -> None:
        """There may be room for those in line."""
        if self.line:
            self._called[self] = None

    def leave(self, member: T) -> None:
        """It receives nothing more."""
        self.line.pop(member, None)
        if self.turn is member:
            self.turn = None
            self.call()


class SharedUnacked(Unacked):
    """The hold of one member, which its share counts too."""

    __slots__ = ("_note",)

    def __init__(self, note: Callable[[int, int], None]) -> None:
        super().__init__()
        self._note = note

    def add(self, first: int, last: int, deadline: int, size: int) -> None:
        super().add(first, last, deadline, size)
        self._note(last - first + 1, size)

    def take(self, first: int, last: int) -> list[Run]:
        count, size = self.count, self.size
        taken = super().take(first, last)
        if taken:
            self._note(self.count - count, self.size - size)
        return taken

    def take_all(self) -> list[Run]:
        return self.take(0, END)

    def weigh(self, between: Callable[[int, int], int]) -> None:
        size = self.size
        super().weigh(between)
        self._note(0, self.size - size)
