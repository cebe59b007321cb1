"""What the parts of one session share: its answers in order, and what all sessions have."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vibemq.errors import VibeMQError
from vibemq.protocols.base_session import SharedState
from vibemq.protocols.omq.errors import error_text
from vibemq.protocols.omq.frames import error_frame
from vibemq.protocols.omq.settings import OmqSettings


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one command's answer among the others."""

    frame: bytes | None = None
    """None while the answer is not known."""
    then: Callable[[], None] | None = None
    """Called once the frame is on its way."""


@dataclass(slots=True)
class OmqState(SharedState[OmqSettings]):
    ended: bool = False
    """The client has ended its side."""
    client_name: str = ""
    """What the client calls itself, on one line; "" until it is connected."""
    slots: deque[Slot] = field(default_factory=deque)

    # -- answers: errors carry no reference to their command, so the order of the answers must be that of the commands

    def expect(self) -> Slot:
        """Reserve the place of an answer that comes later."""
        slot = Slot()
        self.slots.append(slot)
        return slot

    def answer(self, slot: Slot, frame: bytes, then: Callable[[], None] | None = None) -> None:
        slot.frame, slot.then = frame, then
        while self.slots and (first := self.slots[0]).frame is not None:
            self.slots.popleft()
            self.out.append(first.frame)
            if first.then is not None:
                first.then()

    def refuse(self, error: VibeMQError, topic: str = "", slot: Slot | None = None) -> None:
        self.answer(slot or self.expect(), error_frame(error_text(error, topic)))

    def fail(self, error: VibeMQError) -> None:
        """The connection ends with this error, behind the answers to what was asked before."""
        if not self.failed:
            self.failed = True
            self.answer(self.expect(), error_frame(error_text(error)), self.close)

    def give_up(self, error: VibeMQError) -> None:
        """The same at once: the peer is not there, or does not take its answers."""
        self.failed = True
        self.slots.clear()
        self.send(error_frame(error_text(error)))
        self.close()

    def close(self) -> None:
        self.closing = True
