"""What the real Python SDK, which is the C++ one inside, is put through. Each check is a process of its own: a mistake
of the broker ends it with a signal.

    python -m tests.interop.blazingmq.checks NAME ADDRESS [ARGUMENT ...]
"""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import blazingmq
from blazingmq import (
    AckStatus,
    CompressionAlgorithmType,
    Message,
    MessageHandle,
    PropertyType,
    QueueOptions,
    Session,
    session_events,
)

WAIT_S = 60.0
PRIORITY, FANOUT, BROADCAST = "bmq.test.mmap.priority", "bmq.test.mmap.fanout", "bmq.test.mem.broadcast"
_changed = threading.Condition()
RECONNECT_S = 180.0
"""After each connection that is lost within two minutes of its beginning the SDK waits up to twice as long as before,
from half a second to a minute."""


def until(holds: Callable[[], Any], wait_s: float = WAIT_S) -> None:
    with _changed:
        assert _changed.wait_for(holds, wait_s), f"{holds} did not come true"


class Client:
    """A session that keeps what comes."""

    def __init__(self, address: str, *, confirms: bool = True, **options: Any) -> None:
        self.confirms = confirms
        self.messages: list[Message] = []
        self.handles: list[MessageHandle] = []
        self.acks: list[blazingmq.Ack] = []
        self.events: list[session_events.SessionEvent] = []
        self.session = Session(self._on_event, self._on_message, broker=address, timeout=WAIT_S, **options)

    def _on_event(self, event: session_events.SessionEvent) -> None:
        with _changed:
            self.events.append(event)
            _changed.notify_all()

    def _on_message(self, message: Message, handle: MessageHandle) -> None:
        with _changed:
            self.messages.append(message)
            self.handles.append(handle)
            if self.confirms:
                _confirm(handle)
            _changed.notify_all()

    def on_ack(self, ack: blazingmq.Ack) -> None:
        with _changed:
            self.acks.append(ack)
            _changed.notify_all()

    def post(self, uri: str, *payloads: bytes, **how: Any) -> None:
        """And wait for the ACKs."""
        wanted = len(self.acks) + len(payloads)
        for payload in payloads:
            self.session.post(uri, payload, on_ack=self.on_ack, **how)
        until(lambda: len(self.acks) >= wanted)

    @property
    def payloads(self) -> list[bytes]:
        return [message.data for message in self.messages]

    def pushed(self, count: int) -> list[bytes]:
        until(lambda: len(self.messages) >= count)
        return self.payloads

    def has(self, kind: type) -> bool:
        return any(isinstance(event, kind) for event in self.events)


def _confirm(handle: MessageHandle) -> None:
    """A confirm fails while the broker is away. The message comes again; but an exception of this callback would have
    the Python SDK skip the messages behind it in the same event, which then come again behind newer ones."""
    try:
        handle.confirm()
    except blazingmq.Error as error:
        if "NOT_CONNECTED" not in str(error):
            raise


def uri_of(domain: str, name: str) -> str:
    return f"bmq://{domain}/{name}-{os.getpid()}"


def session(address: str) -> None:
    for _ in range(3):
        client = Client(address)
        until(lambda client=client: client.has(session_events.Connected))
        client.session.stop()
        until(lambda client=client: client.has(session_events.Disconnected))
    with Session(lambda event: None, broker=address, timeout=WAIT_S) as other:
        other.open_queue(uri_of(PRIORITY, "session"), write=True)
        assert not isinstance(other, Client)


def post_and_ack(address: str) -> None:
    client, uri = Client(address), uri_of(PRIORITY, "ack")
    client.session.open_queue(uri, read=True, write=True)
    client.post(uri, *(b"%d" % number for number in range(2_000)))
    assert {ack.status for ack in client.acks} == {AckStatus.SUCCESS}
    assert client.pushed(2_000) == [b"%d" % number for number in range(2_000)]
    assert [ack.guid for ack in client.acks] == [message.guid for message in client.messages]
    assert client.messages[0].queue_uri == uri
    client.session.close_queue(uri)
    client.session.stop()


def properties(address: str) -> None:
    client, uri = Client(address), uri_of(PRIORITY, "properties")
    client.session.open_queue(uri, read=True, write=True)
    values: dict[str, Any] = {
        "bool": True,
        "no": False,
        "char": b"\xff",
        "short": -(1 << 15),
        "int": (1 << 31) - 1,
        "long": -(1 << 63),
        "text": "grüße \N{SNOWMAN}",
        "empty": "",
        "binary": bytes(range(256)),
        "nothing": b"",
        "vibemq-types": "mine",
        "priority": "high",
        "n" * 200: 7,
    }
    types = {
        "char": PropertyType.CHAR,
        "short": PropertyType.SHORT,
        "int": PropertyType.INT32,
        "long": PropertyType.INT64,
        "bool": PropertyType.BOOL,
    }
    wanted = {"nothing": PropertyType.BINARY, "empty": PropertyType.STRING, **types}
    client.post(uri, b"first", properties=values, property_type_overrides=types)
    client.post(uri, b"second", properties={"other": 1})
    client.post(uri, b"third")
    client.post(uri, b"fourth" * 1_000, properties=values, property_type_overrides=types)
    client.pushed(4)
    first, second, third, fourth = client.messages
    assert first.properties == values == fourth.properties
    assert {name: first.property_types[name] for name in wanted} == wanted
    assert second.properties == {"other": 1}
    assert third.properties == {}
    client.session.stop()


def compression(address: str) -> None:
    uri = uri_of(PRIORITY, "compression")
    client = Client(address, message_compression_algorithm=CompressionAlgorithmType.ZLIB)
    client.session.open_queue(uri, read=True, write=True)
    payloads = [b"x" * 1_024, b"abc" * 10_000, os.urandom(3_000), b"y" * 4_000_000]
    for payload in payloads:
        client.post(uri, payload)
        client.post(uri, payload, properties={"size": len(payload)})
    assert client.pushed(8) == [payload for payload in payloads for _ in range(2)]
    assert client.messages[1].properties == {"size": 1_024}
    client.session.stop()


def priorities(address: str) -> None:
    uri = uri_of(PRIORITY, "priorities")
    low, high, same = (Client(address) for _ in range(3))
    low.session.open_queue(uri, read=True, options=QueueOptions(consumer_priority=1))
    high.session.open_queue(uri, read=True, write=True, options=QueueOptions(consumer_priority=5))
    high.post(uri, *[b"x"] * 10)
    high.pushed(10)
    same.session.open_queue(uri, read=True, options=QueueOptions(consumer_priority=5))
    for number in range(1, 11):
        # One by one: those that come together are shared in blocks, and how many come together is chance.
        high.post(uri, b"x")
        until(lambda number=number: len(high.messages) + len(same.messages) == 10 + number)
    assert len(same.messages) == 5
    assert low.payloads == []
    high.session.stop()
    same.session.stop()
    writer = Client(address)
    writer.session.open_queue(uri, write=True)
    writer.post(uri, b"y")
    assert low.pushed(1) == [b"y"]
    for client in (low, writer):
        client.session.stop()


def fanout(address: str) -> None:
    uri = uri_of(FANOUT, "fanout")
    writer, reader = Client(address), Client(address)
    writer.session.open_queue(uri, write=True)
    writer.post(uri, b"1", b"2")
    for app_id in ("foo", "bar", "baz"):
        reader.session.open_queue(f"{uri}?id={app_id}", read=True)
    reader.pushed(6)
    found = sorted((message.queue_uri, message.data) for message in reader.messages)
    assert found == sorted((f"{uri}?id={app_id}", data) for app_id in ("foo", "bar", "baz") for data in (b"1", b"2"))
    reader.session.close_queue(f"{uri}?id=foo")
    writer.post(uri, b"3")
    reader.pushed(8)
    reader.session.open_queue(f"{uri}?id=foo", read=True)
    reader.pushed(9)
    assert (reader.messages[-1].queue_uri, reader.messages[-1].data) == (f"{uri}?id=foo", b"3")
    both = Client(address)
    both.session.open_queue(uri, write=True)
    both.session.open_queue(f"{uri}?id=foo", read=True)
    for client in (writer, reader, both):
        client.session.stop()


def broadcast(address: str) -> None:
    uri = uri_of(BROADCAST, "broadcast")
    writer, one, two = (Client(address) for _ in range(3))
    writer.session.open_queue(uri, write=True)
    writer.post(uri, b"nobody")
    one.session.open_queue(uri, read=True, options=QueueOptions(max_unconfirmed_messages=1))
    two.session.open_queue(uri, read=True)
    writer.post(uri, b"1", b"2", b"3")
    assert one.pushed(3) == two.pushed(3) == [b"1", b"2", b"3"]
    for client in (one, two, writer):
        client.session.stop()


def redelivery(address: str) -> None:
    uri = uri_of(PRIORITY, "redelivery")
    client = Client(address, confirms=False)
    client.session.open_queue(uri, read=True, write=True)
    client.post(uri, *(b"%d" % number for number in range(10)))
    client.pushed(10)
    client.handles[3].confirm()
    left = [b"%d" % number for number in range(10) if number != 3]
    client.session.close_queue(uri)
    client.messages.clear()
    client.session.open_queue(uri, read=True)
    assert client.pushed(9) == left
    client.session.stop()
    again = Client(address)
    again.session.open_queue(uri, read=True)
    assert again.pushed(9) == left
    again.session.stop()


def reconfigure(address: str) -> None:
    uri = uri_of(PRIORITY, "reconfigure")
    client, writer = Client(address, confirms=False), Client(address)
    client.session.open_queue(uri, read=True, options=QueueOptions(max_unconfirmed_messages=2))
    writer.session.open_queue(uri, write=True)
    writer.post(uri, *(b"%d" % number for number in range(10)))
    client.pushed(2)
    client.session.configure_queue(uri, QueueOptions(max_unconfirmed_messages=0))
    client.session.configure_queue(uri, QueueOptions(max_unconfirmed_messages=4))
    client.pushed(4)
    assert client.session.get_queue_options(uri).max_unconfirmed_messages == 4
    client.session.configure_queue(uri, QueueOptions(max_unconfirmed_messages=100, max_unconfirmed_bytes=1 << 20))
    assert client.pushed(10) == [b"%d" % number for number in range(10)]
    for handle in client.handles:
        handle.confirm()
    client.confirms = True
    stop = threading.Event()

    def post_on() -> None:
        # Each waits for its ACKs, or a consumer of 1 to 50 messages would work off tens of thousands at the end.
        while not stop.is_set():
            writer.post(uri, *[b"x" * 100] * 5)

    posting = threading.Thread(target=post_on)
    posting.start()
    for number in range(200):
        limit = 1 + number % 50
        client.session.configure_queue(uri, QueueOptions(max_unconfirmed_messages=limit, consumer_priority=number % 3))
    stop.set()
    posting.join()
    client.session.configure_queue(uri, QueueOptions())
    writer.post(uri, b"last")
    until(lambda: client.messages[-1].data == b"last")
    client.session.close_queue(uri)
    for other in (client, writer):
        other.session.stop()


def quotas(address: str) -> None:
    client, uri = Client(address), uri_of("limited", "quota")
    client.session.open_queue(uri, write=True)
    client.post(uri, *[b"x"] * 4)
    assert [ack.status for ack in client.acks] == [AckStatus.SUCCESS] * 3 + [AckStatus.LIMIT_MESSAGES]
    other = uri_of("limited_bytes", "quota")
    client.session.open_queue(other, write=True)
    client.post(other, b"x" * 100, b"x" * 4_000)
    assert [ack.status for ack in client.acks[4:]] == [AckStatus.SUCCESS, AckStatus.LIMIT_BYTES]
    client.session.stop()


def mistakes(address: str) -> None:
    client = Client(address)
    for uri, words in (
        ("bmq://nowhere/q", "UNKNOWN"),
        (f"bmq://{FANOUT}/q", "UNKNOWN"),
        (f"bmq://{PRIORITY}/q?id=foo", "UNKNOWN"),
    ):
        with pytest.raises(blazingmq.Error, match=words):
            client.session.open_queue(uri, read=True)
    uri = uri_of(PRIORITY, "mistakes")
    client.session.open_queue(uri, read=True)
    for wrong in (
        lambda: client.session.open_queue(uri, read=True),
        lambda: client.session.post(uri, b"read only"),
        lambda: client.session.close_queue("bmq://bmq.test.mmap.priority/other"),
    ):
        with pytest.raises(blazingmq.Error):
            wrong()
    client.session.close_queue(uri)
    client.session.stop()


def die_over_messages(address: str, uri: str) -> None:
    """A consumer that takes one message with it."""
    client = Client(address, confirms=False)
    client.session.open_queue(uri, read=True, options=QueueOptions(max_unconfirmed_messages=1))
    client.pushed(1)
    print(client.messages[0].data.decode(), flush=True)
    os._exit(0)


def post_through_deaths(address: str, uri: str, count: str, first: str = "0") -> None:
    """Post numbered messages while the broker dies and comes back; say when all are acknowledged."""
    client = Client(address)
    client.session.open_queue(uri, write=True)
    for number in range(int(count)):
        client.session.post(uri, b"%d" % (int(first) + number), on_ack=client.on_ack)
        if number % 100 == 99:
            # No faster than the broker takes them, so that it dies in the middle of it.
            until(lambda number=number: len(client.acks) > number - 1_000, RECONNECT_S)
    until(lambda: len(client.acks) == int(count), RECONNECT_S)
    assert {ack.status for ack in client.acks} == {AckStatus.SUCCESS}
    lost = sum(isinstance(event, session_events.ConnectionLost) for event in client.events)
    restored = sum(isinstance(event, session_events.StateRestored) for event in client.events)
    print(f"{lost} {restored}", flush=True)
    client.session.stop()


def consume_through_deaths(address: str, uri: str, last: str) -> None:
    """Confirm everything, and print each message at its first coming, until the last one has come."""
    _consume(Client(address), uri, last)


def _consume(client: Client, uri: str, last: str) -> None:
    client.session.open_queue(uri, read=True)
    seen, new = 0, [b""]
    while last.encode() not in new:
        until(lambda seen=seen: len(client.messages) > seen, RECONNECT_S)
        with _changed:
            new = client.payloads[seen:]
        seen += len(new)
        print(*(payload.decode() for payload in new), sep="\n", flush=True)
    client.session.stop()


class SlowClient(Client):
    """It keeps its first message until it is told to go on, and what comes behind it waits in the SDK."""

    def _on_message(self, message: Message, handle: MessageHandle) -> None:
        if not self.messages:
            print("held", flush=True)
            sys.stdin.readline()
        super()._on_message(message, handle)


def consume_behind(address: str, uri: str, last: str) -> None:
    """Like `consume_through_deaths`; what was pushed before the death is looked at after it."""
    _consume(SlowClient(address), uri, last)


def run(arguments: Sequence[str]) -> None:
    name, *others = arguments
    globals()[name](*others)


CHECKS = (
    session,
    post_and_ack,
    properties,
    compression,
    priorities,
    fanout,
    broadcast,
    redelivery,
    reconfigure,
    quotas,
    mistakes,
)


if __name__ == "__main__":
    run(sys.argv[1:])
