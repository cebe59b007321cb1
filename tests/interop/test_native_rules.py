"""A real broker spoken to over raw sockets, as .NET's clients and the seed's do: rules S1–S14 and differences D1–D24.

The numbers name what a peer relies on (S) and where the documents of the two generations of clients disagree (D); both
generations must be served. Every test that does not name one form runs in both.
"""

import contextlib
import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.interop.native import (
    ONE_MIB,
    TOKEN,
    WAIT_S,
    Form,
    RunningBroker,
    Wire,
    dotnet,
    info,
    is_silent,
    publish,
    seed,
    subscribe,
)
from tests.names import queue_named_after
from tests.waiting import wait_until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Http, Limits, Listener, Settings, User
from vibemq.protocols.native.codec.compression import Compression, compress
from vibemq.protocols.native.codec.frames import HEADER, encode_frame
from vibemq.protocols.native.codec.wire import CommandType as T
from vibemq.protocols.native.codec.wire import encode_body

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """With authentication, which lets both forms say who they are."""
    settings = Settings(
        data_dir=tmp_path_factory.mktemp("broker") / "data",
        listeners=(Listener(port=0),),
        limits=Limits(block_timeout_ms=400, handshake_timeout_ms=600_000),
        auth=Auth.model_validate(
            {
                "token": TOKEN,
                "users": {
                    "alice": User.model_validate({"password_hash": hash_password("alices-password"), "superuser": True})
                },
            }
        ),
        http=Http(port=0),
    )
    with RunningBroker(settings) as running:
        yield running


@pytest.fixture(params=[dotnet, seed], ids=["dotnet", "seed"])
def form(request: pytest.FixtureRequest) -> Form:
    return request.param()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue of the test's own."""
    return queue_named_after(request)


@pytest.fixture
def wire(broker: RunningBroker, form: Form) -> Iterator[Wire]:
    with form.connect(broker.port) as connected:
        yield connected


# -- S: what a client relies on ---------------------------------------------------------------------------------------


def test_s1_the_first_frame_answers_connect(broker: RunningBroker, form: Form) -> None:
    with Wire(broker.port) as wire:
        wire.send(T.PING, "p")
        wire.expect(T.PONG, "p")  # the broker waits to be spoken to
        wire.send(T.CONNECT, "c", headers=form.connect_headers)
        assert wire.expect(T.CONNECT_ACK).id == "c"


def test_s2_answers_carry_the_requests_id_and_type(wire: Wire, queue: str) -> None:
    for kind, answer in (
        (T.CREATE_QUEUE, T.CREATE_QUEUE),
        (T.SUBSCRIBE, T.SUBSCRIBE_ACK),
        (T.UNSUBSCRIBE, T.UNSUBSCRIBE_ACK),
        (T.PUBLISH, T.PUBLISH_ACK),
        (T.QUEUE_INFO, T.QUEUE_INFO),
        (T.LIST_QUEUES, T.LIST_QUEUES),
        (T.DELETE_QUEUE, T.DELETE_QUEUE),
        (T.PING, T.PONG),
    ):
        message_id = os.urandom(16).hex()
        wire.send(kind, message_id, "" if kind in (T.LIST_QUEUES, T.PING) else queue)
        assert wire.expect(answer, message_id).queue == ("" if kind in (T.LIST_QUEUES, T.PING) else queue)


def test_s3_queue_info_is_what_dotnet_deserialises(wire: Wire, form: Form, queue: str) -> None:
    ttl = "1.02:03:04.5000000" if form.name == "dotnet" else 93_784_500
    form.create(wire, queue, mode=3, messageTtl=ttl, overflowStrategy=1)
    described = info(wire, queue)
    assert described is not None
    assert (described["name"], described["deliveryMode"], described["overflowStrategy"]) == (queue, 3, 1)
    assert described["messageTtl"] == "1.02:03:04.5000000"
    assert described["createdAt"].endswith("Z")
    assert [type(described[key]) for key in ("messageCount", "subscriberCount", "maxSize", "maxRetryAttempts")] == [
        int
    ] * 4


def test_s4_an_unknown_queue_is_no_error(wire: Wire) -> None:
    answer = wire.ask(T.QUEUE_INFO, "i", "never.made")
    assert (answer.type, answer.payload) == (T.QUEUE_INFO, None)


def test_s5_settings_come_back_as_given(wire: Wire, form: Form, queue: str) -> None:
    ttl = "00:01:00.2500000" if form.name == "dotnet" else 60_250
    given = {"maxQueueSize": 77, "enableDeadLetterQueue": True, "maxRetryAttempts": 5, "overflowStrategy": 3, "mode": 1}
    form.create(wire, queue, **given, messageTtl=ttl)
    described = info(wire, queue)
    assert described is not None
    assert "deadLetterQueueName" not in described, "no name was given, none is made up"
    assert (described["maxSize"], described["enableDeadLetterQueue"], described["maxRetryAttempts"]) == (77, True, 5)
    assert (described["overflowStrategy"], described["deliveryMode"]) == (3, 1)
    assert described["messageTtl"] == "00:01:00.2500000"
    form.create(wire, queue + ".named", enableDeadLetterQueue=True, deadLetterQueueName="my.dlq")
    named = info(wire, queue + ".named")
    assert named is not None
    assert named["deadLetterQueueName"] == "my.dlq"


def test_s6_creating_twice_and_deleting_nothing_succeed(wire: Wire, form: Form, queue: str) -> None:
    form.create(wire, queue, maxQueueSize=5)
    form.create(wire, queue, maxQueueSize=6)
    described = info(wire, queue)
    assert described is not None
    assert described["maxSize"] == 5
    for _ in range(2):
        assert wire.ask(T.DELETE_QUEUE, "d", queue).type == T.DELETE_QUEUE
    assert info(wire, queue) is None


def test_s7_options_are_taken_from_the_payload_with_numbers_or_names(wire: Wire, queue: str) -> None:
    for number, options in enumerate(({"mode": 2}, {"mode": "FanOutWithoutAck"})):
        name = f"{queue}.{number}"
        assert wire.ask(T.CREATE_QUEUE, "c", name, json.dumps(options).encode()).type == T.CREATE_QUEUE
        described = info(wire, name)
        assert described is not None
        assert (described["deliveryMode"], described["maxSize"]) == (2, 10_000)


@pytest.mark.parametrize("mode", range(4))
def test_s8_acks_settle_and_are_never_answered(wire: Wire, form: Form, queue: str, mode: int) -> None:
    form.create(wire, queue, mode=mode)
    subscribe(wire, queue)
    publish(wire, queue, "m1")
    assert wire.expect(T.DELIVER, "m1").queue == queue
    form.ack(wire, "m1")
    form.ack(wire, "m1")
    form.ack(wire, "never.delivered")
    assert is_silent(wire, form, queue)
    described = info(wire, queue)
    assert described is not None
    assert described["messageCount"] == 0


def test_s9_the_delivered_id_and_queue_are_the_published_ones(wire: Wire, form: Form, queue: str) -> None:
    subscribe(wire, queue)
    for payload in (b"1", b"2"):
        publish(wire, queue, "same-id", payload)
    for payload in (b"1", b"2"):
        delivered = wire.expect(T.DELIVER, "same-id")
        assert (delivered.queue, delivered.payload) == (queue, payload)
    form.ack(wire, "same-id")
    form.ack(wire, "same-id")
    assert is_silent(wire, form, queue)


def test_s10_the_largest_message_comes_through_and_one_more_byte_does_not(wire: Wire, form: Form, queue: str) -> None:
    room = ONE_MIB - len(encode_body(T.PUBLISH, "m", queue, b"")) - 2
    payload = b'"' + b"x" * room + b'"'
    assert publish(wire, queue, "m", payload).type == T.PUBLISH_ACK
    subscribe(wire, queue)
    assert wire.expect(T.DELIVER, "m").payload == payload
    form.ack(wire, "m")
    body = encode_body(T.PUBLISH, "m", queue, payload + b" ")
    wire.socket.sendall(HEADER.pack(len(body), 0))
    assert wire.is_closed(), "refused by its length alone"


@pytest.mark.parametrize(("offer", "flag"), [("brotli,gzip", 2), ("gzip,brotli", 1), ("lz4", 0), ("", 0)])
def test_s11_compression_is_what_was_announced(
    broker: RunningBroker, form: Form, queue: str, offer: str, flag: int
) -> None:
    wire = Wire(broker.port)
    wire.send(T.CONNECT, "c", headers=form.connect_headers | ({"supported-compression": offer} if offer else {}))
    announced = wire.expect(T.CONNECT_ACK).headers.get("negotiated-compression", "")
    assert announced == ("", "gzip", "brotli")[flag]
    name = f"{queue}.{flag}.{bool(offer)}"[-200:]
    payload = b'"' + b"x" * 5_000 + b'"'
    body = encode_body(T.PUBLISH, "m", name, payload)
    wire.socket.sendall(encode_frame(body, Compression(flag)))
    wire.expect(T.PUBLISH_ACK, "m")
    subscribe(wire, name)
    assert wire.expect(T.DELIVER, "m").payload == payload
    assert wire.flags() == [0, 0, 0, flag], "only what is large is compressed, and only after ConnectAck"
    wire.close()


def test_s12_d14_ping_is_answered_before_connect_and_a_pinging_peer_is_kept(tmp_path: Path, form: Form) -> None:
    limits = Limits(idle_timeout_ms=70_000, handshake_timeout_ms=150_000)
    open_settings = Settings(
        data_dir=tmp_path / "data", listeners=(Listener(port=0),), limits=limits, http=Http(enabled=False)
    )
    with RunningBroker(open_settings) as broker, Wire(broker.port) as stranger:
        stranger.send(T.PING, "p")
        stranger.expect(T.PONG, "p")
        with form.connect(broker.port) as alive, form.connect(broker.port) as silent:
            for number in range(5):
                broker.advance(30)
                assert alive.ask(T.PING, f"p{number}").type == T.PONG
            assert silent.expect(T.DISCONNECT).headers == {"reason": "idle_timeout"}
            assert silent.is_closed()
        assert stranger.expect(T.ERROR).error_code == "NOT_AUTHENTICATED"
        assert stranger.is_closed(), "the handshake has a deadline"


def test_s13_a_blocked_publisher_hears_within_ten_seconds(
    broker: RunningBroker, wire: Wire, form: Form, queue: str
) -> None:
    assert Limits().block_timeout_ms < 10_000
    form.create(wire, queue, maxQueueSize=1, overflowStrategy=2)
    publish(wire, queue, "m1")
    wire.send(T.PUBLISH, "m2", queue)
    for seconds in (0, 0.399):
        broker.advance(seconds)
        wire.send(T.PING, "p")
        wire.expect(T.PONG, "p")
    broker.advance(0.001)
    answer = wire.expect(T.ERROR, "m2")
    assert answer.error_code == "QUEUE_FULL"


def test_s14_d20_shutdown_says_goodbye_after_what_was_asked_is_answered(tmp_path: Path, form: Form, queue: str) -> None:
    settings = Settings(data_dir=tmp_path / "data", listeners=(Listener(port=0),), http=Http(enabled=False))
    with RunningBroker(settings) as broker:
        wire = form.connect(broker.port)
        subscribe(wire, queue)
        publish(wire, queue, "kept")
        wire.expect(T.DELIVER, "kept")
        broker.stop()
        goodbye = wire.expect(T.DISCONNECT)
        assert goodbye.headers == {"reason": "server_shutdown"}
        assert wire.is_closed()
        wire.close()
    with RunningBroker(settings) as broker, form.connect(broker.port) as wire:
        subscribe(wire, queue)
        again = wire.expect(T.DELIVER, "kept")
        assert again.payload == b"1", "what nobody settled is still there"
        form.ack(wire, "kept")


# -- D: where the two generations of documents differ -----------------------------------------------------------------


def test_d1_only_errors_have_error_fields_and_trailing_ones_are_ignored(wire: Wire, queue: str) -> None:
    wire.socket.sendall(encode_frame(encode_body(T.PING, "p") + bytes(4)))
    wire.expect(T.PONG, "p")
    wire.socket.sendall(encode_frame(encode_body(T.PUBLISH, "m", queue, b"1") + bytes(4)))
    wire.expect(T.PUBLISH_ACK, "m")
    subscribe(wire, queue)
    body = wire.receive_body()
    assert body is not None
    assert body.endswith(b"\0\x10deliveryAttempts\0\x011"), "nothing follows the headers"


def test_d2_d3_connect_ack_names_the_connection(broker: RunningBroker, form: Form) -> None:
    with Wire(broker.port) as wire:
        wire.send(T.CONNECT, "my-id", headers=form.connect_headers)
        ack = wire.expect(T.CONNECT_ACK, "my-id")
        assert len(ack.headers["connectionId"]) == 32
        assert ack.headers["serverVersion"]


def test_d4_both_kinds_of_credentials_and_wrong_ones(broker: RunningBroker) -> None:
    for headers, code in (
        ({"authUsername": "alice", "authPassword": "wrong"}, "AUTH_FAILED"),
        ({"authUsername": "nobody", "authPassword": "x"}, "AUTH_FAILED"),
        ({"authToken": "wrong"}, "AUTH_FAILED"),
        ({}, "AUTH_REQUIRED"),
    ):
        with Wire(broker.port) as wire:
            wire.send(T.CONNECT, "c", headers=headers)
            assert wire.expect(T.ERROR).error_code == code
            wire.send(T.PUBLISH, "m", "q", b"1")
            assert wire.expect(T.ERROR).error_code == "NOT_AUTHENTICATED"


def test_d5_d6_acks_serve_both_readers(wire: Wire, queue: str) -> None:
    ack = publish(wire, queue, "m-1")
    assert (ack.queue, ack.headers) == (queue, {"messageId": "m-1", "queueName": queue})
    subscribed = subscribe(wire, queue, "s-1")
    assert (subscribed.queue, subscribed.headers["queueName"], subscribed.headers["subscriptionId"]) == (
        queue,
        queue,
        "s-1",
    )
    ended = wire.ask(T.UNSUBSCRIBE, "u-1", queue)
    assert (ended.type, ended.queue, ended.headers["queueName"]) == (T.UNSUBSCRIBE_ACK, queue, queue)


def test_d7_both_forms_of_ack_settle(broker: RunningBroker, queue: str) -> None:
    with dotnet().connect(broker.port) as wire:
        subscribe(wire, queue)
        for message_id, form in (("a", dotnet()), ("b", seed())):
            publish(wire, queue, message_id)
            wire.expect(T.DELIVER, message_id)
            form.ack(wire, message_id)
    with dotnet().connect(broker.port) as wire:
        subscribe(wire, queue)
        assert is_silent(wire, dotnet(), queue), "both are settled"


def test_d8_d13_the_publishers_headers_arrive_with_the_attempts(wire: Wire, queue: str) -> None:
    headers = {"correlationId": "corr-1", "timestamp": "2026-01-01T00:00:00Z", "priority": "High", "ключ": "значение"}
    subscribe(wire, queue)
    publish(wire, queue, "m", b'{"a":1}', headers)
    assert wire.expect(T.DELIVER, "m").headers == headers | {"deliveryAttempts": "1"}


def test_d9_seed_options_in_headers(broker: RunningBroker, queue: str) -> None:
    with seed().connect(broker.port) as wire:
        headers = {"deliveryMode": "RoundRobin", "maxQueueSize": "10000", "messageTtl": "3600000"}
        assert wire.ask(T.CREATE_QUEUE, "create_123", queue, headers=headers).type == T.CREATE_QUEUE
        described = info(wire, queue)
        assert described is not None
        assert (described["deliveryMode"], described["maxSize"], described["messageTtl"]) == (0, 10_000, "01:00:00")
        assert (described["overflowStrategy"], described["enableDeadLetterQueue"]) == (0, False)


def test_d10_the_ten_keys_of_queue_info(wire: Wire, form: Form, queue: str) -> None:
    form.create(wire, queue, maxQueueSize=9)
    subscribe(wire, queue + ".other")
    publish(wire, queue, "m")
    described = info(wire, queue)
    assert described is not None
    del described["createdAt"]
    assert described == {
        "name": queue,
        "messageCount": 1,
        "subscriberCount": 0,
        "deliveryMode": 0,
        "maxSize": 9,
        "enableDeadLetterQueue": False,
        "overflowStrategy": 0,
        "maxRetryAttempts": 3,
    }


def test_d11_errors_have_code_and_sentence_and_the_connection_stays(wire: Wire) -> None:
    for kind, queue, payload, code in (
        (77, "", b"", "UNKNOWN_COMMAND"),
        (T.ADMIN_CREATE_USER, "", b'{"username":"x"}', "INVALID_PAYLOAD"),
        (T.PUBLISH, "", b"1", "INVALID_QUEUE"),
        (T.PUBLISH, "a name with blanks", b"1", "INVALID_MESSAGE"),
        (T.SUBSCRIBE, "", b"", "INVALID_QUEUE"),
        (T.CREATE_QUEUE, "q", b'{"mode":"Sideways"}', "INVALID_OPTIONS"),
        (T.CREATE_QUEUE, "q", b'{"overflowStrategy":3}', "INVALID_OPTIONS"),
        (T.PUBLISH_MANY, "q", b"", "UNKNOWN_COMMAND"),
    ):
        answer = wire.ask(kind, f"id-{kind}", queue, payload)
        assert (answer.type, answer.error_code) == (T.ERROR, code)
        assert len(answer.error_message or "") > 20
    assert wire.ask(T.PING, "still-here").type == T.PONG


@pytest.mark.parametrize("version", [0, 1, 2, 255])
def test_d12_the_version_byte_is_carried_and_never_checked(wire: Wire, queue: str, version: int) -> None:
    for kind, answer in ((T.PING, T.PONG), (T.PUBLISH, T.PUBLISH_ACK)):
        body = encode_body(kind, "m", queue if kind == T.PUBLISH else "", b"1" if kind == T.PUBLISH else b"")
        wire.socket.sendall(encode_frame(bytes((version,)) + body[1:]))
        assert wire.expect(answer, "m").version == 1


def test_d15_each_subscriber_of_a_fan_out_settles_for_itself(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port) as one, form.connect(broker.port) as two, form.connect(broker.port) as publisher:
        form.create(publisher, queue, mode=1)
        subscribe(one, queue)
        subscribe(two, queue)
        publish(publisher, queue, "m")
        assert (one.expect(T.DELIVER, "m").queue, two.expect(T.DELIVER, "m").queue) == (queue, queue)
        form.ack(one, "m")
        assert is_silent(one, form, queue)
        two.expect(T.DELIVER, "marker")
        form.ack(two, "marker")
        described = info(publisher, queue)
        assert described is not None
        form.ack(two, "m")
        assert is_silent(two, form, queue)


def test_d16_above_the_memory_watermark_publishers_are_refused(tmp_path: Path, form: Form) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        listeners=(Listener(port=0),),
        limits=Limits(memory_limit_bytes=1_000_000),
        http=Http(enabled=False),
    )
    with RunningBroker(settings) as broker, form.connect(broker.port) as wire:
        answer = wait_until(lambda: said if (said := publish(wire, "q", "m")).type == T.ERROR else None)
        assert answer is not None
        assert answer.error_code == "BLOCKED"
        assert wire.ask(T.PING, "p").type == T.PONG


def test_d17_expired_messages_are_not_delivered_but_dead_lettered(
    broker: RunningBroker, form: Form, queue: str
) -> None:
    with form.connect(broker.port, **{"supported-extensions": "admin/1"}) as wire:
        ttl = "00:00:00.1000000" if form.name == "dotnet" else 100
        form.create(wire, queue, messageTtl=ttl, enableDeadLetterQueue=True)
        publish(wire, queue, "too-late")
        broker.advance(0.1)
        [letter] = wait_until(lambda: _admin(wire, "dlq.list", queue=queue)["letters"])
        assert (letter["id"], letter["reason"].lower()) == ("too-late", "expired")
        subscribe(wire, queue)
        assert is_silent(wire, form, queue)


def test_d18_the_dlq_can_be_read_and_replayed(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port, **{"supported-extensions": "settle/1,admin/1"}) as wire:
        form.create(wire, queue, enableDeadLetterQueue=True)
        subscribe(wire, queue)
        publish(wire, queue, "m", b'{"why":1}')
        wire.expect(T.DELIVER, "m")
        wire.send(T.NACK, "m", headers={"verb": "reject", "reason": "cannot use it"})
        letters = wait_until(lambda: _admin(wire, "dlq.list", queue=queue)["letters"])
        assert [(letter["id"], letter["queue"], letter["error"]) for letter in letters] == [
            ("m", queue, "cannot use it")
        ]
        assert _admin(wire, "dlq.replay", queue=queue)["count"] == 1
        again = wire.expect(T.DELIVER, "m")
        assert (again.payload, again.headers["vibemq-replay-count"]) == (b'{"why":1}', "1")
        form.ack(wire, "m")


def _admin(wire: Wire, verb: str, **arguments: Any) -> Any:
    answer = wire.ask(T.ADMIN, f"admin-{uuid4()}", payload=json.dumps({"verb": verb, "arguments": arguments}).encode())
    assert answer.type == T.ADMIN, answer
    return json.loads(answer.payload or b"null")


def _connections(broker: RunningBroker) -> int:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/health/", timeout=WAIT_S) as answer:
        return int(json.load(answer)["active_connections"])


def test_d19_a_blocked_publish_goes_through_when_there_is_room(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port) as publisher, form.connect(broker.port) as consumer:
        form.create(publisher, queue, maxQueueSize=1, overflowStrategy=2)
        publish(publisher, queue, "m1")
        publisher.send(T.PUBLISH, "m2", queue, b"2")
        assert publisher.ask(T.PING, "p").type == T.PONG
        subscribe(consumer, queue)
        consumer.expect(T.DELIVER, "m1")
        form.ack(consumer, "m1")
        publisher.expect(T.PUBLISH_ACK, "m2")
        consumer.expect(T.DELIVER, "m2")
        form.ack(consumer, "m2")


def test_d21_health_is_served(broker: RunningBroker) -> None:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker.http_port}/health/", timeout=WAIT_S) as answer:
        assert json.load(answer)["is_healthy"] is True


def test_d22_redeliveries_are_counted_and_end(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port, **{"supported-extensions": "admin/1"}) as wire:
        options = {
            "ack_timeout_ms": 200,
            "retry_base_ms": 100,
            "retry_max_ms": 200,
            "max_attempts": 3,
            "dead_letter": True,
        }
        _admin(wire, "queue.create", queue=queue, options=options)
        subscribe(wire, queue)
        publish(wire, queue, "m")
        for attempts in ("1", "2", "3"):
            assert wire.expect(T.DELIVER, "m").headers["deliveryAttempts"] == attempts
            broker.advance(0.2)  # Nobody has acknowledged it.
            broker.advance(0.2)  # The longest pause before it comes again.
        [letter] = wait_until(lambda: _admin(wire, "dlq.list", queue=queue)["letters"])
        assert (letter["id"], letter["attempts"]) == ("m", 3)


def test_a_client_that_takes_long_keeps_what_it_has_not_begun(broker: RunningBroker, form: Form, queue: str) -> None:
    """It takes one message after the other, and has been given many."""
    with form.connect(broker.port) as wire:
        for message_id in ("m0", "m1", "m2", "m3"):
            publish(wire, queue, message_id)
        subscribe(wire, queue)
        assert [wire.expect(T.DELIVER).id for _ in range(4)] == ["m0", "m1", "m2", "m3"]

        def ack(message_id: str) -> None:
            form.ack(wire, message_id)
            assert wire.ask(T.PING, f"behind-{message_id}").type == T.PONG

        broker.advance(20)
        ack("m0")
        broker.advance(20)
        ack("m2")  # It has passed over m1.
        broker.advance(15)
        broker.advance(2)  # The longest pause before it comes again.
        assert wire.expect(T.DELIVER, "m1").headers["deliveryAttempts"] == "2"
        ack("m1")
        ack("m3")
        assert is_silent(wire, form, queue)


def test_a_lost_connection_is_no_fault_of_what_was_not_begun(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port) as lost:
        form.create(lost, queue, maxRetryAttempts=1)
        for message_id in ("m0", "m1", "m2", "m3"):
            publish(lost, queue, message_id)
        subscribe(lost, queue)
        assert [lost.expect(T.DELIVER).id for _ in range(4)] == ["m0", "m1", "m2", "m3"]
        form.ack(lost, "m0")
    with form.connect(broker.port) as wire:
        subscribe(wire, queue)
        assert [wire.expect(T.DELIVER).id for _ in range(2)] == ["m2", "m3"], "it may have ended over m1 alone"
        for message_id in ("m2", "m3"):
            form.ack(wire, message_id)
        assert is_silent(wire, form, queue)


def test_d23_many_pipelined_messages_are_all_answered_in_order(broker: RunningBroker, form: Form, queue: str) -> None:
    ids = [f"{number:05}" for number in range(2_000)]
    with form.connect(broker.port) as publisher, form.connect(broker.port) as consumer:
        form.create(publisher, queue, maxQueueSize=10_000)
        subscribe(consumer, queue)
        publisher.socket.sendall(b"".join(encode_frame(encode_body(T.PUBLISH, name, queue, b"1")) for name in ids))
        assert [publisher.expect(T.PUBLISH_ACK).id for _ in ids] == ids
        for name in ids:
            consumer.expect(T.DELIVER, name)
            form.ack(consumer, name)
        assert is_silent(consumer, form, queue)


def test_d24_an_empty_id_is_fatal_and_everything_else_may_be_absent(
    broker: RunningBroker, form: Form, queue: str
) -> None:
    with form.connect(broker.port) as wire:
        assert publish(wire, queue, "m", b"").type == T.PUBLISH_ACK
        subscribe(wire, queue)
        assert wire.expect(T.DELIVER, "m").payload is None
        form.ack(wire, "m")
        wire.socket.sendall(bytes.fromhex("0000000c00010a00000000000000000000"))
        assert wire.is_closed()


# -- hostile peers ----------------------------------------------------------------------------------------------------


def _packed(body: bytes, flag: int) -> bytes:
    return HEADER.pack(len(body), flag) + body


ATTACKS = {
    "garbage": b"\xde\xad\xbe\xef" * 4_000,
    "text": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "length of 4 GiB": b"\xff\xff\xff\xff\0",
    "length 2^31": b"\x80\0\0\0\0",
    "length 0": bytes(20),
    "one byte over the limit": (ONE_MIB + 1).to_bytes(4, "big") + b"\0",
    "unknown flag": b"\0\0\0\3\xff\1\2\3",
    "damaged gzip": _packed(b"\x1f\x8b" + b"\xff" * 200, 1),
    "cut body": b"\0\0\0\2\0\1\2",
    "empty id": bytes.fromhex("0000000c00010a00000000000000000000"),
    "not JSON": encode_frame(encode_body(T.PUBLISH, "m", "attacked", b"{x}")),
    "JSON too deep": encode_frame(encode_body(T.PUBLISH, "m", "attacked", b"[" * 5_000 + b"]" * 5_000)),
    "headers that are not there": encode_frame(encode_body(T.PUBLISH, "m", "attacked", b"1")[:-2] + b"\0\x20"),
}
BOMBS = {"gzip bomb": Compression.GZIP, "brotli bomb": Compression.BROTLI}


def attack_of(name: str) -> bytes:
    """Bombs are packed when a test needs them."""
    if name not in BOMBS:
        return ATTACKS[name]
    return _packed(compress(bytes(64 * ONE_MIB), BOMBS[name]), BOMBS[name])


@pytest.mark.parametrize("greeted", [True, False], ids=["after Connect", "before Connect"])
@pytest.mark.parametrize("attack", [*ATTACKS, *BOMBS])
def test_an_attacker_is_closed_and_others_do_not_notice(broker: RunningBroker, attack: str, greeted: bool) -> None:
    form = dotnet()
    with form.connect(broker.port) as bystander:
        subscribe(bystander, "undisturbed")
        attacker = form.connect(broker.port) if greeted else Wire(broker.port)
        with contextlib.suppress(ConnectionError):
            attacker.socket.sendall(attack_of(attack))
        with contextlib.suppress(ConnectionResetError):
            assert attacker.is_closed()
        attacker.close()
        publish(bystander, "undisturbed", "m")
        bystander.expect(T.DELIVER, "m")
        form.ack(bystander, "m")


def test_a_stream_cut_inside_a_frame_disturbs_nobody(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port) as bystander:
        frame = encode_frame(encode_body(T.PUBLISH, "m", queue, b'"cut"'))
        for cut in range(1, len(frame), 3):
            with form.connect(broker.port) as wire:
                wire.socket.sendall(frame[:cut])
        assert wait_until(lambda: _connections(broker) == 1), "the broker has seen the others go"
        subscribe(bystander, queue)
        assert is_silent(bystander, form, queue), "a message that never came whole was never published"


def test_a_slow_sender_is_understood(wire: Wire, queue: str) -> None:
    frame = encode_frame(encode_body(T.PUBLISH, "m", queue, b'{"a":1}', {"k": "v"}))
    for at in range(len(frame)):
        wire.socket.sendall(frame[at : at + 1])
    wire.expect(T.PUBLISH_ACK, "m")


def test_good_frames_before_a_broken_one_still_count(broker: RunningBroker, form: Form, queue: str) -> None:
    with form.connect(broker.port) as wire:
        wire.socket.sendall(encode_frame(encode_body(T.PUBLISH, "m", queue, b"1")) + b"\0\0\0\1\0")
        assert {wire.expect_any().type, wire.expect_any().type} == {T.PUBLISH_ACK, T.ERROR}
        assert wire.is_closed()
    with form.connect(broker.port) as wire:
        subscribe(wire, queue)
        wire.expect(T.DELIVER, "m")
        form.ack(wire, "m")
