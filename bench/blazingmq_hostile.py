"""What hostile or broken BlazingMQ clients cost: after each attack how long the event loop was held at most, in
processor time of its thread and as on the machine of `tests/watchdog.py`, how much memory the broker has gained, and
whether another client's posts are still acknowledged.

    python -m bench.blazingmq_hostile [ATTACK …]
"""

import random
import socket
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from bench.common.watched import attack_each, watched_broker
from tests.interop.blazingmq.broker import ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from vibemq.protocols.blazingmq.codec.acks import build_acks, build_confirms
from vibemq.protocols.blazingmq.codec.events import HEARTBEAT_REQ, ControlCodec, EventType, control_event, event, padded
from vibemq.protocols.blazingmq.codec.messages import (
    ConfigureStream,
    ConsumerInfo,
    Expression,
    ExpressionVersion,
    StreamParameters,
    StreamSubscription,
)
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message

SETTINGS: dict[str, Any] = {
    "listeners": [{"port": 0}, {"port": 0, "protocol": "blazingmq"}],
    "http": {"enabled": False},
    "protocols": {
        "blazingmq": {
            "domains": {"d": {}, "poison": {"max_delivery_attempts": 2}, "fan": {"mode": "fanout", "app_ids": ["a"]}}
        }
    },
}
rng = random.Random(17)


def drain(client: ModelClient) -> None:
    """Until the broker hangs up, or has said nothing for a while."""
    client.socket.settimeout(1.0)
    with suppress(OSError):
        while client.socket.recv(1 << 18):
            pass


def flood(client: ModelClient, data: bytes) -> None:
    """Send, and read nothing; the broker may have had enough before the end."""
    client.socket.settimeout(2.0)
    with suppress(OSError):
        client.socket.sendall(data)


# -- attacks -----------------------------------------------------------------------------------------------------------


def schema_lengths(client: ModelClient) -> None:
    """Control messages whose lengths lie, nest, or repeat without end."""
    port = client.socket.getpeername()[1]
    bodies = [
        b"\x30\x84\xff\xff\xff\xff" + bytes(60_000),
        b"\x30\x80" * 30_000,
        b"\x30\x80" + b"\x80\x01\x01" * 20_000,
        b"\x30\x80\x80\x01\x01\xa1\x80\xb0\x80" + b"\xa1\x80\x30\x80\x80\x01\x00\x00\x00\x00\x00" * 5_000,
        b"\x30\x80\x80\x89" + b"\xff" * 60_000,
        b"\x30\x80\x9f" + b"\xff" * 60_000,
    ]
    texts = [b"[" * 60_000, b'{"rId":1,"openQueue":' + b'{"a":' * 10_000, b'{"rId":' + b"9" * 60_000 + b"}"]
    for codec, body in [(ControlCodec.BER, body) for body in bodies] + [(ControlCodec.JSON, text) for text in texts]:
        with ModelClient(port) as one:
            flood(one, control_event(codec, body))
            drain(one)


def mutated_requests(client: ModelClient) -> None:
    """Openings and configures with random bytes changed."""
    port = client.socket.getpeername()[1]
    for _ in range(60):
        with ModelClient(port) as one:
            sound = b"".join(one.sdk.open(f"bmq://d/m{number}", number)[1] for number in range(50))
            changed = bytearray(sound)
            for _ in range(4):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            flood(one, bytes(changed))
            one.socket.settimeout(0.05)
            drain(one)


def options_and_group_ids(client: ModelClient) -> None:
    """PUTs with option areas that lie, and with 10,000 group ids."""
    client.ask(client.sdk.open("bmq://d/options", 0, flags=WRITE))
    group = struct.pack("!I", 2 << 26 | 9) + padded(b"g" * 31)
    for options in (group, group * 10_000, b"\xff" * 4_000, bytes(4_000)):
        message = put_message(0, client.sdk.guid(), b"payload")
        plain = build_puts([message])[8:]
        first, second = struct.unpack_from("!II", plain)
        words = len(options) // 4
        head = struct.pack("!II", first + words, second + (words << 8))
        body = head + plain[8:36] + options + plain[36:]
        flood(client, event(EventType.PUT, [body * 20], 20 * len(body)))
    drain(client)


def properties_that_lie(client: ModelClient) -> None:
    client.ask(client.sdk.open("bmq://d/properties", 0, flags=WRITE))
    many = build_area([MessageProperty(f"p{number}", PropertyType.INT64, number) for number in range(255)])
    longest = build_area([MessageProperty("n" * 4_000 + str(n), PropertyType.STRING, "v" * 60_000) for n in range(16)])
    messages = []
    for area in (many, longest):
        for _ in range(200):
            changed = bytearray(area)
            for _ in range(3):
                changed[rng.randrange(min(len(changed), 1_536))] = rng.randrange(256)
            data = bytes(changed) + b"payload"
            messages.append(put_message(0, client.sdk.guid(), data, flags=3, schema_id=rng.choice((0, 1, 7))))
    flood(client, build_puts(messages))
    drain(client)


def bombs(client: ModelClient) -> None:
    """Payloads that decompress to a gigabyte, and many to just what is allowed."""
    client.ask(client.sdk.open("bmq://d/bombs", 0, flags=WRITE))
    press = zlib.compressobj(9)
    gigabyte = b"".join([*(press.compress(bytes(1 << 20)) for _ in range(1_024)), press.flush()])
    allowed = zlib.compress(bytes(15 << 20), 9)
    empty = zlib.compressobj(0)
    blocks = b"".join([empty.compress(b"x"), *(empty.flush(zlib.Z_FULL_FLUSH) for _ in range(60_000)), empty.flush()])
    for data in (gigabyte, blocks, *[allowed] * 6):
        flood(client, build_puts([put_message(0, client.sdk.guid(), data, compression=1) for _ in range(2)]))
    drain(client)


def acks_from_a_client(client: ModelClient) -> None:
    flood(client, build_acks([(0, 0, bytes([64] * 16), 0)] * 10_000) * 200)
    drain(client)


def confirms_of_nothing(client: ModelClient) -> None:
    client.ask(client.sdk.open("bmq://d/confirms", 0, flags=READ))
    many = build_confirms([(0, rng.randbytes(16), 0) for _ in range(300_000)])
    flood(client, many + b"".join(build_confirms([(n, rng.randbytes(16), n)]) for n in range(30_000)))
    drain(client)


def heartbeats(client: ModelClient) -> None:
    flood(client, HEARTBEAT_REQ * 1_000_000)


def acks_that_nobody_reads(client: ModelClient) -> None:
    client.ask(client.sdk.open("bmq://d/unread", 0, flags=WRITE))
    for _ in range(100):
        flood(client, build_puts([put_message(0, client.sdk.guid(), b"x" * 64) for _ in range(1_000)]))


def posts_in_short_runs(client: ModelClient) -> None:
    """Of two sizes that take turns, four of each: as many runs as can be, and each as short as can be."""
    client.ask(client.sdk.open("bmq://d/runs", 0, flags=WRITE))
    for _ in range(20):
        data = b"".join(
            build_puts([put_message(0, client.sdk.guid(), bytes(size))]) for size in (1, 9) * 500 for _ in range(4)
        )
        flood(client, data)
    drain(client)


def pushes_that_nobody_reads(client: ModelClient) -> None:
    client.ask(client.sdk.open("bmq://d/stuck", 0))
    for _ in range(30):
        client.post_and_wait(0, *[b"x" * 1_000] * 1_000)
    client.say(client.sdk.configure(0, messages=1 << 40, size=1 << 40)[1])
    client.socket.settimeout(2.0)
    with suppress(OSError):
        client.socket.recv(1)


def many_queues(client: ModelClient) -> None:
    """10,000 queues of one connection, which is then lost."""
    for first in range(0, 10_000, 500):
        opened = [client.sdk.open(f"bmq://d/many{number}", number, flags=WRITE) for number in range(first, first + 500)]
        client.say(b"".join(data for _, data in opened))
        last = opened[-1][0]
        client.until(partial(client.sdk.got.responses.get, last))
    refused = client.ask(client.sdk.open("bmq://d/one-more", 10_000, flags=WRITE))
    assert "may open" in str(refused), refused


def many_applications(client: ModelClient) -> None:
    """9,999 subIds of one queue, opened, configured and left with a disconnect."""
    opened = [client.sdk.open("bmq://fan/apps", 0, flags=READ, sub_id=n, app_id="a" + str(n)) for n in range(1, 10_000)]
    client.say(b"".join(data for _, data in opened))
    client.until(lambda: opened[-1][0] in client.sdk.got.responses)
    assert client.sdk.queues, client.sdk.got.responses[opened[0][0]]
    configured = [client.sdk.configure(0, app_id="a" + str(n)) for n in range(1, 2_000)]
    client.say(b"".join(data for _, data in configured))
    client.until(lambda: configured[-1][0] in client.sdk.got.responses)
    client.disconnect()


def churn(client: ModelClient) -> None:
    """One queue is opened and closed 3,000 times in one go."""
    handle = [client.sdk.open("bmq://d/churn", 0, flags=WRITE)[1]]
    client.ask(client.sdk.open("bmq://d/churn", 0, flags=WRITE))
    close = client.sdk.close(0, flags=WRITE)[1]
    flood(client, b"".join([*handle, close, close] * 3_000))
    drain(client)


def expressions(client: ModelClient) -> None:
    """Configures of 64 subscriptions, each with the longest expression, one behind the other."""
    client.open_reader("bmq://d/expressions", flags=READ)
    text = " && ".join(["p > 1"] * 10)
    info = (ConsumerInfo(max_unconfirmed_messages=1, max_unconfirmed_bytes=1),)
    stream = client.sdk.queues[0].streams[0]
    asked = []
    for number in range(60):
        subscriptions = tuple(
            StreamSubscription(
                s_id=64 * number + n,
                expression=Expression(version=ExpressionVersion.E_VERSION_1, text=text),
                consumers=info,
            )
            for n in range(64)
        )
        parameters = StreamParameters(subscriptions=subscriptions)
        asked.append(client.sdk.request(ConfigureStream(q_id=0, stream_parameters=parameters), stream))
    client.say(b"".join(data for _, data in asked))
    client.until(lambda: asked[-1][0] in client.sdk.got.responses)


def two_with_one_id(client: ModelClient) -> None:
    """Two clients with the same ids, whose GUIDs are the same."""
    port = client.socket.getpeername()[1]
    with ModelClient(port) as other:
        other.reconnect()
        other.sdk.client_id = client.sdk.client_id
        for one in (client, other):
            one.ask(one.sdk.open("bmq://d/twins", 0, flags=WRITE))
        for _ in range(20):
            for one in (client, other):
                one.post_and_wait(0, *[b"x"] * 500)


ATTACKS: tuple[Callable[[ModelClient], None], ...] = (
    *(schema_lengths, mutated_requests, options_and_group_ids, properties_that_lie, bombs, acks_from_a_client),
    *(confirms_of_nothing, heartbeats, acks_that_nobody_reads, posts_in_short_runs, pushes_that_nobody_reads),
    *(many_queues, many_applications, churn, expressions, two_with_one_id),
)


def one_attack(port: int, attack: Callable[[ModelClient], None]) -> None:
    """By a client that is then lost."""
    with ModelClient(port) as client:
        attack(client)
        with suppress(OSError):
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def main() -> None:
    wanted = sys.argv[1:]
    with watched_broker(**SETTINGS) as broker:
        port = broker.ports[1]
        witness = ModelClient(port)
        witness.ask(witness.sdk.open("bmq://d/witness", 0, flags=WRITE))
        chosen = [each for each in ATTACKS if not wanted or each.__name__ in wanted]
        attacks = [(each.__name__, partial(one_attack, port, each)) for each in chosen]
        attack_each(broker, attacks, partial(witness.post_and_wait, 0, b"still here"))


if __name__ == "__main__":
    main()
