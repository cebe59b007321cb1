"""Fuzz target: a session of BlazingMQ by script. Its peer looks at every byte for what a real SDK would not survive."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from typing import Any

from tests.proof.fuzz_blazingmq import WORDS, recorded
from tests.proof.fuzz_engine import Broken, Target
from tests.proof.fuzz_script import SessionScript, item, played
from vibemq.errors import RemoteProtocolError
from vibemq.model.commands import Unsubscribe
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.blazingmq.codec.acks import ConfirmMessage, build_confirms, parse_acks
from vibemq.protocols.blazingmq.codec.control import (
    decode_control,
    decode_negotiation,
    encode_control,
    encode_negotiation,
)
from vibemq.protocols.blazingmq.codec.events import ControlCodec, Event, EventReader, EventType
from vibemq.protocols.blazingmq.codec.guid import guid_of_message_id
from vibemq.protocols.blazingmq.codec.messages import (
    ClientIdentity,
    ClientLanguage,
    ClientType,
    CloseQueue,
    CloseQueueResponse,
    ConfigureQueueStream,
    ConfigureQueueStreamResponse,
    ConfigureStream,
    ConfigureStreamResponse,
    ConsumerInfo,
    ControlMessage,
    Disconnect,
    DisconnectResponse,
    Expression,
    GuidInfo,
    OpenQueue,
    OpenQueueResponse,
    QueueHandleParameters,
    RequestStatus,
    StatusCategory,
    StreamParameters,
    StreamSubscription,
    SubQueueIdInfo,
    Unserved,
)
from vibemq.protocols.blazingmq.codec.options import parse_options
from vibemq.protocols.blazingmq.codec.push import parse_pushes
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.protocols.blazingmq.session import BlazingmqSession
from vibemq.protocols.blazingmq.settings import BlazingmqSettings, Domain, DomainMode
from vibemq.protocols.session import SessionLimits
from vibemq.testing.session_conformance import NOW, context

_ANSWERS = {
    OpenQueue: OpenQueueResponse,
    ConfigureStream: ConfigureStreamResponse,
    ConfigureQueueStream: ConfigureQueueStreamResponse,
    CloseQueue: CloseQueueResponse,
    Disconnect: DisconnectResponse,
}
_IDS = (b"h1", b"h2", b"h3")
_HELD = Rows.of([pack_row(_IDS[0], b"1"), pack_row(_IDS[1], b"", [("a", "b")]), pack_row(_IDS[2], b"\xff\0")])
_SETTINGS = BlazingmqSettings(
    domains={
        "p": Domain(),
        "f": Domain(mode=DomainMode.FANOUT, app_ids=("foo", "bar")),
        "b": Domain(mode=DomainMode.BROADCAST),
    },
    queues_max=6,
)


class Watcher:
    """What the client has asked for and been told; what it is sent must fit."""

    def __init__(self) -> None:
        self._sent = self._new_reader()
        self._got = self._new_reader()
        self._asked: dict[int | None, list[Any]] = defaultdict(list)
        self._greeted = self._welcomed = self._over = False
        self._known: set[int] = set()
        self._s_ids: dict[tuple[int, str], set[int]] = {}

    def _new_reader(self) -> EventReader:
        return EventReader(event_bytes_max=1 << 20, control_bytes_max=65_536)

    def say(self, data: bytes) -> None:
        self._sent.receive_data(data)
        try:
            for event in self._sent.read():
                if event.type == EventType.CONTROL:
                    if self._greeted:
                        message = decode_control(event)
                        self._asked[message.r_id].append(message.choice)
                    self._greeted = True
        except RemoteProtocolError:
            # The broker finds it, too, and answers nothing of what comes behind it.
            pass

    def hear(self, data: bytes) -> Iterable[Hashable]:
        self._got.receive_data(data)
        while events := self._got.read():
            for event in events:
                if self._over:
                    raise Broken("something follows the disconnectResponse")
                yield self._hear(event)

    def _hear(self, event: Event) -> Hashable:
        match event.type:
            case EventType.CONTROL if not self._welcomed:
                self._welcomed = True
                return type(decode_negotiation(event)).__name__
            case EventType.CONTROL:
                return self._answer(decode_control(event))
            case EventType.PUSH:
                for push in parse_pushes(event):
                    (s_id,) = parse_options(push.options).sub_queue_ids
                    known = (ids for (q_id, _), ids in self._s_ids.items() if q_id == push.queue_id)
                    if not any(s_id in ids for ids in known):
                        raise Broken(f"a PUSH for qId {push.queue_id} under sId {s_id}, which the client does not know")
            case EventType.ACK:
                for ack in parse_acks(event):
                    if ack.queue_id not in self._known:
                        raise Broken(f"an ACK for qId {ack.queue_id}, which the client does not know")
        return event.type

    def _answer(self, message: ControlMessage) -> Hashable:
        answer, requests = message.choice, self._asked[message.r_id]
        if isinstance(answer, Unserved):
            raise Broken("the broker answers what no client can read")
        if isinstance(answer, RequestStatus):
            if answer.category in (StatusCategory.E_CANCELED, StatusCategory.E_NOT_CONNECTED):
                raise Broken("a status that no client may be told")
            return answer.category
        if not any(_ANSWERS.get(type(request)) is type(answer) for request in requests):
            raise Broken(f"{type(answer).__name__} answers nothing that was asked")
        self._learn(answer, requests)
        return type(answer).__name__

    def _learn(self, answer: Any, requests: list[Any]) -> None:
        match answer:
            case OpenQueueResponse(original_request=request):
                self._known.add(request.handle_parameters.q_id)
            case ConfigureStreamResponse(request=request):
                parameters = request.stream_parameters
                s_ids = {subscription.s_id for subscription in parameters.subscriptions}
                self._s_ids[request.q_id, parameters.app_id] = s_ids
            case ConfigureQueueStreamResponse(request=request):
                info = request.stream_parameters.sub_id_info
                self._s_ids[request.q_id, "" if info is None else info.app_id] = {0 if info is None else info.sub_id}
            case CloseQueueResponse():
                handles = {one.handle_parameters.q_id for one in requests if isinstance(one, CloseQueue)}
                if len(handles) == 1 and len(requests) == 1:
                    self._closed(requests[0].handle_parameters)
            case DisconnectResponse():
                self._over = True

    def _closed(self, handle: QueueHandleParameters) -> None:
        if handle.read_count:
            info = handle.sub_id_info
            for app_id in ("__default", "") if info is None else (info.app_id,):
                self._s_ids.pop((handle.q_id, app_id), None)


class Script(SessionScript):
    held = _HELD
    wait_unit_ms = 500

    def __init__(self, flags: int) -> None:
        authentication = bool(flags & 1)
        limits = SessionLimits(handshake_timeout_ms=5_000, message_bytes_max=4_096)
        session = BlazingmqSession(context(authentication=authentication, limits=limits), _SETTINGS)
        super().__init__(session, NOW, authentication=authentication)
        self.watcher = Watcher()
        if flags & 2:
            self.hear(_hello(java=bool(flags & 4)))

    def hear(self, data: bytes) -> None:
        self.watcher.say(data)
        super().hear(data)

    def read(self) -> None:
        self.kinds.update(self.watcher.hear(self.session.data_to_send()))

    def asked(self, request: Any) -> None:
        if isinstance(request, Unsubscribe) and request.consumer in self.consumers:
            self.consumers.remove(request.consumer)
        super().asked(request)


def session(data: bytes) -> Hashable:
    return played(Script, data, 7)


# -- seeds ------------------------------------------------------------------------------------------------------------


def _hello(*, java: bool = False) -> bytes:
    identity = ClientIdentity(
        protocol_version=1,
        client_type=ClientType.E_TCPCLIENT,
        features="MPS:MESSAGE_PROPERTIES_EX",
        sdk_language=ClientLanguage.E_JAVA if java else ClientLanguage.E_CPP,
        guid_info=None if java else GuidInfo(client_id="0123456789ab"),
    )
    return encode_negotiation(ControlCodec.JSON if java else ControlCodec.BER, identity)


def _open(r_id: int, uri: str, flags: int = 6, sub_id: int | None = None, app_id: str = "") -> bytes:
    return _say(r_id, OpenQueue(handle_parameters=_handle(uri, flags, sub_id, app_id)))


def _handle(uri: str, flags: int, sub_id: int | None, app_id: str) -> QueueHandleParameters:
    info = None if sub_id is None else SubQueueIdInfo(sub_id=sub_id, app_id=app_id)
    counts = {"read_count": flags >> 1 & 1, "write_count": flags >> 2 & 1}
    return QueueHandleParameters(uri=uri, q_id=0, sub_id_info=info, flags=flags, **counts)


def _configure(r_id: int, *s_ids: int, app_id: str = "__default") -> bytes:
    consumers = (ConsumerInfo(max_unconfirmed_messages=9, max_unconfirmed_bytes=99, consumer_priority_count=1),)
    listed = tuple(StreamSubscription(s_id=s_id, expression=Expression(text=""), consumers=consumers) for s_id in s_ids)
    parameters = StreamParameters(app_id=app_id, subscriptions=listed)
    return _say(r_id, ConfigureStream(q_id=0, stream_parameters=parameters))


def _close(r_id: int, uri: str, flags: int = 6, sub_id: int | None = None, app_id: str = "") -> bytes:
    return _say(r_id, CloseQueue(handle_parameters=_handle(uri, flags, sub_id, app_id), is_final=True))


def _say(r_id: int, choice: Any) -> bytes:
    return item(0, encode_control(ControlCodec.BER, r_id, choice))


_ANSWER, _REFUSE, _DELIVER, _WAIT = item(0x80 + 11), item(4), item(5, b"1"), item(6, b"x" * 100)
_PUTS = item(0, build_puts([put_message(0, bytes(15) + bytes((n,)), b"hello") for n in range(1, 4)]))
_RUN = item(0, b"".join(build_puts([put_message(0, bytes(15) + bytes((n,)), b"hello")]) for n in range(9, 13)))
_CONFIRMS = item(0, build_confirms([ConfirmMessage(0, guid_of_message_id(one), 0) for one in _IDS]))


def _session_seeds() -> Iterable[bytes]:
    life = _open(1, "bmq://p/q") + _ANSWER + _configure(2, 1) + _ANSWER + _DELIVER + _PUTS + _ANSWER + _CONFIRMS
    end = _close(4, "bmq://p/q") + _ANSWER * 3 + _say(5, Disconnect()) + _ANSWER * 3
    yield b"\2" + life + _configure(3, 2) + _DELIVER + _ANSWER + _DELIVER + _configure(6) + _ANSWER + end
    yield b"\2" + _open(1, "bmq://p/q") + _REFUSE + _open(2, "bmq://p/q") + _PUTS + _ANSWER + _PUTS + _REFUSE + end
    yield b"\2" + _open(1, "bmq://p/q") + _ANSWER + _RUN + _ANSWER + _PUTS + _RUN + _REFUSE + end
    fan = _open(1, "bmq://f/q?id=foo", 2, 1, "foo") + _ANSWER + _configure(2, 7, app_id="foo") + _ANSWER + _DELIVER
    yield b"\2" + fan + _close(3, "bmq://f/q?id=foo", 2, 1, "foo") + _DELIVER + _ANSWER * 3 + _WAIT * 3
    yield b"\3" + life
    yield b"\0" + item(0, _hello()[:40]) + item(0, _hello()[40:]) + life + item(7) + _DELIVER + end + item(8)
    yield b"\6" + b"".join(item(0, data) + _ANSWER for _, data in recorded() if data[6] == 0x20 and len(data) < 250)
    yield b"\2" + b"".join(item(0, data) + _ANSWER + _DELIVER for _, data in recorded() if len(data) < 250)


TARGETS = [Target("bmq-session", "a session of BlazingMQ by script", session, (), _session_seeds, WORDS, 900)]
