"""What the parts of one session share: its requests, its answers in order, its bytes to send."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from vibemq.errors import VibeMQError
from vibemq.protocols.omq.errors import error_text
from vibemq.protocols.omq.frames import error_frame
from vibemq.protocols.omq.settings import OmqSettings
from vibemq.protocols.session import Principal, Request, SessionContext


@dataclass(slots=True, eq=False)
class Slot:
    """The place of one command's answer among the others."""

    frame: bytes | None = None
    """None while the answer is not known."""
    then: Callable[[], None] | None = None
    """Called once the frame is on its way."""


@dataclass(slots=True)
class OmqState:
    context: SessionContext
    settings: OmqSettings
    now: int
    principal: Principal | None = None
    closing: bool = False
    failed: bool = False
    """The last answer is given or at least known; nothing more is read."""
    ended: bool = False
    """The client has ended its side."""
    requests: list[Request] = field(default_factory=list)
    out: list[bytes] = field(default_factory=list)
    slots: deque[Slot] = field(default_factory=deque)

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def send(self, frame: bytes) -> None:
        self.out.append(frame)

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
