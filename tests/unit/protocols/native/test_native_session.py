"""One connection: handshake, commands, answers, deliveries, time; what .NET peers and the seed's clients rely on."""

from collections.abc import Sequence

import orjson
import pytest

from vibemq.errors import (
    AuthFailed,
    Blocked,
    NoReply,
    NotAuthorized,
    QueueExists,
    QueueFull,
    QueueNotFound,
    RemoteProtocolError,
)
from vibemq.model import commands as c
from vibemq.model.effects import (
    ConsumerEnded,
    Counted,
    Deliver,
    GroupInfo,
    Published,
    QueueInfo,
    QueuePage,
    Reply,
    Responded,
    Subscribed,
)
from vibemq.model.options import Overflow, QueueOptions
from vibemq.model.records import MessageExtra
from vibemq.model.rows import Rows, RowView, pack_row
from vibemq.model.runs import END
from vibemq.model.selector import Selector
from vibemq.model.stored import Slice
from vibemq.protocols.native import NativeSession, NativeSettings
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.compression import Compression
from vibemq.protocols.native.codec.extra_columns import encode_extras
from vibemq.protocols.native.codec.frames import HEADER, NativeFrameReader, encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import WireMessage, body_type, decode_body, encode_body
from vibemq.protocols.native.frame_parser import READ_UNITS
from vibemq.protocols.session import Authenticate, Goodbye, OperationRequest, Principal, Request, SessionLimits
from vibemq.testing.session_conformance import NOW, SESSION, context

ALL = "settle/1,batch/1,admin/1"
ROOT = Principal("root", superuser=True)


def frame(kind: int, message_id: str, queue: str = "", payload: bytes = b"", headers=()) -> bytes:
    return encode_frame(encode_body(kind, message_id, queue, payload, headers))


class Peer:
    """A peer's view of one session."""

    def __init__(self, *, authentication: bool = False, connect: dict[str, str] | None = None, **settings) -> None:
        limits = SessionLimits(handshake_bytes_max=1_000)
        self.session = NativeSession(context(authentication=authentication, limits=limits), NativeSettings(**settings))
        self.reader = NativeFrameReader()
        if connect is not None:
            [request] = self.hear(frame(T.CONNECT, "hello", headers=connect))
            assert isinstance(request, Authenticate)
            self.session.authenticated(request.token, ROOT)
            self.ack = self.one()

    def hear(self, data: bytes) -> Sequence[Request]:
        self.session.receive_data(data)
        return self.session.commands()

    def ask(self, *arguments, **named) -> Request:
        [request] = self.hear(frame(*arguments, **named))
        return request

    def bodies(self) -> list[bytes]:
        self.reader.receive_data(self.session.data_to_send())
        return self.reader.bodies()

    def frames(self) -> list[WireMessage]:
        return [decode_body(body) for body in self.bodies()]

    def one(self) -> WireMessage:
        [message] = self.frames()
        return message

    def answer(self, request: Request, result: object) -> WireMessage:
        self.session.apply([Reply(SESSION, request.token, result)])  # type: ignore[union-attr]
        return self.one()

    def subscribed(self, message_id: str, queue: str = "q", headers=()) -> int:
        request = self.ask(T.SUBSCRIBE, message_id, queue, headers=headers)
        assert isinstance(request, c.Subscribe)
        self.answer(request, Subscribed(queue, "g", request.consumer, 1))
        return request.consumer

    def deliver(self, consumer: int, first: int, *rows: bytes, **named) -> None:
        last = first + len(rows) - 1
        self.session.deliver(
            Deliver(SESSION, consumer, "q", 1, 0, [(first, last)], **named), [Slice(first, NOW, Rows.of(rows))]
        )


def plain(**settings) -> Peer:
    return Peer(connect={}, **settings)


def bulk(names: str = ALL, **settings) -> Peer:
    return Peer(connect={"supported-extensions": names}, **settings)


# -- handshake ------------------------------------------------------------------------------------------------------


def test_connect_without_authentication() -> None:
    peer = plain()
    assert (peer.ack.type, peer.ack.id) == (T.CONNECT_ACK, "hello")
    assert peer.ack.headers == {"connectionId": "c" * 32, "serverVersion": "9.9.9"}
    assert peer.session.principal is ROOT


def test_credentials_are_passed_on_in_both_forms() -> None:
    for headers, expected in (
        ({"authUsername": "alice", "authPassword": "secret"}, ("alice", "secret", "")),
        ({"authToken": "my-token"}, ("", "", "my-token")),
    ):
        request = Peer(authentication=True).ask(T.CONNECT, "c", headers=headers)
        assert isinstance(request, Authenticate)
        assert (request.username, request.password, request.auth_token) == expected


@pytest.mark.parametrize(
    "headers", [{}, {"authUsername": "alice"}, {"authPassword": "x"}, {"authusername": "a", "authpassword": "b"}]
)
def test_missing_credentials_are_asked_for(headers) -> None:
    peer = Peer(authentication=True)
    assert list(peer.hear(frame(T.CONNECT, "c", headers=headers))) == []
    assert (peer.one().error_code, peer.session.closing) == ("AUTH_REQUIRED", False)


def test_a_refused_peer_may_try_again_but_not_for_ever() -> None:
    peer = Peer(authentication=True, auth_attempts_max=3)
    for attempt in range(3):
        assert not peer.session.closing
        request = peer.ask(T.CONNECT, f"c{attempt}", headers={"authToken": "x"})
        peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
        message = peer.one()
        assert (message.id, message.error_code, message.error_message) == (f"c{attempt}", "AUTH_FAILED", "wrong")
    assert peer.session.closing


@pytest.mark.parametrize("headers", [{"authToken": "x"}, {"authToken": "x", "long": "x" * 20_000}, {}])
def test_no_second_refusal_follows_when_the_deadline_has_passed_meanwhile(headers: dict[str, str]) -> None:
    limits = SessionLimits(handshake_bytes_max=100_000)
    peer = Peer(authentication=True)
    peer.session = NativeSession(context(authentication=True, limits=limits), NativeSettings())
    for request in peer.hear(frame(T.CONNECT, "c", headers=headers)):
        peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
    peer.session.receive_data(b"")
    peer.session.tick(NOW + limits.handshake_timeout_ms)
    assert not peer.session.commands()
    assert (peer.one().id, peer.session.closing) == ("c", True)


def test_nothing_is_read_while_credentials_are_checked() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    assert list(peer.hear(frame(T.PUBLISH, "m", "q", b"1"))) == []
    peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    [publish] = peer.session.commands()
    assert isinstance(publish, c.Publish)


def test_a_stranger_cannot_fill_memory_while_its_credentials_are_checked() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    peer.hear(bytes(900))
    with pytest.raises(RemoteProtocolError, match="wait for ConnectAck"):
        peer.hear(bytes(200))
    assert peer.session.closing
    peer.session.authenticated(request.token, ROOT)  # type: ignore[union-attr]
    with pytest.raises(RemoteProtocolError):
        peer.session.commands()


def test_before_connect_only_ping_is_answered() -> None:
    peer = Peer()
    peer.hear(frame(T.PING, "p") + frame(T.PUBLISH, "m", "q", b"1") + frame(T.DISCONNECT, "d") + frame(T.ACK, "a"))
    pong, *errors = peer.frames()
    assert (pong.type, pong.id) == (T.PONG, "p")
    assert [(error.id, error.error_code) for error in errors] == [
        (message_id, "NOT_AUTHENTICATED") for message_id in ("m", "d", "a")
    ]
    assert not peer.session.closing


def test_before_connect_frames_are_small_and_plain() -> None:
    for data in (
        frame(T.PING, "x" * 1_001),
        encode_frame(encode_body(T.CONNECT, "c", headers={"authToken": "x" * 900}), Compression.GZIP, 0),
    ):
        peer = Peer()
        with pytest.raises(RemoteProtocolError):
            peer.hear(data)
        assert peer.session.closing
        assert peer.one().error_code == "INVALID_MESSAGE"


def test_compression_is_agreed_by_the_clients_order_and_starts_after_the_answer() -> None:
    peer = Peer(connect={"supported-compression": "zstd, GZIP, brotli"}, compression_threshold=0)
    assert peer.ack.headers["negotiated-compression"] == "gzip"
    peer.hear(frame(T.PING, "p" * 500))
    assert peer.session.data_to_send()[4] == Compression.GZIP
    only_gzip = Peer(connect={"supported-compression": "brotli"}, compressions=("gzip",))
    assert "negotiated-compression" not in only_gzip.ack.headers


def test_compressed_frames_are_read_whatever_was_agreed() -> None:
    peer = plain()
    for how in (Compression.GZIP, Compression.BROTLI):
        body = encode_body(T.PUBLISH, "m" * 50, "q", b'"' + b"x" * 2_000 + b'"')
        [publish] = peer.hear(encode_frame(body, how))
        assert isinstance(publish, c.Publish)


def test_extensions_are_granted_by_name() -> None:
    assert bulk("batch/1, nonsense/9,settle/1").ack.headers["negotiated-extensions"] == "settle/1,batch/1"
    assert "negotiated-extensions" not in bulk("future/2").ack.headers


def test_a_failed_second_connect_leaves_the_session_as_it_was() -> None:
    peer = plain()
    request = peer.ask(T.CONNECT, "again", headers={"authToken": "x"})
    peer.session.refused(request.token, AuthFailed("wrong"))  # type: ignore[union-attr]
    assert (peer.one().error_code, peer.session.principal) == ("AUTH_FAILED", ROOT)
    request = peer.ask(T.CONNECT, "third", headers={"supported-extensions": ALL})
    peer.session.authenticated(request.token, Principal("other"))  # type: ignore[union-attr]
    assert "negotiated-extensions" not in peer.one().headers, "extensions are agreed once"
    assert peer.session.principal == Principal("other")


# -- publish --------------------------------------------------------------------------------------------------------


def test_publish_is_acknowledged_in_both_forms() -> None:
    peer = plain()
    publish = peer.ask(T.PUBLISH, "m1", "q", b"1")
    ack = peer.answer(publish, Published("q", 1, 1))
    assert (ack.type, ack.id, ack.queue, ack.payload) == (T.PUBLISH_ACK, "m1", "q", None)
    assert ack.headers == {"messageId": "m1", "queueName": "q"}


def test_refused_messages_get_errors_and_never_acks() -> None:
    peer = plain()
    [publish] = peer.hear(b"".join(frame(T.PUBLISH, f"m{number}", "q", b"1") for number in range(4)))
    refused = {1: QueueFull("q", "2 messages"), 3: QueueFull("q", "2 messages")}
    peer.session.apply([Reply(SESSION, publish.token, Published("q", 5, 4, refused, {2: 1}))])  # type: ignore[union-attr]
    answers = {message.id: (message.type, message.error_code) for message in peer.frames()}
    assert answers == {
        "m0": (T.PUBLISH_ACK, None),
        "m1": (T.ERROR, "QUEUE_FULL"),
        "m2": (T.PUBLISH_ACK, None),
        "m3": (T.ERROR, "QUEUE_FULL"),
    }


def test_a_command_refused_whole_is_answered_for_each_message() -> None:
    peer = plain()
    [publish] = peer.hear(frame(T.PUBLISH, "a", "q", b"1") + frame(T.PUBLISH, "b", "q", b"1"))
    peer.session.refused(publish.token, NotAuthorized("not yours"))  # type: ignore[union-attr]
    assert [(message.id, message.error_code) for message in peer.frames()] == [
        ("a", "NOT_AUTHORIZED"),
        ("b", "NOT_AUTHORIZED"),
    ]


def test_relative_times_count_from_the_last_tick() -> None:
    peer = plain()
    peer.session.tick(NOW + 500)
    publish = peer.ask(T.PUBLISH, "m", "q", b"1", headers={"vibemq-delay-ms": "1000", "priority": "low"})
    assert isinstance(publish, c.Publish)
    assert publish.extras == {0: MessageExtra(0, 0, NOW + 1_500)}


def test_invalid_content_is_refused_with_the_frames_id_and_the_connection_stays() -> None:
    peer = plain()
    peer.hear(
        frame(T.PUBLISH, "m1", "", b"1")
        + frame(T.PUBLISH, "m2", "bad name", b"1")
        + frame(T.SUBSCRIBE, "m3")
        + frame(T.SUBSCRIBE, "m4", "bad name")
        + frame(T.LIST_QUEUES, "m5", headers=[(f"k{number}", "v") for number in range(51)])
        + frame(T.LIST_QUEUES, "m6", headers={"k": "v" * 4_097})
        + frame(77, "m7")
        + frame(T.ADMIN_CREATE_USER, "m8")
        + frame(T.NACK, "m9")
        + frame(T.ADMIN, "m10", payload=b"{}")
        + frame(T.PUBLISH_MANY, "m11")
        + frame(T.PUBLISH_ACK, "m12")
    )
    assert [(message.id, message.error_code) for message in peer.frames()] == [
        ("m1", "INVALID_QUEUE"),
        ("m2", "INVALID_MESSAGE"),
        ("m3", "INVALID_QUEUE"),
        ("m4", "INVALID_MESSAGE"),
        ("m5", "INVALID_MESSAGE"),
        ("m6", "INVALID_MESSAGE"),
        ("m7", "UNKNOWN_COMMAND"),
        ("m8", "INVALID_PAYLOAD"),
        ("m9", "UNKNOWN_COMMAND"),
        ("m10", "UNKNOWN_COMMAND"),
        ("m11", "UNKNOWN_COMMAND"),
        ("m12", "UNKNOWN_COMMAND"),
    ]
    assert not peer.session.closing


def test_what_came_before_a_broken_frame_counts_and_the_peer_is_told_why() -> None:
    peer = plain()
    [publish] = peer.hear(frame(T.PUBLISH, "m", "q", b"1") + b"\0\0\0\1\0")
    assert not peer.session.closing
    assert peer.session.next_deadline() == NOW, "there is something to be done at once"
    assert peer.answer(publish, Published("q", 1, 1)).type == T.PUBLISH_ACK
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            peer.session.commands()
    assert peer.session.closing
    assert peer.one().error_code == "INVALID_MESSAGE", "said once, last"


def test_an_uncalled_for_error_ends_with_the_next_tick_at_the_latest() -> None:
    peer = plain()
    peer.hear(frame(T.PUBLISH, "m", "q", b"1") + b"\0\0\0\1\0")
    peer.session.tick(NOW)
    assert (peer.session.closing, peer.one().error_code) == (True, "INVALID_MESSAGE")


# -- queues ---------------------------------------------------------------------------------------------------------


def described(name: str = "q") -> QueueInfo:
    groups = [GroupInfo("g", True, 1, 2, 0, 0, 1)]
    return QueueInfo(name, 1, "ab", QueueOptions(), NOW, 4, 0, 0, 0, 2, 0, 1, 5, NOW, groups, {"published": 4})


def test_queue_commands_are_answered_by_their_own_type() -> None:
    peer = plain()
    create = peer.ask(T.CREATE_QUEUE, "1", "q", b'{"maxQueueSize":5,"overflowStrategy":1}')
    assert isinstance(create, c.CreateQueue)
    assert create.options is not None
    assert (create.options.max_messages, create.options.overflow) == (5, Overflow.DROP_NEWEST)
    assert peer.answer(create, None) == WireMessage(T.CREATE_QUEUE, "1", "q")
    delete = peer.ask(T.DELETE_QUEUE, "2", "q")
    assert isinstance(delete, c.DeleteQueue)
    assert peer.answer(delete, None) == WireMessage(T.DELETE_QUEUE, "2", "q")
    info = peer.ask(T.QUEUE_INFO, "3", "q")
    assert orjson.loads(peer.answer(info, described()).payload or b"")["deliveryMode"] == 0
    names = peer.ask(T.LIST_QUEUES, "4")
    assert peer.answer(names, QueuePage(["a", "b"], [])).payload == b'["a","b"]'


def test_an_unknown_queue_has_an_answer_without_payload() -> None:
    peer = plain()
    for result in (None, QueueNotFound("q")):
        assert peer.answer(peer.ask(T.QUEUE_INFO, "3", "q"), result) == WireMessage(T.QUEUE_INFO, "3", "q")


def test_bad_options_do_not_close_the_connection() -> None:
    peer = plain()
    assert list(peer.hear(frame(T.CREATE_QUEUE, "1", "q", b'{"mode":99}'))) == []
    assert (peer.one().error_code, peer.session.closing) == ("INVALID_OPTIONS", False)


def test_an_answer_too_large_for_a_frame_becomes_an_error() -> None:
    peer = plain()
    queues = QueuePage(["q" * 200 + str(number) for number in range(6_000)], [])
    assert peer.answer(peer.ask(T.LIST_QUEUES, "4"), queues).error_code == "MESSAGE_TOO_LARGE"


# -- plain subscriptions ----------------------------------------------------------------------------------------------


def test_subscribing_twice_is_one_subscription() -> None:
    peer = plain(prefetch=33)
    first = peer.ask(T.SUBSCRIBE, "s1", "q")
    assert isinstance(first, c.Subscribe)
    assert (first.capacity_messages, first.create, first.group) == (33, True, None)
    assert list(peer.hear(frame(T.SUBSCRIBE, "s2", "q"))) == []
    peer.session.apply([Reply(SESSION, first.token, Subscribed("q", "", first.consumer, 1))])
    acks = peer.frames()
    assert [(ack.type, ack.id, ack.queue) for ack in acks] == [
        (T.SUBSCRIBE_ACK, "s1", "q"),
        (T.SUBSCRIBE_ACK, "s2", "q"),
    ]
    assert acks[0].headers == {"queueName": "q", "subscriptionId": "s1"}
    assert list(peer.hear(frame(T.SUBSCRIBE, "s3", "q"))) == []
    assert peer.one().id == "s3"


def test_a_refused_subscription_can_be_tried_again() -> None:
    peer = plain()
    first = peer.ask(T.SUBSCRIBE, "s1", "q")
    assert peer.answer(first, NotAuthorized("no")).error_code == "NOT_AUTHORIZED"
    assert isinstance(peer.ask(T.SUBSCRIBE, "s2", "q"), c.Subscribe)


def test_acks_name_the_delivered_id_or_a_header() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"), pack_row("b", b"2"), pack_row("c", b"3"))
    assert [message.id for message in peer.frames()] == ["a", "b", "c"]
    data = frame(T.ACK, "b") + frame(T.ACK, "ack-1", headers={"messageId": "a"}) + frame(T.ACK, "unknown")
    [settle] = peer.hear(data)
    assert settle == c.Settle(SESSION, None, consumer, c.Settlement.ACK, [(5, 6)])
    assert peer.frames() == [], "an ack is never answered"


def test_an_ack_of_invalid_utf8_finds_its_message() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row(b"\xff\xfe", b"1"))
    body = encode_body(T.ACK, "ab").replace(b"ab", b"\xff\xfe")
    [settle] = peer.hear(encode_frame(body))
    assert isinstance(settle, c.Settle)
    assert settle.runs == [(5, 5)]


def test_deliveries_that_need_no_ack_are_not_remembered() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"), settled=True)
    assert peer.one().id == "a"
    assert list(peer.hear(frame(T.ACK, "a"))) == []


def test_unsubscribe_ends_deliveries_and_always_succeeds() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b"1"))
    peer.frames()
    request = peer.ask(T.UNSUBSCRIBE, "u", "q")
    assert isinstance(request, c.Unsubscribe)
    peer.deliver(consumer, 6, pack_row("b", b"1"))
    assert peer.one().id == "b", "deliveries may arrive until the answer"
    ack = peer.answer(request, None)
    assert (ack.type, ack.id, ack.queue) == (T.UNSUBSCRIBE_ACK, "u", "q")
    peer.deliver(consumer, 7, pack_row("c", b"1"))
    assert peer.frames() == []
    assert list(peer.session.commands()) == [c.Settle(SESSION, None, consumer, c.Settlement.RELEASE, [(7, 7)])]
    [settle] = peer.hear(frame(T.ACK, "a"))
    assert isinstance(settle, c.Settle)
    assert settle.runs == [(5, 5)], "what was delivered may still be settled"
    assert list(peer.hear(frame(T.UNSUBSCRIBE, "u2", "never"))) == []
    assert peer.one().id == "u2"


def test_a_row_too_large_goes_back_to_the_engine() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 5, pack_row("a", b'"' + b"x" * 1_048_576 + b'"'), pack_row("b", b"1"))
    assert peer.one().id == "b"
    assert peer.session.next_deadline() == NOW
    [settle] = peer.session.commands()
    assert settle == c.Settle(
        SESSION, None, consumer, c.Settlement.REJECT, [(5, 5)], reason="too large for this protocol"
    )


def test_a_plain_subscription_outlives_its_queue() -> None:
    peer = plain()
    consumer = peer.subscribed("s")
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    assert peer.frames() == []
    assert peer.session.next_deadline() == NOW + 1_000
    peer.session.tick(NOW + 1_000)
    [again] = peer.session.commands()
    assert isinstance(again, c.Subscribe)
    assert not again.create, "a deleted queue is not brought back by its subscribers"
    peer.session.apply([Reply(SESSION, again.token, QueueNotFound("q"))])
    assert peer.session.next_deadline() == NOW + 3_000, "later and later"
    peer.session.tick(NOW + 3_000)
    [again] = peer.session.commands()
    assert isinstance(again, c.Subscribe)
    peer.session.apply([Reply(SESSION, again.token, Subscribed("q", "", again.consumer, 1))])
    peer.deliver(again.consumer, 1, pack_row("a", b"1"))
    assert [message.type for message in peer.frames()] == [T.DELIVER]
    peer.session.tick(NOW + 60_000)
    assert list(peer.session.commands()) == []


def test_a_new_subscribe_takes_the_place_of_a_renewal() -> None:
    peer = plain()
    peer.session.apply([ConsumerEnded(SESSION, peer.subscribed("s"), "q", QueueNotFound("q"))])
    peer.session.tick(NOW + 1_000)
    [renewal] = peer.session.commands()
    fresh = peer.ask(T.SUBSCRIBE, "s2", "q")
    assert isinstance(renewal, c.Subscribe)
    assert isinstance(fresh, c.Subscribe)
    assert fresh.create
    peer.session.apply([Reply(SESSION, renewal.token, Subscribed("q", "", renewal.consumer, 1))])
    [superfluous] = peer.session.commands()
    assert superfluous == c.Unsubscribe(SESSION, None, renewal.consumer)
    assert peer.answer(fresh, Subscribed("q", "", fresh.consumer, 1)).id == "s2"


def test_subscriptions_are_counted() -> None:
    peer = plain(subscriptions_max=1)
    peer.subscribed("s1", "q1")
    assert list(peer.hear(frame(T.SUBSCRIBE, "s2", "q2"))) == []
    assert peer.one().error_code == "RATE_LIMITED"


# -- extensions -------------------------------------------------------------------------------------------------------


def test_nack_and_extend_for_plain_deliveries() -> None:
    peer = bulk("settle/1")
    consumer = peer.subscribed("s")
    peer.deliver(consumer, 1, *(pack_row(name, b"1") for name in "abc"))
    peer.frames()
    data = (
        frame(T.EXTEND, "a", headers={"ack-timeout-ms": "9000"})
        + frame(T.NACK, "a", headers={"verb": "retry", "delay-ms": "50", "reason": "not now"})
        + frame(T.NACK, "n1", headers={"messageId": "b", "verb": "release"})
        + frame(T.NACK, "c", headers={"verb": "reject"})
        + frame(T.NACK, "c")
    )
    assert list(peer.hear(data)) == [
        c.Extend(SESSION, None, consumer, [(1, 1)], 9_000),
        c.Settle(SESSION, None, consumer, c.Settlement.RETRY, [(1, 1)], 50, "not now"),
        c.Settle(SESSION, None, consumer, c.Settlement.RELEASE, [(2, 2)]),
        c.Settle(SESSION, None, consumer, c.Settlement.REJECT, [(3, 3)]),
    ]
    peer.hear(frame(T.NACK, "x", headers={"verb": "explode"}))
    assert (peer.one().error_code, peer.session.closing) == ("INVALID_MESSAGE", False)


def test_bulk_subscribe_says_what_it_wants() -> None:
    peer = bulk()
    headers = {
        "group": "g",
        "prefetch": "7",
        "prefetch-bytes": "1000",
        "credit": "3",
        "consumer-priority": "2",
        "ack-timeout-ms": "500",
        "start": "sequence:12",
    }
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers=headers)
    assert isinstance(request, c.Subscribe)
    assert (request.group, request.capacity_messages, request.capacity_bytes, request.credit) == ("g", 7, 1_000, 3)
    assert (request.priority, request.ack_timeout_ms, request.start, request.start_sequence) == (
        2,
        500,
        c.StartAt.SEQUENCE,
        12,
    )
    ack = peer.answer(request, Subscribed("q", "g", request.consumer, 12))
    assert ack.headers == {"queueName": "q", "subscriptionId": "s1", "group": "g"}


@pytest.mark.parametrize(
    "headers", [{"prefetch": "-1"}, {"credit": "x"}, {"start": "sequence:x"}, {"start": "yesterday"}]
)
def test_bad_subscribe_headers(headers) -> None:
    peer = bulk()
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "q", headers=headers))) == []
    assert peer.one().error_code == "INVALID_MESSAGE"
    assert isinstance(peer.ask(T.SUBSCRIBE, "s1", "q"), c.Subscribe), "the id is free again"


@pytest.mark.parametrize(("names", "failed"), [("batch/1", {}), ("batch/1,failures/1", {6: 1})])
def test_peers_that_ask_for_it_are_told_which_attempts_have_failed(names: str, failed: dict[int, int]) -> None:
    peer = bulk(names)
    consumer = peer.subscribed("s1")
    peer.deliver(consumer, 5, *(pack_row(name, b"") for name in "abc"), acquired={6: 3, 7: 2}, failed={6: 1})
    [body] = peer.bodies()
    told = extensions.parse_deliver_many(body)
    assert (told.acquired, told.failed) == ({6: 3, 7: 2}, failed)


@pytest.mark.parametrize("names", ["batch/1", "batch/1,failures/1,scattered/1"])
def test_messages_far_apart_travel_in_one_frame_in_their_order(names: str) -> None:
    peer = bulk(names)
    consumer = peer.subscribed("s1")
    order = [9, 3, *range(40, 46), 7, 1]
    large = pack_row("large", b"x" * 300_000)
    slices = [Slice(n, NOW - n, Rows.of([large if n == 3 else pack_row(f"m{n}", b"")])) for n in (9, 3)]
    slices.append(Slice(40, NOW, Rows.of([pack_row(f"m{n}", b"") for n in range(40, 46)])))
    slices += [Slice(n, NOW - n, Rows.of([pack_row(f"m{n}", b"")])) for n in (7, 1)]
    told = Deliver(SESSION, consumer, "q", 1, 0, [(n, n) for n in order], acquired={7: 3, 40: 2}, failed={7: 1})
    peer.session.deliver(told, slices)
    bodies = peer.bodies()
    assert [body[1] for body in bodies] == ([62] * 5 if names == "batch/1" else [62, 62, 62, 74])
    seen: list[tuple[int, str, int]] = []
    for body in bodies:
        scattered = body[1] == T.DELIVER_SCATTERED
        frame = (extensions.parse_deliver_scattered if scattered else extensions.parse_deliver_many)(body)
        numbers = frame.sequences or range(frame.first_sequence, frame.first_sequence + frame.rows.count)
        instants = frame.instants or [frame.published_at] * frame.rows.count
        seen += zip(numbers, frame.rows.ids(), instants, strict=True)
        if 7 in numbers:
            assert (frame.acquired, frame.failed) == ({7: 3}, {7: 1} if scattered else {})
    ids = {n: b"large" if n == 3 else b"m%d" % n for n in order}
    assert seen == [(n, ids[n], NOW if n >= 40 else NOW - n) for n in order]


def test_bulk_subscriptions_deliver_settle_extend_and_flow_by_id() -> None:
    peer = bulk()
    one, two = peer.subscribed("s1"), peer.subscribed("s2")
    assert one != two
    rows = [pack_row("a", b"\xff"), pack_row("b", b"")]
    peer.deliver(two, 5, *rows, acquired={6: 2})
    [body] = peer.bodies()
    frame_in = extensions.parse_deliver_many(body)
    assert (frame_in.id, frame_in.first_sequence, list(frame_in.rows), frame_in.acquired) == ("s2", 5, rows, {6: 2})
    data = b"".join(
        encode_frame(each)
        for each in (
            extensions.settle("s2", 0, [(5, 6)]),
            extensions.settle("s1", 1, [(1, 1)], delay_ms=9, reason="r"),
            extensions.extend_many("s2", [(5, 6)], ack_timeout_ms=50),
            extensions.flow("s2", 10, 20, 30),
            extensions.settle("unknown", 0, [(5, 6)]),
            extensions.flow("unknown", 10),
        )
    )
    assert list(peer.hear(data)) == [
        c.Settle(SESSION, None, two, c.Settlement.ACK, [(5, 6)]),
        c.Settle(SESSION, None, one, c.Settlement.RETRY, [(1, 1)], 9, "r"),
        c.Extend(SESSION, None, two, [(5, 6)], 50),
        c.SetCapacity(SESSION, None, two, 10, 20, 30),
    ]


def test_a_flow_for_a_subscription_of_a_share_is_for_the_share() -> None:
    peer = bulk()
    headers = {"share": "worker", "prefetch": "4", "prefetch-bytes": "9"}
    first = peer.ask(T.SUBSCRIBE, "s1", "q", headers=headers)
    assert isinstance(first, c.Subscribe)
    assert (first.share, first.capacity_messages, first.capacity_bytes) == (c.SharedCapacity("worker", 4, 9), None, 0)
    other = peer.ask(T.SUBSCRIBE, "s2", "q", headers={"share": "worker"})
    assert isinstance(other, c.Subscribe)
    assert other.share == c.SharedCapacity("worker")
    assert list(peer.hear(encode_frame(extensions.flow("s2", 6, 7)))) == [c.SetShare(SESSION, None, "worker", 6, 7)]
    assert list(peer.hear(encode_frame(extensions.flow("s1", 6, 7, 3)))) == [
        c.SetShare(SESSION, None, "worker", 6, 7),
        c.SetCapacity(SESSION, None, first.consumer, END, 0, 3),
    ]
    peer.frames()
    peer.hear(frame(T.SUBSCRIBE, "s3", "q", headers={"share": "s" * 257}))
    answer = peer.one()
    assert (answer.id, answer.error_code) == ("s3", "INVALID_MESSAGE")


def test_bulk_unsubscribe_names_the_subscription_and_settling_goes_on() -> None:
    peer = bulk()
    consumer = peer.subscribed("s1")
    request = peer.ask(T.UNSUBSCRIBE, "u", "q", headers={"subscription-id": "s1"})
    assert peer.answer(request, None).headers["subscriptionId"] == "s1"
    [settle] = peer.hear(encode_frame(extensions.settle("s1", 0, [(1, 2)])))
    assert isinstance(settle, c.Settle)
    assert settle.consumer == consumer


def test_a_bulk_subscription_that_ends_is_told() -> None:
    peer = bulk()
    consumer = peer.subscribed("s1")
    peer.session.apply([ConsumerEnded(SESSION, consumer, "q", QueueNotFound("q"))])
    [body] = peer.bodies()
    ended = extensions.parse_subscription_ended(body)
    assert (ended.id, ended.queue, ended.code) == ("s1", "q", "QUEUE_NOT_FOUND")


def test_a_subscription_id_is_used_once_at_a_time() -> None:
    peer = bulk()
    peer.subscribed("s1")
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "other"))) == []
    assert peer.one().error_code == "INVALID_MESSAGE"


def publish_many(*rows: bytes, extras=None, queue: str = "q") -> bytes:
    return encode_frame(extensions.publish_many("r", queue, Rows.of(rows), extras))


def test_publish_many_passes_rows_through() -> None:
    peer = bulk()
    rows = [pack_row("a", b"\xff"), pack_row("b", b"1", [("priority", "high")])]
    extras = {1: {"priority": 3, "ttl_ms": 5, "delay_ms": 6, "dedup_id": "d"}}
    [publish] = peer.hear(publish_many(*rows, extras=extras))
    assert isinstance(publish, c.Publish)
    assert list(publish.rows) == rows
    assert publish.extras == {1: MessageExtra(3, NOW + 5, NOW + 6, b"d")}
    peer.session.apply([Reply(SESSION, publish.token, Published("q", 9, 2, {0: QueueFull("q", "x")}, {1: 4}))])
    [body] = peer.bodies()
    ack = extensions.parse_publish_many_ack(body)
    assert (ack.id, ack.first_sequence, ack.count, ack.duplicates) == ("r", 9, 2, {1: 4})
    assert ack.refused[0][0] == "QUEUE_FULL"


def test_extras_by_columns_are_offered_and_read() -> None:
    peer = bulk("batch/1,extras/1")
    assert peer.ack.headers["negotiated-extensions"] == "batch/1,extras/1"
    rows = Rows.of([pack_row(f"{number}", b"1") for number in range(8)])
    columns = encode_extras(8, {}, {"delay_ms": 6})
    [publish] = peer.hear(encode_frame(extensions.publish_many("r", "q", rows, columns=columns)))
    assert isinstance(publish, c.Publish)
    assert publish.extras == dict.fromkeys(range(8), MessageExtra(deliver_at=NOW + 6))


@pytest.mark.parametrize(
    "data",
    [
        publish_many(pack_row("a", b"1"), b"broken"),
        publish_many(pack_row("a", b"1"), queue=""),
        publish_many(pack_row("a", b"1"), queue="bad name"),
        publish_many(pack_row("a", b"1"), extras={1: {}}),
        publish_many(pack_row("a", b"1"), extras={0: 5}),
        publish_many(pack_row("a", b"1"), extras={0: {"colour": 1}}),
        publish_many(pack_row("a", b"1"), extras={0: {"ttl_ms": 0}}),
        publish_many(pack_row("a", b"1"), extras={0: {"dedup_id": 5}}),
    ],
)
def test_a_bad_publish_many_is_refused_whole_and_the_connection_stays(data: bytes) -> None:
    peer = bulk()
    assert list(peer.hear(data)) == []
    error = peer.one()
    assert (error.type, error.id) == (T.ERROR, "r")
    assert not peer.session.closing


def test_an_empty_publish_many_is_confirmed() -> None:
    peer = bulk()
    assert list(peer.hear(publish_many())) == []
    [body] = peer.bodies()
    assert body_type(body) == T.PUBLISH_MANY_ACK


# All refused; and the worst that fits into a frame of 1 MiB, where every other row is a known one with a dedup id.
@pytest.mark.parametrize(("count", "known"), [(20_000, 0), (80_000, 0), (40_000, 20_000)])
def test_more_refusals_than_fit_are_told_without_sentences_or_as_runs(count: int, known: int) -> None:
    duplicates = {2 * index: 2**63 + index for index in range(known)}
    peer = bulk()
    [publish] = peer.hear(publish_many(pack_row("a", b"1")))
    indexes = [index for index in range(count) if index not in duplicates]
    refused = dict.fromkeys(indexes, QueueFull("q", "the limit is some number of messages"))
    result = Published("q", 0, count, refused, duplicates)
    peer.session.apply([Reply(SESSION, publish.token, result)])  # type: ignore[arg-type,union-attr]
    [body] = peer.bodies()
    assert body_type(body) == T.PUBLISH_MANY_ACK
    ack = extensions.parse_publish_many_ack(body)
    assert (list(ack.refused), ack.duplicates) == (indexes, duplicates)


@pytest.mark.parametrize(
    "data",
    [
        encode_frame(extensions.settle("s", 9, [(1, 1)])),
        encode_frame(extensions.settle("s", 0, [(2, 1)])),
        encode_frame(extensions.flow("s", 1)[:-1]),
        encode_frame(extensions.publish_many("r", "q", Rows.of([pack_row("a", b"1")]))[:-1]),
    ],
)
def test_broken_extension_frames_end_the_connection(data: bytes) -> None:
    peer = bulk()
    with pytest.raises(RemoteProtocolError):
        peer.hear(data)
    assert peer.session.closing


def admin(verb: object, **arguments: object) -> bytes:
    return frame(T.ADMIN, "a", payload=orjson.dumps({"verb": verb, "arguments": arguments}))


def test_operations_are_handed_over_by_name() -> None:
    [request] = bulk().hear(admin("queue.remove", queue="q", runs=[[5, 6], [1, 2]]))
    assert isinstance(request, OperationRequest)
    assert (request.name, request.arguments) == ("queue.remove", {"queue": "q", "runs": [[5, 6], [1, 2]]})


def test_admin_results_are_json() -> None:
    peer = bulk()
    for data, result, expected in (
        (admin("queue.delete", queue="q"), None, {}),
        (admin("queue.purge", queue="q"), Counted(5), {"count": 5}),
        (admin("queue.info", queue="q"), None, None),
        (admin("queue.info", queue="q"), QueueNotFound("q"), None),
        (admin("broker.info"), {"version": "9"}, {"version": "9"}),
    ):
        [request] = peer.hear(data)
        answer = peer.answer(request, result)
        assert (answer.type, answer.id, orjson.loads(answer.payload or b"")) == (T.ADMIN, "a", expected)
    [request] = peer.hear(admin("queue.list"))
    page = orjson.loads(peer.answer(request, QueuePage(["q"], [described()])).payload or b"")
    [info] = page["queues"]
    assert (info["name"], info["options"]["overflow"], info["groups"][0]["name"]) == ("q", 1, "g")
    assert page["next"] is None
    [request] = peer.hear(admin("queue.create", queue="q", must_match=True))
    assert peer.answer(request, QueueExists("q", "mode")).error_code == "QUEUE_EXISTS"


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(T.ADMIN, "a"), "INVALID_PAYLOAD"),
        (frame(T.ADMIN, "a", payload=b"[]"), "INVALID_PAYLOAD"),
        (frame(T.ADMIN, "a", payload=b"\xff"), "INVALID_PAYLOAD"),
        (admin(5), "INVALID_PAYLOAD"),
    ],
)
def test_bad_admin_requests_are_refused(data: bytes, code: str) -> None:
    peer = bulk()
    assert list(peer.hear(data)) == []
    assert (peer.one().error_code, peer.session.closing) == (code, False)


# -- time and the end -------------------------------------------------------------------------------------------------


def test_a_silent_peer_is_closed_and_one_that_pings_is_not() -> None:
    peer = plain()
    idle_ms = SessionLimits().idle_timeout_ms
    assert peer.session.next_deadline() is not None
    peer.session.tick(NOW)
    peer.hear(frame(T.PING, "p"))
    peer.session.tick(NOW + idle_ms)
    assert not peer.session.closing
    assert peer.session.next_deadline() == NOW + 2 * idle_ms
    peer.frames()
    peer.session.tick(NOW + 2 * idle_ms)
    assert peer.session.closing
    goodbye = peer.one()
    assert (goodbye.type, goodbye.headers) == (T.DISCONNECT, {"reason": "idle_timeout"})


def test_the_handshake_deadline_does_not_count_our_own_check() -> None:
    peer = Peer(authentication=True)
    request = peer.ask(T.CONNECT, "c", headers={"authToken": "x"})
    peer.session.tick(NOW + 60_000)
    assert not peer.session.closing
    peer.session.refused(request.token, AuthFailed("no"))  # type: ignore[union-attr]
    peer.session.tick(NOW + 60_000)
    assert peer.session.closing


def test_disconnect_is_a_goodbye_and_nothing_after_it_counts() -> None:
    peer = plain()
    requests = peer.hear(frame(T.PUBLISH, "m", "q", b"1") + frame(T.DISCONNECT, "d") + frame(T.PUBLISH, "n", "q", b"1"))
    assert [type(request) for request in requests] == [c.Publish, Goodbye]
    assert list(peer.hear(frame(T.PING, "p"))) == []


def test_shutdown_says_why() -> None:
    peer = plain()
    peer.session.shutdown("server_shutdown")
    goodbye = peer.one()
    assert (goodbye.type, goodbye.headers) == (T.DISCONNECT, {"reason": "server_shutdown"})
    stranger = Peer()
    stranger.session.shutdown("server_shutdown")
    assert stranger.one().error_code == "SHUTTING_DOWN", "anything but an error would pass for a ConnectAck"


def test_a_connection_turned_away_is_told_before_it_speaks() -> None:
    peer = Peer()
    peer.session.refused(None, QueueFull("q", "x"))
    assert (peer.one().type, peer.session.closing) == (T.ERROR, True)
    known = plain()
    known.session.refused(None, NotAuthorized("no"))
    assert (known.frames(), known.session.closing) == ([], False)


# -- very many frames in one piece ------------------------------------------------------------------------------------


def pieces_of(peer: Peer, data: bytes) -> list[list[Request]]:
    """What each `commands` returns for bytes that come together."""
    pieces = [list(peer.hear(data))]
    while peer.session.unread:
        pieces.append(list(peer.session.commands()))
    assert list(peer.session.commands()) == []
    return pieces


def test_frames_that_come_together_are_read_in_pieces() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    names = [f"q{number:04}" for number in range(1_000)]
    pieces = pieces_of(peer, b"".join(frame(T.DELETE_QUEUE, "d", name) for name in names))
    assert max(map(len, pieces)) == READ_UNITS
    assert [request.queue for piece in pieces for request in piece] == names  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", [T.ADMIN, T.CREATE_QUEUE, T.CURSOR_REQUEST, T.SUBSCRIBE])
def test_requests_that_are_more_work_are_read_in_smaller_pieces(kind: T) -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},cursor/1"})
    by_name = kind in (T.ADMIN, T.CURSOR_REQUEST)
    payload = b'{"verb": "queue.create", "arguments": {"queue": "q"}}' if by_name else b"{}"
    pieces = pieces_of(peer, b"".join(frame(kind, f"c{number}", "q", payload) for number in range(300)))
    assert sum(map(len, pieces)) == 300
    assert max(map(len, pieces)) * 5 <= READ_UNITS


def test_frames_that_ask_for_nothing_are_read_in_pieces_too() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    pieces = pieces_of(peer, frame(T.PING, "p") * 1_000)
    assert len(pieces) > 1_000 // READ_UNITS
    assert len(peer.frames()) == 1_000


def test_plain_publishes_and_acks_that_come_together_are_read_in_pieces() -> None:
    peer = Peer(connect={})
    publishes = [frame(T.PUBLISH, f"m{number:04}", "orders", b'"x"') for number in range(5_000)]
    pieces = pieces_of(peer, b"".join(publishes))
    assert len(pieces) > 5
    assert [row for piece in pieces for asked in piece for row in asked.rows] == [  # type: ignore[union-attr]
        pack_row(f"m{number:04}", b'"x"') for number in range(5_000)
    ]
    assert len(pieces_of(peer, frame(T.ACK, "m0001") * 5_000)) > 3


def test_the_end_of_the_stream_comes_behind_all_that_was_said() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    peer.session.receive_data(frame(T.DELETE_QUEUE, "d", "orders") * 200)
    peer.session.receive_data(b"")
    assert len(peer.session.commands()) == READ_UNITS
    assert peer.session.unread
    assert not peer.session.closing
    assert len(peer.session.commands()) == 200 - READ_UNITS
    assert peer.session.closing


def test_who_has_said_what_is_not_read_yet_is_not_silent() -> None:
    peer = Peer(connect={"supported-extensions": ALL})
    peer.hear(frame(T.DELETE_QUEUE, "d", "orders") * 200)
    assert peer.session.unread
    for minutes in range(1, 60):
        peer.session.tick(NOW + minutes * 600_000)
    assert not peer.session.closing
    peer.session.commands()
    peer.session.tick(NOW + 60 * 600_000)
    assert peer.session.closing


def test_nothing_is_unread_behind_a_connect_that_is_not_answered() -> None:
    peer = Peer()
    peer.session.receive_data(frame(T.PING, "p") * (READ_UNITS - 1) + frame(T.CONNECT, "c") + frame(T.PING, "p"))
    [request] = peer.session.commands()
    assert isinstance(request, Authenticate)
    assert not peer.session.unread


# -- requests -------------------------------------------------------------------------------------------------------


REQUESTING = ALL + ",request/1"


def asking(peer: Peer, message_id: str = "r1", timeout_ms: int = 2_000, **more) -> Sequence[Request]:
    row = pack_row("m", b"1", more.pop("headers", ()))
    return peer.hear(encode_frame(extensions.request(message_id, "q", row, timeout_ms, more.pop("extra", None))))


def test_a_request_is_published_with_the_address_of_its_reply() -> None:
    peer = bulk(REQUESTING)
    [first] = asking(peer, headers=[("a", "b"), ("reply-to", "forged")], extra={"priority": 3})
    [second] = asking(peer, "r2")
    assert isinstance(first, c.Publish)
    assert isinstance(second, c.Publish)
    assert (first.requester is not None, second.requester is not None) == (True, True)
    assert first.requester.address != second.requester.address
    assert RowView(first.rows[0]).headers == {
        "a": "b",
        "reply-to": first.requester.address,
        "correlation-id": "r1",
    }
    assert (first.extras, second.extras) == ({0: MessageExtra(3)}, None)
    assert first.requester.timeout_ms == 2_000


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"timeout_ms": 0}, "timeout_ms of a Request is 0"),
        ({"extra": {"ttl_ms": 5}}, "may have priority; not"),
        ({"extra": {"priority": -1}}, "priority of row 0"),
        ({"headers": [(f"h{n}", "x") for n in range(49)]}, "49 headers; a request may have 48"),
        ({"message_id": "r" * 257}, "257 characters"),
    ],
)
def test_a_request_that_cannot_be_is_refused(wrong: dict[str, object], words: str) -> None:
    peer = bulk(REQUESTING)
    assert asking(peer, **wrong) == []
    answer = peer.one()
    assert (answer.type, answer.error_code) == (T.ERROR, "INVALID_MESSAGE")
    assert words in str(answer.error_message)


def test_a_request_without_time_and_row_takes_the_one_with_its_id_back() -> None:
    peer = bulk(REQUESTING)
    [asked] = asking(peer)
    assert isinstance(asked, c.Publish)
    assert asked.requester is not None
    [given_up] = peer.hear(encode_frame(extensions.give_up("r1")))
    assert isinstance(given_up, c.GiveUp)
    assert given_up.address == asked.requester.address
    peer.session.apply([Reply(SESSION, asked.token, Published("q", 0, 1, {0: QueueFull("q", "max_messages 1")}))])
    peer.session.apply([Responded(SESSION, asked.requester.token, NoReply("late"))])
    assert list(peer.frames()) == []
    for unknown in ("r1", "r2"):
        assert peer.hear(encode_frame(extensions.give_up(unknown))) == []
    [ended] = asking(peer, "r3")
    assert isinstance(ended, c.Publish)
    peer.session.apply([Responded(SESSION, ended.requester.token, NoReply("late"))])  # type: ignore[union-attr]
    assert peer.hear(encode_frame(extensions.give_up("r3"))) == []


def test_a_broken_row_of_a_request_or_reply_is_refused() -> None:
    peer = bulk(REQUESTING)
    assert peer.hear(encode_frame(extensions.request("r", "q", b"no row", 5))) == []
    assert peer.hear(encode_frame(extensions.request("r", "", pack_row("m", b"1"), 5))) == []
    assert peer.hear(encode_frame(extensions.response("r", "a", b"no row"))) == []
    assert [answer.error_code for answer in peer.frames()] == ["INVALID_MESSAGE", "INVALID_QUEUE", "INVALID_MESSAGE"]


def test_requests_exist_where_they_were_agreed_on() -> None:
    peer = bulk()
    assert peer.hear(frame(T.REQUEST, "x", "q")) == []
    assert peer.one().error_code == "UNKNOWN_COMMAND"


def test_a_reply_that_does_not_fit_is_an_error_of_the_request() -> None:
    peer = bulk(REQUESTING)
    [request] = asking(peer)
    assert isinstance(request, c.Publish)
    assert request.requester is not None
    large = Rows.of([pack_row("m", b"x" * 1_048_576)])
    peer.session.apply([Responded(SESSION, request.requester.token, large)])
    answer = peer.one()
    assert (answer.id, answer.error_code) == ("r1", "MESSAGE_TOO_LARGE")


# -- large messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["cut off", "stalled"])
def test_what_comes_of_a_large_message_behind_its_end_is_no_command(how: str) -> None:
    peer = Peer(connect={"supported-extensions": "batch/1", "max-body-bytes": "16777216"})
    hidden = encode_frame(extensions.publish_many("x", "other", Rows.of([pack_row("x", b"hidden")])))
    body = extensions.publish_many("r", "q", Rows.of([pack_row("m", bytes(1_100_000) + hidden + bytes(2_000_000))]))
    sent = HEADER.pack(len(body), 0) + body
    at = sent.index(hidden)
    assert peer.hear(sent[:at]) == []
    assert peer.session.large_left
    if how == "cut off":
        peer.session.fail(Blocked("others wait"))
        assert peer.hear(sent[at : at + len(hidden)]) == []
    else:
        peer.session.tick(NOW + 1)
        peer.session.receive_data(sent[at : at + len(hidden)])
        peer.session.tick(NOW + SessionLimits().message_timeout_ms + 1_000)
        assert peer.session.commands() == []
    assert (peer.session.closing, peer.session.large_left, peer.session.unread) == (True, 0, False)
    assert peer.hear(hidden) == []


def test_a_subscription_has_a_selector_and_a_weight() -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},where/1"})
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total > 1", "consumer-weight": "3"})
    assert isinstance(request, c.Subscribe)
    assert (request.where, request.weight) == (Selector.parse("total > 1"), 3)
    plain = peer.ask(T.SUBSCRIBE, "s2", "q")
    assert isinstance(plain, c.Subscribe)
    assert (plain.where, plain.weight) == (None, 1)


def test_a_selector_that_cannot_be_read_is_refused_and_the_connection_stays() -> None:
    peer = Peer(connect={"supported-extensions": f"{ALL},where/1"})
    assert list(peer.hear(frame(T.SUBSCRIBE, "s1", "q", headers={"where": "total = 1"}))) == []
    (error,) = peer.frames()
    assert (error.id, error.error_code, peer.session.closing) == ("s1", "INVALID_SELECTOR", False)
    assert "character 7" in error.error_message
    # The id was not taken.
    assert isinstance(peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total == 1"}), c.Subscribe)


def test_who_has_not_negotiated_selectors_has_none() -> None:
    peer = Peer(connect={"supported-extensions": "batch/1"})
    request = peer.ask(T.SUBSCRIBE, "s1", "q", headers={"where": "total = 1"})
    assert isinstance(request, c.Subscribe)
    assert request.where is None
