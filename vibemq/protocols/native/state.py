"""What the parts of one native session share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from vibemq.errors import LocalProtocolError, MessageTooLarge, VibeMQError
from vibemq.protocols.native.codec.extensions import (
    BATCH_EXTENSION,
    FAILURES_EXTENSION,
    SCATTERED_EXTENSION,
    SETTLE_EXTENSION,
)
from vibemq.protocols.native.codec.frames import BODY_BYTES_MAX
from vibemq.protocols.native.codec.headers import HeaderReader
from vibemq.protocols.native.codec.json_check import JsonCheck
from vibemq.protocols.native.codec.large import FRAME_OVERHEAD_BYTES, body_bytes_for
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.protocols.native.delivery_index import AckIntake, DeliveryIndex
from vibemq.protocols.native.errors import error_body
from vibemq.protocols.native.outbox import FrameQueue
from vibemq.protocols.native.publish import PublishIntake
from vibemq.protocols.native.settings import NativeSettings
from vibemq.protocols.native.subscriptions import NativeSubscriptions, Wanted
from vibemq.protocols.session import Principal, Request, SessionContext

_INDEX_ENTRIES_LEAST = 4096


class Pending(Protocol):
    """A token: the session's note about a command that waits for its answer."""

    def answer(self, state: "NativeState", result: Any) -> None: ...

    def refuse(self, state: "NativeState", error: VibeMQError) -> None: ...


class AskedReply(Protocol):
    """A request that waits for its reply."""

    address: str
    ended: bool


@dataclass(slots=True)
class NativeState:
    context: SessionContext
    settings: NativeSettings
    now: int
    outbox: FrameQueue
    json: JsonCheck
    headers: HeaderReader
    publishes: PublishIntake
    delivery_index: DeliveryIndex
    acks: AckIntake
    subscriptions: NativeSubscriptions
    wanted: Wanted = field(default_factory=Wanted)
    principal: Principal | None = None
    client_name: str = ""
    extensions: frozenset[str] = frozenset()
    large_bytes_max: int = 0
    """Of a frame with one large message, when more than an ordinary one was agreed on."""
    requests: list[Request] = field(default_factory=list)
    """What `commands()` returns next."""
    asked: dict[str, AskedReply] = field(default_factory=dict)
    """Requests of the peer that wait for their replies, by id."""
    authenticating: bool = False
    left: bool = False
    """The peer said goodbye: nothing more is read."""
    failed_attempts: int = 0
    refused: bool = False
    """An Error has been sent."""
    closing: bool = False

    @classmethod
    def of(cls, context: SessionContext, settings: NativeSettings) -> "NativeState":
        limits = context.limits
        json = JsonCheck(depth_max=limits.json_depth_max, nonce=context.new_id())
        headers = HeaderReader(headers_max=limits.headers_max, value_units_max=limits.header_value_units_max)
        subscriptions = NativeSubscriptions(subscriptions_max=settings.subscriptions_max)
        delivery_index = DeliveryIndex(entries_max=_INDEX_ENTRIES_LEAST, may_hold=subscriptions.may_hold)
        return cls(
            context,
            settings,
            context.now,
            FrameQueue(
                body_bytes_max=min(limits.body_bytes_max, BODY_BYTES_MAX), threshold=settings.compression_threshold
            ),
            json,
            headers,
            PublishIntake(body_bytes_max=limits.body_bytes_max, headers=headers, json=json),
            delivery_index,
            AckIntake(delivery_index),
            subscriptions,
        )

    @property
    def session(self) -> int:
        return self.context.session

    @property
    def bulk(self) -> bool:
        """Whether the peer speaks batch/1."""
        return BATCH_EXTENSION in self.extensions

    @property
    def in_order(self) -> bool:
        """Whether the peer takes one message after the other, and has no word for what it needs more time for: so do
        .NET clients."""
        return not (self.bulk or SETTLE_EXTENSION in self.extensions)

    @property
    def told_failures(self) -> bool:
        """Whether the peer speaks failures/1."""
        return FAILURES_EXTENSION in self.extensions

    @property
    def scattered(self) -> bool:
        """Whether the peer takes a DeliverScattered."""
        return SCATTERED_EXTENSION in self.extensions and self.bulk

    def agree_on_body(self, asked: int) -> int:
        """Have frames of up to so many bytes in both directions, as far as the broker takes them; what counts now. Who
        asks reads large messages above the default alone, and .NET clients read nothing above it."""
        limits = self.context.limits
        most = max(limits.body_bytes_max, body_bytes_for(limits.message_bytes_max))
        agreed = max(FRAME_OVERHEAD_BYTES, min(asked, most))
        ordinary = min(agreed, limits.body_bytes_max, BODY_BYTES_MAX)
        self.large_bytes_max = agreed if agreed > ordinary else 0
        self.outbox.body_bytes_max = ordinary
        return agreed

    def send_up_to_the_limit(self) -> None:
        """The peer has agreed on batch/1 and on nothing else: it reads what it may send."""
        self.outbox.body_bytes_max = self.context.limits.body_bytes_max

    def ask(self, request: Request) -> None:
        self.requests.append(request)

    def reply(
        self,
        kind: CommandType,
        message_id: str,
        queue: str = "",
        payload: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Queue an answer; one too large for a frame becomes an Error."""
        try:
            self.outbox.send(encode_body(kind, message_id, queue, payload, headers or {}))
        except LocalProtocolError as error:
            self.error(message_id, MessageTooLarge(f"the answer is too large: {error}; ask for less at a time"))

    def error(self, message_id: str | bytes, error: VibeMQError) -> None:
        self.refused = True
        self.outbox.send(error_body(message_id, error))

    def fit_delivery_index(self) -> None:
        """Room for all that the plain subscriptions may hold, and for as much again that was never settled."""
        self.delivery_index.entries_max = _INDEX_ENTRIES_LEAST + 4 * self.settings.prefetch * len(self.subscriptions)
