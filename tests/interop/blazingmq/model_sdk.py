"""A client that dies of what a real SDK dies of: every byte that a broker writes to it is looked at.

What `hear` asserts is docs/spec/blazingmq.md, "What a client does not survive": an ACK or PUSH of a queue that the
client does not have, a PUSH under an sId before its response or after that of its successor, an ACK for what asked for
none, a response of another kind than its request. No sockets: bytes are returned, and given.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from vibemq.protocols.blazingmq.codec.acks import ConfirmMessage, build_confirms, parse_acks
from vibemq.protocols.blazingmq.codec.control import (
    decode_control,
    decode_negotiation,
    encode_control,
    encode_negotiation,
)
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_RSP, ControlCodec, Event, EventReader, EventType
from vibemq.protocols.blazingmq.codec.messages import (
    BrokerResponse,
    ClientIdentity,
    ClientLanguage,
    ClientType,
    CloseQueue,
    CloseQueueResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlChoice,
    Disconnect,
    DisconnectResponse,
    Expression,
    ExpressionVersion,
    GuidInfo,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    RequestStatus,
    StatusCategory,
    StreamParameters,
    StreamSubscription,
    SubQueueIdInfo,
)
from vibemq.protocols.blazingmq.codec.options import parse_options
from vibemq.protocols.blazingmq.codec.properties import SCHEMA_NONE
from vibemq.protocols.blazingmq.codec.push import PushMessage, parse_pushes
from vibemq.protocols.blazingmq.codec.put import ACK_REQUESTED, MESSAGE_PROPERTIES, PutMessage, build_puts, put_message

READ, WRITE = 2, 4
DEFAULT_APP = "__default"
UNKNOWN_REQUEST = 0x7FFF_FFFF
_ANSWERS = {OpenQueue: OpenQueueResponse, ConfigureStream: ConfigureStreamResponse, CloseQueue: CloseQueueResponse}
_NUMBERS = count(1)


@dataclass
class ModelStream:
    """A reader, as the client knows it."""

    app_id: str
    sub_id: int
    s_ids: set[int] = field(default_factory=set)
    """Those that a response has made known, and no later one has ended."""
    unconfirmed: dict[bytes, PushMessage] = field(default_factory=dict)
    closing: bool = False


@dataclass
class ModelQueue:
    uri: str
    q_id: int
    open: bool = False
    """A response has said so."""
    streams: dict[int, ModelStream] = field(default_factory=dict)
    writers: int = 0


@dataclass
class Received:
    """What has come, for the test to look at."""

    responses: dict[int, ControlChoice] = field(default_factory=dict)
    acks: list[tuple[bytes, int]] = field(default_factory=list)
    """(GUID, status)."""
    pushes: list[PushMessage] = field(default_factory=list)
    heartbeats: int = 0
    last_words: list[ControlChoice] = field(default_factory=list)
    """Answers to a request that was not made, which an SDK logs."""


class ModelSdk:
    def __init__(
        self, *, codec: ControlCodec = ControlCodec.BER, language: ClientLanguage = ClientLanguage.E_CPP
    ) -> None:
        self.codec = codec
        self.language = language
        self.client_id = next(_NUMBERS)
        self.got = Received()
        self.welcome: BrokerResponse | None = None
        self.queues: dict[int, ModelQueue] = {}
        self.unacked: dict[bytes, PutMessage] = {}
        """Sent with ACK_REQUESTED on this connection and not acknowledged, in order."""
        self.silent_puts: set[bytes] = set()
        self.over = False
        """A disconnectResponse has come: nothing may follow."""
        self.replies: list[bytes] = []
        """What the client answers by itself."""
        self._pending: dict[int, tuple[ControlChoice, Any]] = {}
        self._r_ids = count(1)
        self._s_ids = count(1)
        self._guids = count(1)
        self._new_connection()

    def _new_connection(self) -> None:
        self._reader = EventReader(event_bytes_max=80_000_000, control_bytes_max=1_000_000)

    def reconnected(self) -> None:
        """The connection is lost: queues have to be opened again, unconfirmed messages are not confirmable any more."""
        self._new_connection()
        self.welcome = None
        self._pending.clear()
        self.queues.clear()
        self.over = False

    # -- what it says -------------------------------------------------------------------------------------------------

    def hello(self, features: str = "PROTOCOL_ENCODING:BER,JSON;MPS:MESSAGE_PROPERTIES_EX") -> bytes:
        java = self.language is ClientLanguage.E_JAVA
        identity = ClientIdentity(
            protocol_version=1,
            client_type=ClientType.E_TCPCLIENT,
            process_name="model",
            pid=self.client_id,
            host_name="here",
            features=features,
            sdk_language=self.language,
            guid_info=None if java else GuidInfo(client_id=f"{self.client_id:012x}", nano_seconds_from_epoch=1),
        )
        return encode_negotiation(self.codec, identity)

    def request(self, choice: ControlChoice, about: Any = None) -> tuple[int, bytes]:
        r_id = next(self._r_ids)
        self._pending[r_id] = (choice, about)
        return r_id, encode_control(self.codec, r_id, choice)

    def open(
        self, uri: str, q_id: int, *, flags: int = READ | WRITE, sub_id: int | None = None, app_id: str = ""
    ) -> tuple[int, bytes]:
        handle = _handle(uri, q_id, flags, sub_id, app_id)
        queue = self.queues.get(q_id)
        if queue is None:
            queue = self.queues[q_id] = ModelQueue(uri, q_id)
        stream = ModelStream(app_id or DEFAULT_APP, sub_id or 0) if flags & READ else None
        return self.request(OpenQueue(handle_parameters=handle), (queue, stream, flags))

    def configure(
        self,
        q_id: int,
        *,
        app_id: str = DEFAULT_APP,
        messages: int = 1000,
        size: int = 1 << 25,
        priority: int = 0,
        weight: int = 1,
        expressions: Sequence[str] = ("",),
    ) -> tuple[int, bytes]:
        """Without expressions it is a deconfigure."""
        info = ConsumerInfo(
            max_unconfirmed_messages=messages,
            max_unconfirmed_bytes=size,
            consumer_priority=priority,
            consumer_priority_count=weight,
        )
        subscriptions = tuple(
            StreamSubscription(
                s_id=next(self._s_ids),
                expression=Expression(
                    version=ExpressionVersion.E_VERSION_1 if text else ExpressionVersion.E_UNDEFINED, text=text
                ),
                consumers=(info,),
            )
            for text in expressions
        )
        parameters = StreamParameters(app_id=app_id, subscriptions=subscriptions)
        stream = next(s for s in self.queues[q_id].streams.values() if s.app_id == app_id)
        return self.request(ConfigureStream(q_id=q_id, stream_parameters=parameters), stream)

    def close(self, q_id: int, *, flags: int = READ | WRITE, sub_id: int | None = None) -> tuple[int, bytes]:
        queue = self.queues[q_id]
        stream = queue.streams.get(sub_id or 0) if flags & READ else None
        left = len(queue.streams) - (stream is not None) + queue.writers - bool(flags & WRITE)
        app_id = "" if stream is None or stream.app_id == DEFAULT_APP else stream.app_id
        handle = _handle(queue.uri, q_id, flags, sub_id, app_id)
        return self.request(CloseQueue(handle_parameters=handle, is_final=left <= 0), (queue, stream, flags))

    def disconnect(self) -> tuple[int, bytes]:
        return self.request(Disconnect())

    def guid(self) -> bytes:
        return (1 << 126 | next(self._guids) << 48 | self.client_id).to_bytes(16, "big")

    def post(self, q_id: int, *payloads: bytes, ack: bool = True, properties: bool = False, **how: Any) -> bytes:
        """One PUT event. `properties`: each payload has an area of the new style in front."""
        how = {"schema_id": SCHEMA_NONE, **how} if properties else how
        flags = (ACK_REQUESTED if ack else 0) | (MESSAGE_PROPERTIES if properties else 0)
        messages = [put_message(q_id, self.guid(), payload, flags=flags, **how) for payload in payloads]
        for message in messages:
            if ack:
                self.unacked[message.guid] = message
            else:
                self.silent_puts.add(message.guid)
        return build_puts(messages)

    def retransmit(self, q_id: int) -> bytes:
        """Everything that is not acknowledged, with its own GUIDs, in one event."""
        messages = [message for message in self.unacked.values() if message.queue_id == q_id]
        return build_puts(messages) if messages else b""

    def confirm(self, q_id: int, *guids: bytes, sub_id: int = 0) -> bytes:
        stream = self.queues[q_id].streams[sub_id]
        for guid in guids:
            stream.unconfirmed.pop(guid, None)
        return build_confirms([ConfirmMessage(q_id, guid, sub_id) for guid in guids])

    # -- what it hears ------------------------------------------------------------------------------------------------

    def hear(self, data: bytes) -> None:
        self._reader.receive_data(data)
        while events := self._reader.read():
            for event in events:
                self._hear(event)

    def _hear(self, event: Event) -> None:
        assert not self.over, "something follows the disconnectResponse"
        match event.type:
            case EventType.CONTROL:
                self._control(event)
            case EventType.ACK:
                self._acks(event)
            case EventType.PUSH:
                self._pushes(event)
            case EventType.HEARTBEAT_REQ:
                assert self.language is not ClientLanguage.E_JAVA, "a Java SDK knows no heartbeats"
                self.got.heartbeats += 1
                self.replies.append(HEARTBEAT_RSP)
            case EventType.HEARTBEAT_RSP:
                pass
            case _:
                raise AssertionError(f"a client is never sent events of type {event.type}")

    def _control(self, event: Event) -> None:
        assert event.codec == self.codec, "the answer has another codec than the request"
        if self.welcome is None:
            welcome = decode_negotiation(event)
            assert isinstance(welcome, BrokerResponse)
            self.welcome = welcome
            return
        message = decode_control(event)
        r_id, answer = message.r_id, message.choice
        if r_id == UNKNOWN_REQUEST:
            self.got.last_words.append(answer)
            return
        assert r_id in self._pending, f"the answer to request {r_id}, which was answered or never made"
        request, about = self._pending.pop(r_id)
        self.got.responses[r_id] = answer
        if isinstance(answer, RequestStatus):
            assert answer.category not in (StatusCategory.E_CANCELED, StatusCategory.E_NOT_CONNECTED)
            self._refused(request, about)
            return
        if isinstance(request, Disconnect):
            assert isinstance(answer, DisconnectResponse)
            self.over = True
            return
        assert type(answer) is _ANSWERS[type(request)], f"{answer} answers {request}"
        self._accepted(request, about, answer)

    def _refused(self, request: ControlChoice, about: Any) -> None:
        if isinstance(request, OpenQueue):
            queue = about[0]
            if not (queue.open or self.queues.get(queue.q_id) is not queue):
                del self.queues[queue.q_id]

    def _accepted(self, request: ControlChoice, about: Any, answer: ControlChoice) -> None:
        if isinstance(answer, OpenQueueResponse):
            queue, stream, flags = about
            assert answer.original_request == request
            queue.open = True
            # Asked for before the answer to its close.
            self.queues[queue.q_id] = queue
            queue.writers += bool(flags & WRITE)
            if stream is not None:
                queue.streams[stream.sub_id] = stream
        elif isinstance(answer, ConfigureStreamResponse):
            assert answer.request == request, "the echo of a configure is not exact"
            about.s_ids = {subscription.s_id for subscription in answer.request.stream_parameters.subscriptions}
        elif isinstance(answer, CloseQueueResponse):
            queue, stream, flags = about
            queue.writers -= bool(flags & WRITE)
            if stream is not None:
                queue.streams.pop(stream.sub_id, None)
            if not (queue.writers > 0 or queue.streams):
                queue.open = False
                self.queues.pop(queue.q_id, None)

    def _acks(self, event: Event) -> None:
        for ack in parse_acks(event):
            queue = self.queues.get(ack.queue_id)
            assert queue is not None, f"an ACK of queue {ack.queue_id}, which the client does not have"
            assert queue.open
            if self.language is not ClientLanguage.E_JAVA:
                assert ack.correlation_id == 0
            if ack.status == 0:
                assert ack.guid in self.unacked, "a positive ACK that was not asked for, or the second one"
            self.unacked.pop(ack.guid, None)
            self.got.acks.append((ack.guid, ack.status))

    def _pushes(self, event: Event) -> None:
        for push in parse_pushes(event):
            queue = self.queues.get(push.queue_id)
            assert queue is not None, f"a PUSH of queue {push.queue_id}, which the client does not have"
            assert queue.open
            (s_id,) = parse_options(push.options).sub_queue_ids
            stream = next((stream for stream in queue.streams.values() if s_id in stream.s_ids), None)
            assert stream is not None, f"a PUSH under sId {s_id}, which is unknown, or has ended"
            assert push.guid not in stream.unconfirmed, "a message is pushed again that the client holds"
            assert any(push.guid), "a PUSH without GUID"
            stream.unconfirmed[push.guid] = push
            self.got.pushes.append(push)


def _handle(uri: str, q_id: int, flags: int, sub_id: int | None, app_id: str) -> QueueHandleParameters:
    info = None if sub_id is None else SubQueueIdInfo(sub_id=sub_id, app_id=app_id or DEFAULT_APP)
    return QueueHandleParameters(
        uri=f"{uri}?id={app_id}" if app_id else uri,
        q_id=q_id,
        sub_id_info=info,
        flags=flags,
        read_count=int(bool(flags & READ)),
        write_count=int(bool(flags & WRITE)),
    )
