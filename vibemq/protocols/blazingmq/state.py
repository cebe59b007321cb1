"""What the parts of one session share: who the client is, its requests, its bytes to send in their order."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from vibemq.errors import VibeMQError
from vibemq.protocols.blazingmq.codec.control import encode_control
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event
from vibemq.protocols.blazingmq.codec.messages import ControlChoice, RequestStatus, StatusCategory
from vibemq.protocols.blazingmq.errors import category_of, status_text
from vibemq.protocols.blazingmq.settings import BlazingmqSettings
from vibemq.protocols.blazingmq.streams import OpenedQueue, StreamConsumer
from vibemq.protocols.session import Principal, Request, SessionContext


@dataclass(slots=True)
class AwaitedAnswer:
    """Token of a command: what its answer is for."""

    then: Callable[[Any], None]
    """Called with the result, or with an error of the family."""


@dataclass(slots=True)
class BlazingmqState:
    context: SessionContext
    settings: BlazingmqSettings
    now: int
    principal: Principal | None = None
    negotiated: bool = False
    codec: ControlCodec = ControlCodec.BER
    """That of the client's own first packet."""
    makes_guids: bool = False
    """The client gives its messages GUIDs; for others the broker makes them."""
    knows_heartbeats: bool = True
    new_style: bool = True
    """The client reads new-style properties."""
    client_name: str = ""
    closing: bool = False
    failed: bool = False
    """The last answer is given or at least known; nothing more is read."""
    disconnecting: bool = False
    """The client has said that it leaves: nothing more is taken from it."""
    queues: dict[int, OpenedQueue] = field(default_factory=dict)
    """By the client's qId."""
    consumers: dict[int, StreamConsumer] = field(default_factory=dict)
    """By number."""
    last_consumer: int = 0
    requests: list[Request] = field(default_factory=list)
    out: list[bytes] = field(default_factory=list)
    unanswered: int = 0
    """Commands whose answers this session waits for."""

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def asked(self, then: Callable[[Any], None]) -> AwaitedAnswer:
        """The token of a command whose answer is waited for."""
        self.unanswered += 1
        return AwaitedAnswer(then)

    def answered(self, token: AwaitedAnswer, result: Any) -> None:
        self.unanswered -= 1
        token.then(result)

    def send(self, event: bytes) -> None:
        self.out.append(event)

    # -- control events ---------------------------------------------------------------------------------------------

    def use_codec_of(self, event: Event) -> None:
        if event.codec == ControlCodec.JSON:
            self.codec = ControlCodec.JSON

    def respond(self, r_id: int, choice: ControlChoice) -> None:
        self.send(encode_control(self.codec, r_id, choice))

    def refuse(self, r_id: int, error: VibeMQError) -> None:
        self.respond_status(r_id, category_of(error), status_text(error))

    def respond_status(self, r_id: int, category: StatusCategory, text: str) -> None:
        self.respond(r_id, RequestStatus(category=category, code=int(category), message=text))

    def close(self) -> None:
        self.failed = self.closing = True
