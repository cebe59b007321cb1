"""BlazingMQ's protocol on a real broker and real sockets, by a client that dies of what a real SDK dies of."""

import random
import socket
import struct
import sys
from collections.abc import Iterable, Iterator
from uuid import uuid4

import pytest

import vibemq.sync
from tests.interop.blazingmq.broker import APPS, BROADCAST, FANOUT, PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.broker import DOMAINS as TEST_DOMAINS
from tests.interop.blazingmq.model_sdk import READ, WRITE, ModelSdk
from tests.waiting import wait_until
from vibemq.protocols.blazingmq.codec.acks import AckMessage, parse_acks
from vibemq.protocols.blazingmq.codec.control import decode_authentication, encode_authentication
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_REQ, ControlCodec, EventReader, EventType
from vibemq.protocols.blazingmq.codec.messages import (
    AdminCommand,
    AuthenticationRequest,
    AuthenticationResponse,
    ClientLanguage,
    CloseQueue,
    ConfigureStream,
    OpenQueueResponse,
    QueueHandleParameters,
    RequestStatus,
    StatusCategory,
    StreamParameters,
)
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area
from vibemq.protocols.blazingmq.codec.push import PushMessage
from vibemq.protocols.blazingmq.codec.put import PutMessage, build_puts, put_message

pytestmark = pytest.mark.slow

DOMAINS = """
[protocols.blazingmq.domains.limited]
max_messages = 3
[protocols.blazingmq.domains.limited_bytes]
max_bytes = 2000
[protocols.blazingmq.domains.poison]
max_delivery_attempts = 2
redelivery_delay_ms = 20
[protocols.blazingmq.domains."made.*"]
[protocols.blazingmq.domains."few.*"]
max_producers = 1
max_consumers = 1
max_queues = 1
[protocols.blazingmq.domains.forgetful]
deduplication_ms = 0
[protocols.blazingmq.domains.filtered]
mode = "fanout"
app_ids = ["some", "every"]
subscriptions = {some = "total > 2"}
[protocols.blazingmq.domains.native]
plain_names = true
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlazingmqBroker]:
    process = BlazingmqBroker(tmp_path_factory.mktemp("blazingmq"), domains=TEST_DOMAINS + DOMAINS)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def client(broker: BlazingmqBroker) -> Iterator[ModelClient]:
    with ModelClient(broker.bmq_port) as connected:
        yield connected


def new_uri(domain: str = PRIORITY) -> str:
    return f"bmq://{domain}/q-{uuid4().hex[:12]}"


def refused(answer: object) -> StatusCategory:
    assert isinstance(answer, RequestStatus)
    assert answer.message
    return answer.category


def test_posted_messages_are_acknowledged_pushed_and_confirmed(client: ModelClient) -> None:
    uri = new_uri()
    client.open_reader(uri, flags=READ | WRITE)
    client.post_and_wait(0, *(b"%d" % number for number in range(1_000)))
    assert [status for _, status in client.sdk.got.acks] == [0] * 1_000
    assert client.pushed(1_000) == [b"%d" % number for number in range(1_000)]
    client.say(client.sdk.confirm(0, *(push.guid for push in client.sdk.got.pushes)))
    client.disconnect()
    with ModelClient(client._port) as other:
        other.open_reader(uri, flags=READ | WRITE)
        other.post_and_wait(0, b"next")
        assert other.pushed(1) == [b"next"], "what was confirmed is gone"


def test_a_stream_of_posts_cut_anywhere_is_acknowledged_whole_and_in_order(client: ModelClient) -> None:
    """Most of it comes while a flush is under way, and is gathered by the kernel."""
    uri = new_uri()
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    rng = random.Random(5)
    data = b"".join(client.sdk.post(0, b"%d" % number) for number in range(3_000))
    at = 0
    while at < len(data):
        size = rng.choice((7, 300, 5_360, 70_000))
        client.say(data[at : at + size])
        at += size
    client.until(lambda: not client.sdk.unacked)
    assert [status for _, status in client.sdk.got.acks] == [0] * 3_000
    with ModelClient(client._port) as other:
        other.open_reader(uri, flags=READ)
        assert other.pushed(1_000) == [b"%d" % number for number in range(1_000)]


def test_posts_to_several_queues_in_one_event(client: ModelClient) -> None:
    uris = [new_uri() for _ in range(3)]
    for q_id, uri in enumerate(uris):
        client.open_reader(uri, q_id, flags=READ | WRITE)
    sdk = client.sdk
    messages = [put_message(number % 3, sdk.guid(), b"%d" % number) for number in range(30)]
    sdk.unacked.update((message.guid, message) for message in messages)
    client.say(build_puts(messages))
    client.pushed(30)
    for q_id in range(3):
        mine = [push.data for push in sdk.got.pushes if push.queue_id == q_id]
        assert mine == [b"%d" % number for number in range(q_id, 30, 3)]


def test_without_a_wish_for_it_there_is_no_ack(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE)
    client.say(client.sdk.post(0, b"silent", ack=False))
    client.post_and_wait(0, b"heard")
    assert client.pushed(2) == [b"silent", b"heard"]
    assert len(client.sdk.got.acks) == 1


def test_unconfirmed_messages_come_back_in_their_order_before_newer_ones(broker: BlazingmqBroker) -> None:
    uri = new_uri()
    for leave in ("close", "disconnect", "die"):
        with ModelClient(broker.bmq_port) as first, ModelClient(broker.bmq_port) as other:
            first.open_reader(uri, flags=READ | WRITE, messages=5)
            first.post_and_wait(0, *(b"%d" % number for number in range(8)))
            first.pushed(5)
            first.say(first.sdk.confirm(0, first.sdk.got.pushes[2].guid))
            first.pushed(6)
            if leave == "close":
                first.ask(first.sdk.configure(0, expressions=()))
                first.ask(first.sdk.close(0))
            elif leave == "disconnect":
                first.disconnect()
            else:
                first.socket.close()
            other.open_reader(uri)
            wanted = [b"%d" % number for number in range(8) if number != 2]
            assert other.pushed(7) == wanted, leave
            other.say(other.sdk.confirm(0, *(push.guid for push in other.sdk.got.pushes)))
            other.disconnect()


def test_a_close_without_deconfigure_gives_back_too(broker: BlazingmqBroker) -> None:
    uri = new_uri()
    with ModelClient(broker.bmq_port) as client:
        client.open_reader(uri, flags=READ | WRITE)
        client.post_and_wait(0, b"1", b"2")
        client.pushed(2)
        client.ask(client.sdk.close(0))
        client.sdk.got.pushes.clear()
        client.open_reader(uri, 1)
        assert client.pushed(2) == [b"1", b"2"]


def test_a_deconfigured_reader_keeps_its_messages_and_may_confirm_them(broker: BlazingmqBroker) -> None:
    uri = new_uri()
    with ModelClient(broker.bmq_port) as client, ModelClient(broker.bmq_port) as other:
        client.open_reader(uri, flags=READ | WRITE)
        client.post_and_wait(0, b"1", b"2")
        client.pushed(2)
        client.ask(client.sdk.configure(0, expressions=()))
        client.post_and_wait(0, b"3")
        other.open_reader(uri)
        assert other.pushed(1) == [b"3"]
        client.say(client.sdk.confirm(0, client.sdk.got.pushes[0].guid))
        client.ask(client.sdk.close(0))
        assert other.pushed(2) == [b"3", b"2"]


def test_limits_count_what_is_outstanding_over_a_reconfigure(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE, messages=3)
    client.post_and_wait(0, *(b"%d" % number for number in range(10)))
    client.pushed(3)
    for limit in (3, 2, 0):
        client.ask(client.sdk.configure(0, messages=limit))
    client.ask(client.sdk.configure(0, messages=5))
    assert client.pushed(5) == [b"0", b"1", b"2", b"3", b"4"]
    client.say(client.sdk.confirm(0, *(push.guid for push in client.sdk.got.pushes[:2])))
    client.pushed(7)
    client.ask(client.sdk.configure(0, messages=1000))
    assert client.pushed(10) == [b"%d" % number for number in range(10)]


def test_bytes_are_limited_and_may_be_overshot_by_one_message(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE, size=1)
    client.post_and_wait(0, b"a" * 500, b"b" * 500)
    client.pushed(1)
    client.say(client.sdk.confirm(0, client.sdk.got.pushes[0].guid))
    assert client.pushed(2) == [b"a" * 500, b"b" * 500]


def test_only_the_highest_priority_receives_and_nothing_spills_over(broker: BlazingmqBroker) -> None:
    uri = new_uri()
    with ModelClient(broker.bmq_port) as low, ModelClient(broker.bmq_port) as high:
        low.open_reader(uri, priority=1)
        high.open_reader(uri, flags=READ | WRITE, priority=2, messages=2)
        high.post_and_wait(0, b"1", b"2", b"3")
        high.pushed(2)
        # What is posted and answered behind it shows that nothing was on its way.
        low.ask(low.sdk.configure(0, priority=1))
        assert low.payloads() == []
        high.ask(high.sdk.configure(0, expressions=()))
        assert low.pushed(1) == [b"3"]


def test_every_application_of_a_fanout_gets_everything_from_the_beginning(broker: BlazingmqBroker) -> None:
    uri = new_uri(FANOUT)
    with ModelClient(broker.bmq_port) as writer, ModelClient(broker.bmq_port) as reader:
        writer.ask(writer.sdk.open(uri, 0, flags=WRITE))
        writer.post_and_wait(0, b"1", b"2")
        for number, app_id in enumerate(APPS, 1):
            reader.open_reader(uri, sub_id=number, app_id=app_id)
        assert sorted(reader.pushed(6)) == [b"1"] * 3 + [b"2"] * 3
        streams = reader.sdk.queues[0].streams
        for number in range(1, 4):
            assert [push.data for push in streams[number].unconfirmed.values()] == [b"1", b"2"]
        reader.say(reader.sdk.confirm(0, *list(streams[1].unconfirmed), sub_id=1))
        reader.ask(reader.sdk.close(0, flags=READ, sub_id=1))
        reader.ask(reader.sdk.close(0, flags=READ, sub_id=2))
        reader.sdk.got.pushes.clear()
        reader.open_reader(uri, sub_id=4, app_id="foo")
        reader.open_reader(uri, sub_id=5, app_id="bar")
        assert reader.pushed(2) == [b"1", b"2"], "of one application only"
        assert not streams[4].unconfirmed


def test_an_application_that_the_domain_does_not_know_gets_nothing(client: ModelClient) -> None:
    uri = new_uri(FANOUT)
    client.open_reader(uri, sub_id=1, app_id="unknown")
    client.open_reader(uri, sub_id=2, app_id="foo")
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    client.post_and_wait(0, b"1")
    assert client.pushed(1) == [b"1"]
    assert not client.sdk.queues[0].streams[1].unconfirmed


def test_a_broadcast_reaches_whoever_is_there(broker: BlazingmqBroker) -> None:
    uri = new_uri(BROADCAST)
    with ModelClient(broker.bmq_port) as one, ModelClient(broker.bmq_port) as two:
        one.ask(one.sdk.open(uri, 0, flags=WRITE))
        one.post_and_wait(0, b"nobody hears it")
        one.ask(one.sdk.open(uri, 0, flags=READ))
        one.ask(one.sdk.configure(0, messages=1))
        two.open_reader(uri)
        one.post_and_wait(0, b"1", b"2", b"3")
        assert one.pushed(3) == two.pushed(3) == [b"1", b"2", b"3"]


def test_a_broadcast_reaches_the_highest_priority_only(broker: BlazingmqBroker) -> None:
    uri = new_uri(BROADCAST)
    with ModelClient(broker.bmq_port) as low, ModelClient(broker.bmq_port) as high, ModelClient(broker.bmq_port) as too:
        low.open_reader(uri, priority=1)
        high.open_reader(uri, flags=READ | WRITE, priority=2)
        too.open_reader(uri, priority=2)
        high.post_and_wait(0, b"1")
        assert high.pushed(1) == too.pushed(1) == [b"1"]
        high.ask(high.sdk.configure(0, expressions=()))
        too.disconnect()
        high.post_and_wait(0, b"2")
        assert low.pushed(1) == [b"2"]


@pytest.mark.parametrize(
    ("uri", "how", "category"),
    [
        ("bmq://unknown/q", {}, StatusCategory.E_UNKNOWN),
        ("bmq://bad", {}, StatusCategory.E_REFUSED),
        (f"bmq://{FANOUT}/q", {}, StatusCategory.E_UNKNOWN),
        (f"bmq://{PRIORITY}/q", {"app_id": "foo", "sub_id": 1, "flags": READ}, StatusCategory.E_UNKNOWN),
        (f"bmq://{PRIORITY}/q", {"flags": 0}, StatusCategory.E_INVALID_ARGUMENT),
        (f"bmq://{PRIORITY}/q", {"flags": 1}, StatusCategory.E_INVALID_ARGUMENT),
        (f"bmq://{PRIORITY}/q", {"q_id": 0xFFFF_FFF6}, StatusCategory.E_INVALID_ARGUMENT),
        (f"bmq://{FANOUT}/q", {"app_id": "foo", "sub_id": 1, "flags": WRITE}, StatusCategory.E_INVALID_ARGUMENT),
    ],
)
def test_queues_that_cannot_be_opened(client: ModelClient, uri: str, how: dict, category: StatusCategory) -> None:
    sdk = client.sdk
    options = {"q_id": 0, "flags": READ | WRITE, **how}
    assert refused(client.ask(sdk.open(uri, options.pop("q_id"), **options))) is category
    client.open_reader(new_uri(), 9, flags=READ | WRITE)
    client.post_and_wait(9, b"the connection lives on")


def test_a_q_id_cannot_be_two_queues(client: ModelClient) -> None:
    client.ask(client.sdk.open(new_uri(), 0, flags=WRITE))
    answer = client.ask(client.sdk.open(new_uri(), 0, flags=WRITE))
    assert refused(answer) is StatusCategory.E_INVALID_ARGUMENT
    client.post_and_wait(0, b"1")


def test_a_domain_limits_what_all_its_clients_have_open(broker: BlazingmqBroker) -> None:
    domain = f"few.{uuid4().hex[:8]}"
    uri, other_uri = new_uri(domain), new_uri(domain)
    with ModelClient(broker.bmq_port) as one, ModelClient(broker.bmq_port) as two:
        one.open_reader(uri, flags=READ | WRITE)
        for wanted, flags in ((uri, WRITE), (uri, READ), (other_uri, READ)):
            assert refused(two.ask(two.sdk.open(wanted, 0, flags=flags))) is StatusCategory.E_UNKNOWN
        one.ask(one.sdk.configure(0, expressions=()))
        one.ask(one.sdk.close(0))
        two.open_reader(other_uri, flags=READ | WRITE)
        # The client is gone without a word.
        two.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        two.socket.close()
        wait_until(lambda: isinstance(one.ask(one.sdk.open(uri, 1, flags=WRITE)), OpenQueueResponse))
        one.post_and_wait(1, b"1")


def test_a_queue_is_closed_and_opened_again_in_one_go(client: ModelClient) -> None:
    sdk, uri = client.sdk, new_uri()
    client.open_reader(uri, flags=READ | WRITE)
    payloads = [b"%d" % number for number in range(300)]
    posts = sdk.post(0, *payloads)
    (closing, close), (opening, again) = sdk.close(0), sdk.open(uri, 0)
    message = put_message(0, sdk.guid(), b"behind")
    sdk.unacked[message.guid] = message
    client.say(posts + close + again + build_puts([message]))
    client.until(lambda: not sdk.unacked)
    assert list(sdk.got.responses)[-2:] == [closing, opening]
    assert len(sdk.got.acks) == 301
    before = len(sdk.got.pushes)
    client.ask(sdk.configure(0))
    assert sorted(client.pushed(before + 301)[before:]) == sorted(
        [b"%d" % number for number in range(300)] + [b"behind"]
    )


def test_requests_for_what_is_not_open(client: ModelClient) -> None:
    parameters = StreamParameters(subscriptions=())
    configure = client.sdk.request(ConfigureStream(q_id=5, stream_parameters=parameters))
    assert refused(client.ask(configure)) is StatusCategory.E_UNKNOWN
    handle = QueueHandleParameters(uri=new_uri(), q_id=5, flags=WRITE, write_count=1)
    assert refused(client.ask(client.sdk.request(CloseQueue(handle_parameters=handle), (None, None, 0))))
    client.open_reader(new_uri(), flags=READ | WRITE)
    other_application = client.sdk.request(
        ConfigureStream(q_id=0, stream_parameters=StreamParameters(app_id="foo", subscriptions=()))
    )
    assert refused(client.ask(other_application)) is StatusCategory.E_UNKNOWN


def test_what_is_not_supported_is_told(client: ModelClient) -> None:
    answer = client.ask(client.sdk.request(AdminCommand(command="HELP")))
    assert refused(answer) is StatusCategory.E_NOT_SUPPORTED


def test_a_domain_by_pattern_creates_its_queues(client: ModelClient) -> None:
    answer = client.ask(client.sdk.open("bmq://made.here/q", 0, flags=WRITE))
    assert isinstance(answer, OpenQueueResponse)
    assert answer.routing_configuration.flags == 2


def test_what_is_posted_again_is_stored_once_and_acknowledged(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE)
    sdk = client.sdk
    message = put_message(0, sdk.guid(), b"once")
    for _ in range(3):
        sdk.unacked[message.guid] = message
        client.say(build_puts([message]))
        client.until(lambda: not sdk.unacked)
    client.post_and_wait(0, b"behind it")
    assert client.pushed(2) == [b"once", b"behind it"]


def test_a_message_over_which_consumers_die_becomes_a_dead_letter(broker: BlazingmqBroker) -> None:
    uri = new_uri("poison")
    with ModelClient(broker.bmq_port) as writer:
        writer.ask(writer.sdk.open(uri, 0, flags=WRITE))
        writer.post_and_wait(0, b"poison", b"harmless")
    for ends_well in (True, False, True, False):
        with ModelClient(broker.bmq_port) as reader:
            reader.open_reader(uri, messages=1)
            assert reader.pushed(1) == [b"poison"]
            if ends_well:
                reader.disconnect()
    with ModelClient(broker.bmq_port) as reader:
        reader.open_reader(uri)
        assert reader.pushed(1) == [b"harmless"]


@pytest.mark.parametrize(("domain", "payload", "status"), [("limited", b"x", 1), ("limited_bytes", b"x" * 600, 2)])
def test_a_full_queue_refuses(client: ModelClient, domain: str, payload: bytes, status: int) -> None:
    client.ask(client.sdk.open(new_uri(domain), 0, flags=WRITE))
    client.post_and_wait(0, *[payload] * 4)
    assert [status for _, status in client.sdk.got.acks] == [0, 0, 0, status]
    client.say(client.sdk.post(0, payload, ack=False))
    client.until(lambda: len(client.sdk.got.acks) == 5)
    assert client.sdk.got.acks[-1][1] == status, "told although no ACK was asked for"


def test_messages_that_cannot_be_loaded_are_refused_alone(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE)
    sdk = client.sdk
    broken = [
        put_message(0, sdk.guid(), b"not zlib at all", compression=1),
        put_message(0, sdk.guid(), b"unknown", compression=5),
        put_message(0, sdk.guid(), b"\x1b\0\0\xff no area", flags=3, schema_id=1),
        put_message(0, bytes(16), b"zero GUID"),
    ]
    good = put_message(0, sdk.guid(), b"good")
    sdk.unacked[good.guid] = good
    client.say(build_puts([*broken, good]))
    client.until(lambda: len(sdk.got.acks) == 5)
    assert sorted(status for _, status in sdk.got.acks) == [0, 5, 5, 5, 5]
    assert client.pushed(1) == [b"good"]


def test_large_messages_pass_and_one_that_is_too_large_is_refused_alone(client: ModelClient) -> None:
    client.open_reader(new_uri(), flags=READ | WRITE)
    payloads = [b"a" * (3 << 20), b"b" * (17 << 20), b"c"]
    client.say(client.sdk.post(0, *payloads))
    client.until(lambda: len(client.sdk.got.acks) == 3)
    assert sorted(status for _, status in client.sdk.got.acks) == [0, 0, 5]
    assert client.pushed(2) == [payloads[0], payloads[2]]


def test_a_reader_may_not_post(client: ModelClient) -> None:
    client.open_reader(new_uri())
    client.say(client.sdk.post(0, b"1"))
    client.until(lambda: client.sdk.got.acks)
    assert client.sdk.got.acks[0][1] == 5


def test_what_is_posted_to_a_queue_that_is_not_open_is_dropped(client: ModelClient) -> None:
    client.say(client.sdk.post(7, b"1"))
    client.ask(client.sdk.open(new_uri(), 0, flags=WRITE))
    assert client.sdk.got.acks == []


def test_confirms_of_what_the_client_does_not_hold_are_ignored(client: ModelClient) -> None:
    uri = new_uri()
    client.open_reader(uri, flags=READ | WRITE)
    client.post_and_wait(0, b"1", b"2")
    client.pushed(2)
    first, second = (push.guid for push in client.sdk.got.pushes)
    client.say(client.sdk.confirm(0, first, first, bytes(16), b"\xff" * 16))
    client.ask(client.sdk.close(0))
    client.sdk.got.pushes.clear()
    client.open_reader(uri, 1)
    client.pushed(1)
    assert [push.guid for push in client.sdk.got.pushes] == [second]


def with_total(sdk: ModelSdk, total: int) -> PutMessage:
    area = build_area([MessageProperty("total", PropertyType.INT32, total)])
    message = put_message(0, sdk.guid(), area + b"%d" % total, flags=3, schema_id=1)
    sdk.unacked[message.guid] = message
    return message


def payloads_of(pushes: Iterable[PushMessage]) -> list[bytes]:
    return [push.data[4 * int.from_bytes(push.data[1:4], "big") :] for push in pushes]


def test_an_application_gets_what_its_subscription_matches(broker: BlazingmqBroker) -> None:
    with ModelClient(broker.bmq_port) as client:
        uri = new_uri("filtered")
        client.ask(client.sdk.open(uri, 0, flags=WRITE))
        areas = [build_area([MessageProperty("total", PropertyType.INT64, number)]) for number in range(6)]
        puts = [put_message(0, client.sdk.guid(), area, flags=3, schema_id=1) for area in areas]
        client.sdk.unacked.update((put.guid, put) for put in puts)
        client.say(build_puts(puts))
        for sub_id, app_id in enumerate(("some", "every"), 1):
            client.open_reader(uri, sub_id=sub_id, app_id=app_id)
        client.pushed(9)
        of_streams = [len(stream.unconfirmed) for stream in client.sdk.queues[0].streams.values()]
        assert of_streams == [3, 6]


def test_subscriptions_get_what_their_expressions_match(broker: BlazingmqBroker) -> None:
    uri = new_uri()
    with ModelClient(broker.bmq_port) as client, ModelClient(broker.bmq_port) as other:
        sdk = client.sdk
        client.open_reader(uri, flags=READ | WRITE, expressions=("total < 3", "total > 6"))
        client.say(build_puts([with_total(sdk, number) for number in range(10)]))
        client.pushed(6)
        assert sorted(payloads_of(sdk.got.pushes)) == [b"0", b"1", b"2", b"7", b"8", b"9"]
        by_subscription = {push.options: [] for push in sdk.got.pushes}  # type: dict[bytes, list[PushMessage]]
        for push in sdk.got.pushes:
            by_subscription[push.options].append(push)
        assert [payloads_of(pushes) for pushes in by_subscription.values()] == [[b"0", b"1", b"2"], [b"7", b"8", b"9"]]
        other.open_reader(uri, expressions=("total == 4",))
        other.pushed(1)
        assert payloads_of(other.sdk.got.pushes) == [b"4"]
        client.ask(client.sdk.configure(0))
        client.pushed(9)
        assert payloads_of(sdk.got.pushes[6:]) == [b"3", b"5", b"6"], "what matched nothing has waited"


@pytest.mark.parametrize("text", ["total >", "total = 3", '"a" +', "1 == 1", "x" * 200 + " > 1"])
def test_a_wrong_expression_is_refused_with_its_place(client: ModelClient, text: str) -> None:
    client.ask(client.sdk.open(new_uri(), 0))
    answer = client.ask(client.sdk.configure(0, expressions=(text,)))
    assert refused(answer) is StatusCategory.E_INVALID_ARGUMENT
    client.ask(client.sdk.configure(0))
    client.post_and_wait(0, b"1")
    assert client.pushed(1) == [b"1"]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems may not tell")
def test_clients_are_offered_segments_as_on_ethernet(broker: BlazingmqBroker, client: ModelClient) -> None:
    """An SDK whose writes do not fill a segment waits for the acknowledgement of each."""
    assert client.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) <= 1448
    with socket.create_connection(("127.0.0.1", broker.port)) as native:
        assert native.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG) > 1448


def test_heartbeats_are_answered(client: ModelClient) -> None:
    reader = EventReader(event_bytes_max=1000, control_bytes_max=1000)
    client.say(HEARTBEAT_REQ)
    reader.receive_data(client.socket.recv(8))
    assert [event.type for event in reader.read()] == [EventType.HEARTBEAT_RSP]


def test_a_java_client_speaks_json_and_gets_guids_and_its_correlation_ids(broker: BlazingmqBroker) -> None:
    sdk = ModelSdk(codec=ControlCodec.JSON, language=ClientLanguage.E_JAVA)
    with ModelClient(broker.bmq_port, sdk) as client:
        client.open_reader(new_uri(), flags=READ | WRITE)
        numbered = [put_message(0, bytes((0, 0, 1, n)) + bytes(12), b"%d" % n) for n in range(3)]
        client.say(build_puts(numbered))
        acks: list[AckMessage] = []
        sdk._acks = lambda event: acks.extend(parse_acks(event))  # type: ignore[method-assign]
        client.pushed(3)
        client.until(lambda: len(acks) == 3)
        assert [(ack.status, ack.correlation_id) for ack in acks] == [(0, 256), (0, 257), (0, 258)]
        assert [push.guid for push in sdk.got.pushes] == [ack.guid for ack in acks]


@pytest.mark.parametrize(
    ("request_", "category"),
    [
        (AuthenticationRequest(mechanism="anonymous"), StatusCategory.E_SUCCESS),
        (AuthenticationRequest(mechanism="BASIC", data=b"me:secret"), StatusCategory.E_SUCCESS),
        (AuthenticationRequest(mechanism="basic", data=b"me"), StatusCategory.E_INVALID_ARGUMENT),
        (AuthenticationRequest(mechanism="kerberos"), StatusCategory.E_NOT_SUPPORTED),
    ],
)
def test_authentication_comes_first(
    broker: BlazingmqBroker, request_: AuthenticationRequest, category: StatusCategory
) -> None:
    with ModelClient(broker.bmq_port, hello=False) as client:
        client.say(encode_authentication(ControlCodec.BER, request_))
        reader = EventReader(event_bytes_max=1_000, control_bytes_max=1_000)
        reader.receive_data(client.socket.recv(1_000))
        (event,) = reader.read()
        answer = decode_authentication(event)
        assert isinstance(answer, AuthenticationResponse)
        assert answer.status.category is category
        if category is StatusCategory.E_SUCCESS:
            client.greet()
            client.ask(client.sdk.open(new_uri(), 0, flags=WRITE))
        else:
            assert client.at_its_end() == b""


@pytest.mark.parametrize(
    ("domain", "mode", "app_id"), [(PRIORITY, 1, ""), (BROADCAST, 0, ""), (BROADCAST, 1, ""), (FANOUT, 0, "foo")]
)
def test_a_queue_of_another_mode_than_its_domain_is_not_read(
    broker: BlazingmqBroker, client: ModelClient, domain: str, mode: int, app_id: str
) -> None:
    uri = new_uri(domain)
    with vibemq.sync.connect(broker.url) as mq:
        mq.create_queue(uri.removeprefix("bmq://").replace("/", ".."), mode=mode)
    answer = client.ask(client.sdk.open(uri, 0, flags=READ, sub_id=1 if app_id else None, app_id=app_id))
    assert refused(answer) is StatusCategory.E_REFUSED
    assert "mode is" in getattr(answer, "message", "")
    if domain != FANOUT:
        client.ask(client.sdk.open(uri, 0, flags=WRITE))
        client.post_and_wait(0, b"whoever reads it")


def test_a_broadcast_reaches_one_subscription_of_each_reader(broker: BlazingmqBroker) -> None:
    uri = new_uri(BROADCAST)
    with ModelClient(broker.bmq_port) as one, ModelClient(broker.bmq_port) as other:
        one.open_reader(uri, flags=READ | WRITE, expressions=("total > 1", "total > 3", "total == 0"))
        other.open_reader(uri, expressions=("total > 1",))
        one.say(build_puts([with_total(one.sdk, number) for number in range(6)]))
        one.pushed(5)
        other.pushed(4)
        one.until(lambda: not one.sdk.unacked)
        one.ask(one.sdk.configure(0, expressions=()))
        assert sorted(payloads_of(one.sdk.got.pushes)) == [b"0", b"2", b"3", b"4", b"5"]


def test_the_order_of_the_queue_holds_across_the_subscriptions_of_a_reader(client: ModelClient) -> None:
    client.ask(client.sdk.open(new_uri(), 0, flags=READ | WRITE))
    client.say(build_puts([with_total(client.sdk, number) for number in range(700)]))
    client.until(lambda: not client.sdk.unacked)
    client.ask(client.sdk.configure(0, expressions=("total % 3 == 0", "total % 3 > 0", "total == 1")))
    client.pushed(700)
    assert payloads_of(client.sdk.got.pushes) == [b"%d" % number for number in range(700)]
