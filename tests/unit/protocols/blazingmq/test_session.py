"""The session's answers and their order, byte by byte, with an engine that says what the test lets it say."""

import random
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from vibemq.errors import InvalidOptions, QueueFull, QueueNotFound, RateLimited, RemoteProtocolError
from vibemq.model.commands import (
    CreateQueue,
    Publish,
    SetCapacity,
    SetShare,
    Settle,
    Settlement,
    Subscribe,
    Unsubscribe,
)
from vibemq.model.effects import ConsumerEnded, Deliver, Published, Reply, Subscribed
from vibemq.model.rows import LargeRow, Rows, pack_row
from vibemq.model.runs import END
from vibemq.model.stored import Slice
from vibemq.protocols.blazingmq import BlazingmqSession, BlazingmqSettings
from vibemq.protocols.blazingmq.codec.acks import parse_acks
from vibemq.protocols.blazingmq.codec.control import encode_authentication
from vibemq.protocols.blazingmq.codec.events import (
    HEARTBEAT_REQ,
    HEARTBEAT_RSP,
    ControlCodec,
    EventReader,
    EventType,
    event,
)
from vibemq.protocols.blazingmq.codec.messages import (
    AuthenticationRequest,
    ClientLanguage,
    ConfigureStream,
    ConsumerInfo,
    Expression,
    RequestStatus,
    StatusCategory,
    StreamParameters,
    StreamSubscription,
)
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area, parse_area
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message
from vibemq.protocols.blazingmq.settings import Domain
from vibemq.protocols.session import Authenticate, Goodbye, Request
from vibemq.testing.session_conformance import NOW, SESSION, SOMEBODY, context

URI, QUEUE = "bmq://d/q", "d..q"
R = TypeVar("R")


class Room:
    """A session and its client, and what the session has asked of the engine."""

    def __init__(
        self, sdk: ModelSdk | None = None, reserve_memory: Callable[[int], Any] | None = None, **domain: Any
    ) -> None:
        self.sdk = sdk or ModelSdk()
        self.flushing = False
        lent = replace(context(), behind_flush=lambda: self.flushing)
        if reserve_memory is not None:
            lent = replace(lent, reserve_memory=reserve_memory)
        self.session = BlazingmqSession(lent, BlazingmqSettings(domains={"d": Domain(**domain)}))
        self.now = NOW
        self.asked: list[Request] = []
        self.say(self.sdk.hello())

    def say(self, data: bytes) -> None:
        self.session.receive_data(data)
        self.take()

    def take(self) -> None:
        self.session.tick(self.now)
        while (requests := self.session.commands()) or self.session.unread:
            for request in requests:
                if isinstance(request, Authenticate):
                    self.session.authenticated(request.token, SOMEBODY)
                else:
                    self.asked.append(request)
        self.sdk.hear(self.session.data_to_send())

    def next(self, kind: type[R]) -> R:
        """The first command of this kind that was not looked at; it is not answered."""
        found = next(request for request in self.asked if isinstance(request, kind))
        self.asked.remove(found)
        return found

    def answer(self, request: Any, result: Any = None) -> None:
        self.session.apply([Reply(SESSION, request.token, result)])
        self.take()

    def answer_all(self) -> None:
        """As an engine that has nothing against anything."""
        while self.asked:
            request: Any = self.asked.pop(0)
            if getattr(request, "token", None) is None:
                continue
            match request:
                case Publish():
                    self.answer(request, Published(request.queue, 1, request.rows.count))
                case Subscribe():
                    self.answer(request, Subscribed(request.queue, "", request.consumer, 1))
                case _:
                    self.answer(request)

    def open(self, flags: int = READ | WRITE) -> None:
        self.say(self.sdk.open(URI, 0, flags=flags)[1])
        self.answer_all()

    def configure(self, **how: Any) -> int:
        """Returns the number of the consumer."""
        self.say(self.sdk.configure(0, **how)[1])
        (subscribe,) = (request for request in self.asked if isinstance(request, Subscribe))
        self.answer_all()
        return subscribe.consumer

    def deliver(self, consumer: int, first: int, *payloads: bytes) -> None:
        rows = Rows.of([pack_row(b"%032X" % (first + index), payload) for index, payload in enumerate(payloads)])
        runs = [(first, first + len(payloads) - 1)]
        self.session.deliver(Deliver(SESSION, consumer, QUEUE, 1, 0, runs), [Slice(first, NOW, rows)])
        self.take()

    @property
    def pushed(self) -> list[bytes]:
        return [push.data for push in self.sdk.got.pushes]


@pytest.fixture
def room() -> Room:
    return Room()


def test_opening_makes_the_queue_with_the_groups_of_its_applications() -> None:
    room = Room(mode="fanout", app_ids=("foo", "bar"))
    room.say(room.sdk.open(URI, 0, flags=WRITE)[1])
    create = room.next(CreateQueue)
    assert (create.queue, tuple(create.groups)) == (QUEUE, ("foo", "bar"))
    probe = room.next(Publish)
    assert (probe.rows.count, probe.create) == (0, False)
    room.answer(create)
    assert not room.sdk.queues[0].open
    room.answer(probe, Published(QUEUE, 0, 0))
    assert room.sdk.queues[0].open


def test_a_queue_that_cannot_be_made_is_not_open(room: Room) -> None:
    r_id, request = room.sdk.open(URI, 0)
    room.say(request)
    room.answer(room.next(CreateQueue), InvalidOptions("no"))
    room.answer(room.next(Publish), QueueNotFound(QUEUE))
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT
    room.say(room.sdk.post(0, b"dropped"))
    assert not room.asked


def test_a_reader_is_handed_nothing_before_its_configure_is_answered(room: Room) -> None:
    room.open()
    room.say(room.sdk.configure(0, messages=7, size=99, priority=3, weight=2)[1])
    subscribe = room.next(Subscribe)
    assert (subscribe.capacity_messages, subscribe.priority, subscribe.weight) == (0, 3, 2)
    assert subscribe.share is not None
    assert (subscribe.share.messages, subscribe.share.size, subscribe.ack_timeout_ms) == (7, 99, 0)
    assert not any(isinstance(request, SetCapacity) for request in room.asked)
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    assert room.next(SetCapacity).consumer == subscribe.consumer
    room.deliver(subscribe.consumer, 1, b"a")
    assert room.pushed == [b"a"]


def test_a_reconfigure_ends_the_old_sid_with_its_response(room: Room) -> None:
    room.open()
    old = room.configure()
    room.say(room.sdk.configure(0, messages=7, size=99)[1])
    pause, subscribe = room.next(SetCapacity), room.next(Subscribe)
    assert (pause.consumer, pause.capacity_messages) == (old, 0)
    assert subscribe.share is not None
    assert (subscribe.share.messages, subscribe.share.size) == (None, None)
    room.deliver(old, 1, b"on its way")
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    unsubscribe, share = room.next(Unsubscribe), room.next(SetShare)
    assert unsubscribe.consumer == old
    assert (share.share, share.capacity_messages, share.capacity_bytes) == (subscribe.share.name, 7, 99)
    room.deliver(old, 2, b"the last")
    assert room.pushed == [b"on its way", b"the last"]
    room.answer(unsubscribe)
    assert room.next(SetCapacity).consumer == subscribe.consumer
    room.deliver(subscribe.consumer, 3, b"new")
    assert room.pushed == [b"on its way", b"the last", b"new"]
    room.deliver(old, 4, b"too late")
    assert room.next(Settle).verb is Settlement.RELEASE
    room.say(room.sdk.confirm(0, *(push.guid for push in room.sdk.got.pushes)))
    settled = {(settle.consumer, *settle.runs) for settle in room.asked if isinstance(settle, Settle)}
    assert settled == {(old, (1, 2)), (subscribe.consumer, (3, 3))}


def test_a_refused_reconfigure_leaves_the_reader_as_it_was(room: Room) -> None:
    room.open()
    old = room.configure()
    r_id, request = room.sdk.configure(0, expressions=("a == 1", "b == 1"))
    room.say(request)
    assert room.next(SetCapacity).capacity_messages == 0
    first, second = room.next(Subscribe), room.next(Subscribe)
    room.answer(first, Subscribed(QUEUE, "", first.consumer, 1))
    room.answer(second, RateLimited("too fast"))
    assert isinstance(room.sdk.got.responses[r_id], RequestStatus)
    assert {room.next(Unsubscribe).consumer, room.next(Unsubscribe).consumer} == {first.consumer, second.consumer}
    resumed = room.next(SetCapacity)
    assert (resumed.consumer, resumed.capacity_messages) == (old, END)
    assert not room.asked
    room.deliver(old, 1, b"still under the old sId")
    assert room.pushed == [b"still under the old sId"]
    assert room.configure() not in (old, first.consumer, second.consumer)


def test_a_refused_reconfigure_of_a_paused_reader_leaves_it_paused(room: Room) -> None:
    room.open()
    room.configure(messages=0)
    room.say(room.sdk.configure(0)[1])
    room.answer(room.next(Subscribe), RateLimited("too fast"))
    room.next(SetCapacity)
    assert not any(isinstance(request, SetCapacity) for request in room.asked)


def test_configures_of_a_stream_are_carried_out_one_after_another(room: Room) -> None:
    room.open()
    old = room.configure()
    asked = [room.sdk.configure(0, priority=priority) for priority in (1, 2)]
    room.say(b"".join(request for _, request in asked))
    subscribe = room.next(Subscribe)
    assert subscribe.priority == 1
    assert not any(isinstance(request, Subscribe) for request in room.asked)
    room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
    unsubscribe = room.next(Unsubscribe)
    assert unsubscribe.consumer == old
    room.answer(unsubscribe)
    assert list(room.sdk.got.responses)[-1] == asked[0][0]
    assert room.next(Subscribe).priority == 2


def test_a_close_answers_the_configures_that_wait_first(room: Room) -> None:
    room.open()
    room.configure()
    asked = [room.sdk.configure(0), room.sdk.configure(0), room.sdk.close(0)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    responses = list(room.sdk.got.responses.items())[-3:]
    assert [r_id for r_id, _ in responses] == [r_id for r_id, _ in asked]
    assert [isinstance(answer, RequestStatus) for _, answer in responses] == [True, True, False]
    assert not room.session._state.queues


def test_a_limit_of_nothing_is_a_pause() -> None:
    for how in ({"messages": 0}, {"size": 0}):
        room = Room()
        room.open()
        room.say(room.sdk.configure(0, **how)[1])
        subscribe = room.next(Subscribe)
        assert subscribe.share is not None
        assert subscribe.share.messages == 0
        room.answer(subscribe, Subscribed(QUEUE, "", subscribe.consumer, 1))
        assert not room.asked


def test_closing_gives_back_what_is_held_before_it_is_answered(room: Room) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a", b"b")
    r_id, request = room.sdk.close(0)
    room.say(request)
    unsubscribe = room.next(Unsubscribe)
    room.deliver(consumer, 3, b"on its way")
    assert room.pushed == [b"a", b"b"]
    assert room.next(Settle).runs == [(3, 3)]
    room.answer(unsubscribe)
    release = room.next(Settle)
    assert (release.verb, release.runs) == (Settlement.RELEASE, [(1, 2)])
    assert r_id not in room.sdk.got.responses
    room.answer(release)
    assert r_id in room.sdk.got.responses
    assert not room.session._state.consumers


@pytest.mark.parametrize("leave", [lambda sdk: sdk.close(0), lambda sdk: sdk.disconnect()])
def test_acks_come_before_the_last_answer(room: Room, leave: Callable[[ModelSdk], tuple[int, bytes]]) -> None:
    room.open()
    room.say(room.sdk.post(0, b"a", b"b"))
    publish = room.next(Publish)
    r_id, request = leave(room.sdk)
    room.say(request)
    room.answer_all()
    assert r_id not in room.sdk.got.responses
    room.answer(publish, Published(QUEUE, 1, 2, {1: QueueFull(QUEUE, "max_bytes 1", "bytes")}))
    assert [status for _, status in room.sdk.got.acks] == [0, 2]
    assert r_id in room.sdk.got.responses


def test_an_open_behind_the_close_of_its_queue_waits_for_the_answer(room: Room) -> None:
    room.open()
    room.say(room.sdk.post(0, b"before"))
    put = room.next(Publish)
    closing, close = room.sdk.close(0)
    opening, again = room.sdk.open(URI, 0)
    behind = put_message(0, room.sdk.guid(), b"behind")
    room.sdk.unacked[behind.guid] = behind
    room.say(close + again + build_puts([behind]))
    room.answer_all()
    assert not room.sdk.got.responses.keys() & {closing, opening}
    assert not room.session.unread
    assert room.session.next_deadline() != NOW
    room.session.apply([Reply(SESSION, put.token, Published(QUEUE, 1, 1))])
    assert room.session.next_deadline() == NOW
    room.take()
    assert closing in room.sdk.got.responses
    assert opening not in room.sdk.got.responses
    assert isinstance(room.asked[0], CreateQueue)
    room.answer_all()
    assert opening in room.sdk.got.responses
    assert [status for _, status in room.sdk.got.acks] == [0, 0]
    room.configure()


def test_several_consumers_of_one_subscription_have_its_sid(room: Room) -> None:
    room.open()
    infos = tuple(
        ConsumerInfo(max_unconfirmed_messages=5 + n, max_unconfirmed_bytes=99, consumer_priority=n) for n in range(2)
    )
    one = StreamSubscription(s_id=77, expression=Expression(text=""), consumers=infos)
    parameters = StreamParameters(subscriptions=(one,))
    stream = room.sdk.queues[0].streams[0]
    room.say(room.sdk.request(ConfigureStream(q_id=0, stream_parameters=parameters), stream)[1])
    asked = [request for request in room.asked if isinstance(request, Subscribe)]
    assert [subscribe.priority for subscribe in asked] == [0, 1]
    assert [subscribe.share and subscribe.share.messages for subscribe in asked] == [5, 6]
    room.answer_all()
    assert stream.s_ids == {77}
    for number, subscribe in enumerate(asked, 1):
        room.deliver(subscribe.consumer, number, b"%d" % number)
    assert room.pushed == [b"1", b"2"]
    room.say(room.sdk.confirm(0, *(push.guid for push in room.sdk.got.pushes)))
    settled = [(settle.consumer, settle.runs) for settle in room.asked if isinstance(settle, Settle)]
    assert settled == [(asked[0].consumer, [(1, 1)]), (asked[1].consumer, [(2, 2)])]


def test_all_consumers_of_all_subscriptions_are_counted(room: Room) -> None:
    room.open()
    one = StreamSubscription(s_id=1, expression=Expression(text=""), consumers=(ConsumerInfo(),) * 65)
    request = ConfigureStream(q_id=0, stream_parameters=StreamParameters(subscriptions=(one,)))
    r_id, said = room.sdk.request(request, room.sdk.queues[0].streams[0])
    room.say(said)
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert (answer.category, "at most 64" in answer.message) == (StatusCategory.E_INVALID_ARGUMENT, True)


def test_a_disconnect_does_not_overtake_a_close(room: Room) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    closing, request = room.sdk.close(0)
    room.say(request)
    leaving, request = room.sdk.disconnect()
    room.say(request)
    room.answer(room.next(Unsubscribe))
    release = room.next(Settle)
    room.answer(room.next(Unsubscribe))
    assert leaving not in room.sdk.got.responses
    room.answer(release)
    assert {closing, leaving} <= room.sdk.got.responses.keys()


def test_a_disconnect_is_clean_and_nothing_is_taken_behind_it(room: Room) -> None:
    room.open()
    room.say(room.sdk.disconnect()[1] + room.sdk.post(0, b"late", ack=False))
    room.answer(room.next(Unsubscribe))
    assert room.next(Goodbye)
    assert room.sdk.over
    assert not room.asked


def test_a_lost_connection_is_no_goodbye(room: Room) -> None:
    room.open()
    room.say(b"")
    assert room.session.closing
    assert not room.asked


def test_consecutive_puts_are_one_publish_with_their_guids_as_dedup_ids(room: Room) -> None:
    room.open()
    room.say(b"".join(room.sdk.post(0, b"%d" % number) for number in range(5)))
    publish = room.next(Publish)
    assert publish.rows.count == 5
    assert publish.extras is not None
    ids = publish.rows.ids()
    assert [publish.extras[index].dedup_id for index in range(5)] == ids
    assert [bytes.fromhex(text.decode()) for text in ids] == list(room.sdk.unacked)


def test_a_deleted_queue_ends_the_connection_of_its_reader(room: Room) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    room.session.apply([ConsumerEnded(SESSION, consumer, QUEUE, QueueNotFound(QUEUE))] * 2)
    room.take()
    assert [type(request) for request in room.asked] == [Goodbye]
    (word,) = room.sdk.got.last_words
    assert isinstance(word, RequestStatus)
    assert QUEUE in word.message


def test_a_queue_that_goes_while_its_reader_leaves_is_no_news(room: Room) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    room.say(room.sdk.close(0)[1])
    room.session.apply([ConsumerEnded(SESSION, consumer, QUEUE, QueueNotFound(QUEUE))])
    room.answer_all()
    assert not room.session._state.queues
    assert not room.session.closing


def test_posts_to_a_deleted_queue_are_refused(room: Room) -> None:
    room.open(WRITE)
    room.say(room.sdk.post(0, b"b"))
    room.answer(room.next(Publish), QueueNotFound(QUEUE))
    assert [status for _, status in room.sdk.got.acks] == [5]


@pytest.mark.parametrize("q_id", [0x8000_0000, 0xFFFF_FFF5, 0xFFFF_FFFF])
def test_a_q_id_that_no_message_can_carry_is_refused(room: Room, q_id: int) -> None:
    r_id, request = room.sdk.open(URI, q_id)
    room.say(request)
    answer = room.sdk.got.responses[r_id]
    assert isinstance(answer, RequestStatus)
    assert answer.category is StatusCategory.E_INVALID_ARGUMENT


def test_a_disconnect_ends_some_streams_in_each_turn() -> None:
    room = Room()
    for q_id in range(400):
        room.say(room.sdk.open(f"{URI}{q_id}", q_id, flags=READ)[1])
        room.answer_all()
    room.session.receive_data(room.sdk.disconnect()[1])
    asked = []
    while (requests := room.session.commands()) or room.session.unread:
        asked.append(len(requests))
        room.asked += requests
    assert sum(asked) == 400
    assert max(asked) <= 150
    room.answer_all()
    assert room.sdk.over


def test_a_disconnect_with_the_end_behind_it_is_clean(room: Room) -> None:
    room.open()
    room.say(room.sdk.post(0, b"a") + room.sdk.disconnect()[1])
    publish = room.next(Publish)
    room.say(b"")
    assert not room.session.closing
    room.answer_all()
    room.answer(publish, Published(QUEUE, 1, 1))
    assert room.sdk.over
    assert room.next(Goodbye)


def test_what_is_closed_twice_counts_once(room: Room) -> None:
    room.open(WRITE)
    asked = [room.sdk.close(0, flags=WRITE), room.sdk.close(0, flags=WRITE)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    first, second = (room.sdk.got.responses[r_id] for r_id, _ in asked)
    assert not isinstance(first, RequestStatus)
    assert isinstance(second, RequestStatus)
    assert room.session._state.handles == 0


def test_an_application_is_read_once_in_a_queue() -> None:
    room = Room(mode="fanout", app_ids=("foo",))
    asked = [room.sdk.open(URI, 0, flags=READ, sub_id=sub_id, app_id="foo") for sub_id in (1, 2)]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    second = room.sdk.got.responses[asked[1][0]]
    assert isinstance(second, RequestStatus)
    assert second.category is StatusCategory.E_INVALID_ARGUMENT


def test_a_connection_has_so_many_readers_and_writers() -> None:
    room = Room()
    room.session._state.settings = BlazingmqSettings(domains={"d": Domain()}, queues_max=3)
    asked = [room.sdk.open(f"{URI}{number}", number, flags=flags) for number, flags in enumerate((WRITE, 6, READ))]
    room.say(b"".join(request for _, request in asked))
    room.answer_all()
    assert [isinstance(room.sdk.got.responses[r_id], RequestStatus) for r_id, _ in asked] == [False, False, True]
    room.say(room.sdk.close(0, flags=WRITE)[1])
    room.answer_all()
    r_id, request = room.sdk.open(f"{URI}2", 2, flags=READ)
    room.say(request)
    room.answer_all()
    assert not isinstance(room.sdk.got.responses[r_id], RequestStatus)


def test_confirms_before_a_broken_one_count(room: Room) -> None:
    room.open()
    consumer = room.configure()
    room.deliver(consumer, 1, b"a")
    broken = event(EventType.CONFIRM, (b"\x15\0\0\0",), 4)
    room.session.receive_data(room.sdk.confirm(0, room.sdk.got.pushes[0].guid) + broken)
    (settle,) = room.session.commands()
    assert isinstance(settle, Settle)
    assert settle.runs == [(1, 1)]
    with pytest.raises(RemoteProtocolError):
        room.session.commands()


def test_a_refusal_has_the_correlation_id_of_a_java_client() -> None:
    room = Room(ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA))
    room.open(WRITE)
    posted = [put_message(0, bytes((0, 1, 2, number)) + bytes(12), b"x", flags=number & 1) for number in range(2)]
    room.session.receive_data(build_puts(posted))
    (publish,) = room.session.commands()
    assert isinstance(publish, Publish)
    room.session.apply([Reply(SESSION, publish.token, QueueNotFound(QUEUE))])
    reader = EventReader(event_bytes_max=1_000, control_bytes_max=1_000)
    reader.receive_data(room.session.data_to_send())
    (acks,) = reader.read()
    assert [ack.correlation_id for ack in parse_acks(acks)] == [0x010200, 0x010201]


def test_the_time_to_negotiate_counts_from_the_answer_to_the_login() -> None:
    sdk, session = ModelSdk(), BlazingmqSession(context(), BlazingmqSettings())
    login = AuthenticationRequest(mechanism="anonymous")
    session.receive_data(encode_authentication(ControlCodec.BER, login))
    (check,) = session.commands()
    assert isinstance(check, Authenticate)
    late = NOW + 60_000
    session.tick(late)
    session.authenticated(check.token, SOMEBODY)
    session.commands()
    session.tick(late + 4_999)
    assert not session.closing
    session.receive_data(sdk.hello())
    session.commands()
    session.tick(late + 10_000)
    assert not session.closing


def test_what_is_decompressed_in_one_turn_is_bounded(room: Room) -> None:
    room.open()
    body = zlib.compress(bytes(250_000))
    puts = build_puts([put_message(0, room.sdk.guid(), body, compression=1) for _ in range(20)])
    room.session.receive_data(puts)
    rows: list[int] = []
    while True:
        published = [request for request in room.session.commands() if isinstance(request, Publish)]
        if not published and not room.session.unread:
            break
        rows.append(sum(publish.rows.count for publish in published))
    assert sum(rows) == 20
    assert max(rows) <= 4


class Memory:
    """Of a broker: grants what the test lets it grant."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.granted = False

    def reserve(self, size: int) -> object:
        self.asked.append(size)
        return Share(size) if self.granted else None


class Share:
    def __init__(self, size: int) -> None:
        self.size = size


def large_room(memory: Memory) -> Room:
    room = Room(reserve_memory=memory.reserve)
    room.open(WRITE)
    return room


@pytest.mark.parametrize("flags", [1, 3])
def test_a_large_message_waits_for_memory_and_holds_it(flags: int) -> None:
    memory = Memory()
    room = large_room(memory)
    area = build_area([MessageProperty("n", PropertyType.INT64, 7)]) if flags & 2 else b""
    body = bytes(range(256)) * 8_192
    message = put_message(0, room.sdk.guid(), area + body, flags=flags, schema_id=flags >> 1)
    room.sdk.unacked[message.guid] = message
    data = build_puts([message])
    room.say(data[:1_000])
    assert not room.session.unread
    assert room.session.large_left == 0, "nobody is to blame while it waits"
    memory.granted = True
    room.take()
    assert memory.asked == [len(data) - 8] * 2
    assert room.session.large_left == len(data) - 1_000
    room.say(data[1_000:])
    publish = room.next(Publish)
    assert isinstance(publish.rows, LargeRow)
    assert publish.rows.payloads() == [body]
    assert publish.rows.memory.size == len(data) - 8
    assert room.session._puts._memory is None
    room.answer(publish, Published(QUEUE, 1, 1))
    assert [status for _, status in room.sdk.got.acks] == [0]


def test_what_is_large_once_it_is_decompressed_waits_for_memory() -> None:
    memory = Memory()
    room = large_room(memory)
    body = bytes(3 << 20)
    room.say(build_puts([put_message(0, room.sdk.guid(), zlib.compress(body), flags=0, compression=1)]))
    room.say(room.sdk.post(0, b"behind it"))
    assert not room.session.unread
    assert set(memory.asked) == {len(body)}
    assert not room.asked
    memory.granted = True
    room.take()
    first, second = room.next(Publish), room.next(Publish)
    assert isinstance(first.rows, LargeRow)
    assert first.rows.payloads() == [body]
    assert first.rows.memory.size == len(body)
    assert second.rows.payloads() == [b"behind it"]


def test_a_large_compressed_message_asks_for_all_of_its_memory_at_once() -> None:
    memory = Memory()
    memory.granted = True
    room = large_room(memory)
    body = random.Random(1).randbytes(2 << 20)
    room.say(build_puts([put_message(0, room.sdk.guid(), zlib.compress(body), flags=0, compression=1)]))
    assert room.next(Publish).rows.payloads() == [body]
    (asked,) = memory.asked
    assert asked > len(body) + context().limits.message_bytes_max


@pytest.mark.parametrize("language", [ClientLanguage.E_CPP, ClientLanguage.E_JAVA])
def test_a_large_message_that_does_not_come_on_ends_the_connection(language: ClientLanguage) -> None:
    room = Room(ModelSdk(codec=ControlCodec.JSON, language=language))
    room.open(WRITE)
    room.say(room.sdk.post(0, bytes(2 << 20))[:1_000])
    for _ in range(3):
        room.now += 29_000
        room.say(bytes(65_536))
    assert not room.session.closing
    room.now += 29_999
    room.say(bytes(100))
    assert not room.session.closing
    assert room.session.next_deadline() == room.now + 1
    room.now += 1
    room.take()
    assert room.session.closing
    assert len(room.sdk.got.last_words) == 1


def test_of_rows_with_many_properties_few_are_asked_for_at_once(room: Room) -> None:
    room.open()
    consumer = room.configure()
    sequence = 1
    for headers, most in (([], 200), ([(f"p{number}", "x") for number in range(250)], 3), ([], 200)):
        for _ in range(8):
            rows = Rows.of([pack_row(b"%032X" % (sequence + index), b"x", headers) for index in range(3)])
            deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence + 2)])
            room.session.deliver(deliver, [Slice(sequence, NOW, rows)])
            sequence += 3
        assert room.session.rows_at_once == most


@pytest.mark.parametrize("size", range(3 << 20, (3 << 20) + 4))
def test_a_large_row_is_written_as_it_is(room: Room, size: int) -> None:
    room.open()
    consumer = room.configure()
    for sequence, headers in ((1, [("x", "y")]), (2, [])):
        data = pack_row(b"%032X" % sequence, bytes(size), headers)
        row = LargeRow(data, Share(len(data)), (1, sequence))
        deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence)])
        room.session.deliver(deliver, [Slice(sequence, NOW, row)])
    small = Rows.of([pack_row(b"%032X" % 3, b"behind them")])
    room.session.deliver(Deliver(SESSION, consumer, QUEUE, 1, 0, [(3, 3)]), [Slice(3, NOW, small)])
    sent = [room.session.data_to_send()]
    while (part := room.session.row_to_send()) is not None:
        assert isinstance(part, LargeRow)
        assert part.part is not None
        assert part.memory.size == len(part.data)
        assert part.origin == (1, len(sent) // 2 + 1)
        sent += [part.data[slice(*part.part)], room.session.data_to_send()]
    room.sdk.hear(b"".join(sent))
    first, second, third = room.sdk.got.pushes
    properties, at = parse_area(first.data, first.schema_id)
    assert [(one.name, one.value) for one in properties] == [("x", "y")]
    assert (first.data[at:], second.data, third.data) == (bytes(size), bytes(size), b"behind them")


def test_two_deliveries_with_one_id_can_be_told_apart(room: Room) -> None:
    room.open()
    consumer = room.configure()
    for sequence in (1, 2):
        rows = Rows.of([pack_row(b"native id", b"x")])
        deliver = Deliver(SESSION, consumer, QUEUE, 1, 0, [(sequence, sequence)])
        room.session.deliver(deliver, [Slice(sequence, NOW, rows)])
    room.take()
    first, second = room.sdk.got.pushes
    room.say(room.sdk.confirm(0, second.guid))
    assert room.next(Settle).runs == [(2, 2)]
    room.say(room.sdk.confirm(0, first.guid))
    assert room.next(Settle).runs == [(1, 1)]


def test_a_silent_client_is_asked_for_a_sign_of_life(room: Room) -> None:
    for _ in range(10):
        room.now += 30_000
        room.take()
        assert room.sdk.replies.pop() == HEARTBEAT_RSP
        room.say(HEARTBEAT_RSP)
    assert room.sdk.got.heartbeats == 10
    for _ in range(4):
        assert not room.session.closing
        room.now += 30_000
        room.take()
    assert room.session.closing


def test_a_java_client_is_never_sent_a_heartbeat() -> None:
    room = Room(ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA))
    assert room.session.next_deadline() is None
    room.now += 10_000_000
    room.take()
    assert not room.session.closing
    room.session.receive_data(HEARTBEAT_REQ)
    room.session.commands()
    assert room.session.data_to_send() == HEARTBEAT_RSP


def test_another_identity_or_an_event_before_it_ends_the_connection() -> None:
    for first in (ModelSdk().post(0, b"x"), b"\0\0\0\x08\x49\x02\0\0"):
        session = BlazingmqSession(context(), BlazingmqSettings())
        session.receive_data(first)
        with pytest.raises(RemoteProtocolError):
            session.commands()
        assert session.closing


def test_events_that_are_unknown_are_ignored_up_to_a_number(room: Room) -> None:
    unknown = b"\0\0\0\x08\x49\x02\0\0"
    room.say(unknown * 1_000)
    assert not room.session.closing
    with pytest.raises(RemoteProtocolError):
        room.say(unknown)


def publishes(room: Room) -> list[int]:
    """How many rows each of those has that were not looked at."""
    return [request.rows.count for request in room.asked if isinstance(request, Publish)]


def test_what_is_posted_while_a_flush_is_under_way_becomes_one_publish(room: Room) -> None:
    room.open(WRITE)
    room.flushing = True
    room.say(room.sdk.post(0, b"0"))
    assert publishes(room) == [1], "nothing that is under way keeps this one waiting"
    for number in range(1, 10):
        room.say(room.sdk.post(0, b"%d" % number))
    assert publishes(room) == [1]
    assert not room.session.unread, "the broker would ask again at once, over and over"
    room.flushing = False
    room.take()
    assert publishes(room) == [1, 9]
    room.answer_all()
    assert not room.sdk.unacked


def test_nobody_keeps_back_more_than_a_little_nor_the_last_posts_of_a_client() -> None:
    def posted(length: int, *, end: bool = False, flags: int = WRITE, **domain: Any) -> list[int]:
        room = Room(**domain)
        room.open(flags)
        room.flushing = True
        room.say(room.sdk.post(0, b"first"))
        room.say(room.sdk.post(0, bytes(length)))
        if end:
            room.say(b"")
        return publishes(room)

    assert posted(1_000) == [1]
    assert posted(140_000) == [1, 1]
    assert posted(1_000, end=True) == [1, 1]
    assert posted(1_000, flags=READ | WRITE) == [1, 1], "its confirms would wait, too"
    assert posted(1_000, durability="weak") == [1, 1], "its ACKs wait for no flush"


def test_a_client_that_keeps_posting_while_a_flush_is_under_way_is_not_silent(room: Room) -> None:
    room.open(WRITE)
    room.flushing = True
    room.say(room.sdk.post(0, b"first"))
    deadline = room.session.next_deadline()
    assert deadline is not None
    room.now = deadline - 1
    room.say(room.sdk.post(0, b"kept back"))
    later = room.session.next_deadline()
    assert later is not None
    assert later > deadline
