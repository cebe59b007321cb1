"""One queue, several protocols: BlazingMQ, native and OCaml clients exchange messages, and dead letters go round."""

import subprocess
import sys
import zlib
from collections.abc import Iterator
from uuid import uuid4

import pytest

import vibemq.sync
from tests.interop.blazingmq.broker import BROADCAST, DOMAINS, FANOUT, PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.interop.omq import OmqWire
from tests.waiting import WAIT_S, wait_until
from vibemq.protocols.blazingmq.codec.guid import guid_text
from vibemq.protocols.blazingmq.codec.properties import (
    SCHEMA_NONE,
    MessageProperty,
    PropertyType,
    build_area,
    parse_area,
)
from vibemq.protocols.blazingmq.codec.push import PushMessage
from vibemq.protocols.blazingmq.codec.put import ACK_REQUESTED, MESSAGE_PROPERTIES, PutMessage, build_puts, put_message

pytestmark = pytest.mark.slow

MORE = """
[protocols.blazingmq.domains.poison]
max_delivery_attempts = 1

[[listeners]]
protocol = "omq"
port = 0
"""
TYPED = [
    MessageProperty("region", PropertyType.STRING, "eu"),
    MessageProperty("total", PropertyType.INT64, 250),
    MessageProperty("paid", PropertyType.BOOL, True),
    MessageProperty("note", PropertyType.STRING, ""),
    MessageProperty("priority", PropertyType.SHORT, -2),
    MessageProperty("raw", PropertyType.BINARY, b"\0\xff"),
]
AREA = build_area(TYPED)
WITH_PROPERTIES = ACK_REQUESTED | MESSAGE_PROPERTIES


class ThreeListeners(BlazingmqBroker):
    """With a listener of the OCaml protocol beside the others."""

    @property
    def omq_port(self) -> int:
        return self.ports["omq"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeListeners]:
    process = ThreeListeners(tmp_path_factory.mktemp("crossing"), domains=DOMAINS + MORE)
    process.start()
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def client(broker: ThreeListeners) -> Iterator[ModelClient]:
    with ModelClient(broker.bmq_port) as connected:
        yield connected


@pytest.fixture
def mq(broker: ThreeListeners) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url) as connected:
        yield connected


def new_queue(domain: str = PRIORITY) -> tuple[str, str]:
    """(its URI, its name)."""
    name = f"q-{uuid4().hex[:12]}"
    return f"bmq://{domain}/{name}", f"{domain}..{name}"


def post(client: ModelClient, *messages: PutMessage) -> None:
    client.sdk.unacked.update((message.guid, message) for message in messages)
    client.say(build_puts(messages))
    client.until(lambda: not client.sdk.unacked)
    assert {status for _, status in client.sdk.got.acks} == {0}


def is_empty(mq: vibemq.sync.Client, queue: str) -> bool:
    info = mq.queue_info(queue)
    return info is not None and info.ready == info.in_flight == info.delayed == 0


def properties_of(push: PushMessage) -> tuple[list[tuple[str, PropertyType, object]], bytes]:
    """(properties, payload)."""
    properties, at = parse_area(push.data, push.schema_id)
    return [tuple(one) for one in properties], push.data[at:]


def payload_of(push: PushMessage) -> bytes:
    return properties_of(push)[1] if push.flags & MESSAGE_PROPERTIES else push.data


def test_a_native_consumer_reads_what_an_sdk_has_posted(client: ModelClient, mq: vibemq.sync.Client) -> None:
    uri, queue = new_queue()
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    guid = client.sdk.guid()
    body = b'{"order": 7}' * 200
    post(
        client,
        put_message(0, guid, AREA + zlib.compress(body), flags=WITH_PROPERTIES, compression=1, schema_id=3),
    )
    [message] = mq.fetch(queue, timeout=WAIT_S)
    assert message.id == guid_text(guid)
    assert message.payload == body
    assert {key: message.headers.get(key) for key in ("region", "total", "paid", "raw")} == {
        "region": "eu",
        "total": "250",
        "paid": "true",
        "raw": "AP8=",
    }
    assert message.priority in (None, "normal"), "a property of that name means nothing to the broker"


def test_an_sdk_reads_what_a_native_publisher_has_sent(client: ModelClient, mq: vibemq.sync.Client) -> None:
    uri, queue = new_queue()
    client.open_reader(uri, flags=READ)
    mq.publish(queue, b"three hats", headers={"region": "us", "city": "Genève"})
    client.pushed(1)
    [push] = client.sdk.got.pushes
    found, payload = properties_of(push)
    assert payload == b"three hats"
    assert {("city", PropertyType.STRING, "Genève"), ("region", PropertyType.STRING, "us")} <= set(found)
    client.say(client.sdk.confirm(0, push.guid))
    wait_until(lambda: is_empty(mq, queue))


def test_an_sdk_gets_the_same_bytes_that_another_has_posted(client: ModelClient) -> None:
    uri, _ = new_queue()
    client.open_reader(uri, flags=READ | WRITE)
    data = AREA + b"two shirts"
    post(client, put_message(0, client.sdk.guid(), data, flags=WITH_PROPERTIES, schema_id=2))
    assert client.pushed(1) == [data]
    assert client.sdk.got.pushes[0].schema_id == SCHEMA_NONE


def test_an_ocaml_client_reads_the_payload(broker: ThreeListeners, client: ModelClient) -> None:
    uri, queue = new_queue()
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    with OmqWire(broker.omq_port) as ocaml:
        ocaml.subscribe(queue, "From_beginning")
        post(client, put_message(0, client.sdk.guid(), AREA + b"one scarf", flags=WITH_PROPERTIES, schema_id=1))
        assert next(ocaml.messages()).body == b"one scarf"


def test_consumers_of_three_protocols_share_a_queue(
    broker: ThreeListeners, client: ModelClient, mq: vibemq.sync.Client
) -> None:
    uri, queue = new_queue()
    client.open_reader(uri, flags=READ | WRITE, messages=50)
    with OmqWire(broker.omq_port) as ocaml, mq.subscribe(queue, prefetch=50) as native:
        ocaml.subscribe(queue, "From_current")
        half = [b"bmq %d" % number for number in range(60)]
        client.post_and_wait(0, *half)
        for number in range(60):
            mq.publish(queue, b"native %d" % number)
        # Each takes its turn, and nobody confirms: 120 messages for three.
        client.pushed(40)
        seen = [payload_of(push) for push in client.sdk.got.pushes]
        assert len(seen) == 40
        seen += [message.payload for _, message in zip(range(40), native, strict=False)]
        seen += [message.body for _, message in zip(range(40), ocaml.messages(), strict=False)]
    assert sorted(seen) == sorted([*half, *(b"native %d" % number for number in range(60))])


def test_an_application_of_a_fanout_is_a_group_for_native_consumers(
    client: ModelClient, mq: vibemq.sync.Client
) -> None:
    uri, queue = new_queue(FANOUT)
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    client.post_and_wait(0, b"for all")
    for app in ("foo", "bar"):
        [message] = mq.fetch(queue, group=app, timeout=WAIT_S)
        assert message.payload == b"for all"
    client.open_reader(uri, flags=READ, sub_id=1, app_id="baz")
    assert client.pushed(1) == [b"for all"]


def test_a_native_subscription_selects_by_typed_properties(client: ModelClient, mq: vibemq.sync.Client) -> None:
    uri, queue = new_queue()
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    small = build_area([TYPED[0], MessageProperty("total", PropertyType.INT64, 9)])
    with mq.subscribe(queue, where='region == "eu" && total > 100 && paid') as wanted:
        post(
            client,
            put_message(0, client.sdk.guid(), small + b"small", flags=WITH_PROPERTIES, schema_id=1),
            put_message(0, client.sdk.guid(), AREA + b"large", flags=WITH_PROPERTIES, schema_id=1),
        )
        message = next(iter(wanted))
        assert message.payload == b"large"
        message.ack()


def test_a_dead_letter_is_replayed_as_it_was_posted(
    broker: ThreeListeners, client: ModelClient, mq: vibemq.sync.Client
) -> None:
    uri, queue = new_queue("poison")
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    guid, data = client.sdk.guid(), AREA + b"deadly"
    post(client, put_message(0, guid, data, flags=WITH_PROPERTIES, schema_id=1))
    with ModelClient(broker.bmq_port) as victim:
        victim.open_reader(uri, flags=READ)
        assert victim.pushed(1) == [data]
    (letter,) = wait_until(lambda: mq.admin("dlq.list", queue=queue)["letters"])
    assert letter["reason"] == "max_attempts"
    program = [sys.executable, "-c", "from vibemq.cli import run_admin; run_admin()"]
    words = ["dlq", "replay", "--queue", queue, "--url", broker.url, "--json"]
    ended = subprocess.run([*program, *words], capture_output=True, text=True, timeout=WAIT_S)
    assert ended.returncode == 0, ended.stderr
    with ModelClient(broker.bmq_port) as reader:
        reader.open_reader(uri, flags=READ)
        reader.pushed(1)
        [push] = reader.sdk.got.pushes
        found, payload = properties_of(push)
        assert payload == b"deadly"
        assert push.guid == guid
        # A header without a value does not survive the replay as such: its property comes last.
        assert found == [tuple(one) for one in sorted(TYPED, key=lambda one: one.value == "")]
        reader.say(reader.sdk.confirm(0, guid))
        wait_until(lambda: is_empty(mq, queue))
    assert mq.admin("dlq.list", queue=queue)["letters"] == []


def test_a_reader_of_a_deleted_queue_opens_it_anew(broker: ThreeListeners, mq: vibemq.sync.Client) -> None:
    name = f"q-{uuid4().hex[:12]}"
    uri = f"bmq://{PRIORITY}/{name}"
    with ModelClient(broker.bmq_port) as client:
        client.open_reader(uri)
        mq.delete_queue(f"{PRIORITY}..{name}")
        client.sdk.hear(client.at_its_end())
        assert len(client.sdk.got.last_words) == 1
        client.reconnect()
        client.open_reader(uri, flags=READ | WRITE)
        client.post_and_wait(0, b"again")
        assert client.pushed(1) == [b"again"]


def test_a_broadcast_that_nobody_reads_is_kept_for_nobody(client: ModelClient, mq: vibemq.sync.Client) -> None:
    uri, queue = new_queue(BROADCAST)
    client.ask(client.sdk.open(uri, 0, flags=WRITE))
    client.post_and_wait(0, *[b"unheard"] * 100)
    wait_until(lambda: is_empty(mq, queue))
