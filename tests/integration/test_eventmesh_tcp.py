"""EventMesh over TCP on a real broker and real sockets; the native client stands on the other side of the queue.

The broker's time stands still until a test moves it.
"""

import asyncio
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.integration.conditions import run
from tests.interop.eventmesh import DIALECTS, MeshFrame, MeshWire
from tests.interop.omq import OmqWire
from tests.names import queue_named_after
from tests.waiting import wait_until
from vibemq.auth.passwords import hash_password
from vibemq.config import Auth, Http, Listener, Permission, Settings, StorageChoice, User
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.slow

WAIT_S = 60
ASYNC, SYNC, ALL = "ASYNC_MESSAGE_TO_CLIENT", "REQUEST_TO_CLIENT", "BROADCAST_MESSAGE_TO_CLIENT"


class MeshBroker:
    """A broker in a thread of its own, so that the tests can be plain blocking sockets."""

    def __init__(self, folder: Path, auth: Auth | None = None, *, provider: str = "sqlite", **listener: Any) -> None:
        self._settings = Settings(
            data_dir=folder / "data",
            storage=StorageChoice(provider=provider),
            listeners=(
                Listener(protocol="native", port=0),
                Listener(protocol="eventmesh", port=0, settings=listener),
                Listener(protocol="omq", port=0),
            ),
            http=Http(enabled=False),
            **({"auth": auth} if auth else {}),
        )
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    async def _run(self) -> None:
        try:
            async with TimedBroker(settings=self._settings) as broker:
                self.broker, self._loop = broker, asyncio.get_running_loop()
                native, mesh, omq = broker.listening
                self.url, self.port, self.omq_port = f"vibemq://127.0.0.1:{native.port}", mesh.port, omq.port
                self._ready.set()
                await broker.run()
        finally:
            self._ready.set()

    def __enter__(self) -> "MeshBroker":
        self._thread.start()
        assert self._ready.wait(WAIT_S), "the broker does not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self.broker.stop)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the broker does not stop"

    def advance(self, seconds: float) -> None:
        async def advance() -> None:
            self.broker.advance(seconds)

        asyncio.run_coroutine_threadsafe(advance(), self._loop).result(WAIT_S)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshBroker]:
    with MeshBroker(tmp_path_factory.mktemp("mesh")) as broker:
        yield broker


@pytest.fixture
def mq(broker: MeshBroker) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url) as mq:
        yield mq


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return queue_named_after(request)


@pytest.fixture
def wire(broker: MeshBroker) -> Iterator[Callable[..., MeshWire]]:
    opened: list[MeshWire] = []

    def connect(group: str = "", purpose: str = "sub", dialect: str = "em13", **agent: Any) -> MeshWire:
        made = MeshWire(broker.port, dialect)
        opened.append(made)
        if group:
            assert made.hello(group, purpose, **agent).code == 0
        return made

    yield connect
    for each in opened:
        each.socket.close()


def subscriber(wire: Callable[..., MeshWire], topic: str, group: str, *how: str, **agent: Any) -> MeshWire:
    made = wire(group, **agent)
    assert made.subscribe(topic, *how).code == 0
    assert made.listen().code == 0
    return made


def bodies(peer: MeshWire, count: int, cmd: str = ASYNC, *, ack: bool = True) -> list[str]:
    frames = [peer.next(cmd) for _ in range(count)]
    if ack:
        for frame in frames:
            peer.ack(frame)
    return [frame.json["body"] for frame in frames]


def no_more(peer: MeshWire) -> None:
    """Nothing was pushed before the answer to a heartbeat."""
    peer.ask("HEARTBEAT_REQUEST")
    assert not peer._kept


def dead_letters(mq: vibemq.sync.Client, topic: str) -> list[dict[str, Any]]:
    found = mq.admin("dlq.list", queue=topic)
    letters: list[dict[str, Any]] = found["letters"]
    return letters


# -- sessions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_before_the_hello_there_is_no_session(wire: Any, dialect: str) -> None:
    peer = wire(dialect=dialect)
    refused = peer.publish("t", "x")
    assert (refused.code, "no session is found" in refused.text) == (2, True)
    assert peer.listen().code == 2
    assert peer.hello("group").code == 0
    assert peer.hello("another").code == 0, "a second hello changes nothing"
    assert peer.ask("HEARTBEAT_REQUEST", seq=5).seq == 5, "a number comes back as a number"
    assert peer.ask("CLIENT_GOODBYE_REQUEST").code == 0


@pytest.mark.parametrize(
    "agent",
    [{"group": ""}, {"group": "  "}, {"purpose": "SUB"}, {"purpose": "both"}, {"version": None}, {"group": "a\nb"}],
)
def test_a_bad_user_agent_is_refused(wire: Any, agent: dict[str, Any]) -> None:
    peer = wire()
    assert peer.hello(**{"group": "g", "purpose": "pub"} | agent).code == 1
    assert peer.until_closed() == []


def test_groups_of_all_ages(wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    ages = [
        {"group": "new"},
        {"group": None, "consumerGroup": "of-1.2", "producerGroup": "p"},
        {"group": None, "subsystem": "1000", "dcn": "A00", "pid": "30170", "port": ""},
    ]
    for agent in ages:
        peer = wire()
        assert peer.hello(**{"purpose": "sub"} | agent).code == 0
        assert peer.subscribe(topic).code == 0
    assert sorted(group.name for group in mq.queue_info(topic).groups) == ["1000-A00", "new", "of-1.2"]


def test_a_publisher_may_not_subscribe(wire: Any, topic: str) -> None:
    peer = wire("g", "pub")
    assert (peer.listen().code, peer.listen().text) == (1, "INVALID_MESSAGE: client purpose config is not sub")
    assert peer.subscribe(topic).code == 1
    assert peer.ask("UNSUBSCRIBE_REQUEST").code == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, 0),
        ({"topicList": []}, 0),
        ({"topicList": [{"topic": "t1", "more": 1}]}, 0),
        ({"topicList": [{"topic": "t2", "mode": "UNRECOGNIZED", "type": "UNRECOGNIZED"}]}, 0),
        ({"topicList": ["t3", "t3"]}, 0),
        (None, 1),
        ({"topicList": [{"topic": "t4", "mode": "clustering"}]}, 1),
        ({"topicList": [{"topic": "t5", "type": "OTHER"}]}, 1),
        ({"topicList": [{"topic": ""}]}, 1),
        ({"topicList": ["not a queue's name"]}, 1),
        ({"topicList": 5}, 1),
    ],
)
def test_bodies_of_subscriptions(wire: Any, body: Any, code: int) -> None:
    peer = wire("g")
    assert peer.ask("SUBSCRIBE_REQUEST", body).code == code
    assert peer.ask("HEARTBEAT_REQUEST").code == 0


def test_bad_frames_end_one_connection_only(broker: MeshBroker, wire: Any, topic: str) -> None:
    other = subscriber(wire, topic, "g")
    for dialect in DIALECTS:
        for mixed in set(DIALECTS) - {dialect}:
            peer = wire("g", dialect=dialect)
            peer.start, peer.counted = DIALECTS[mixed]
            raw = peer.frame("HEARTBEAT_REQUEST", seq="1") + b"rest of a frame"
            peer.start, peer.counted = DIALECTS[dialect]
            peer.socket.sendall(raw)
            (goodbye,) = [frame for frame in peer.until_closed() if frame.cmd != "HEARTBEAT_RESPONSE"]
            assert (goodbye.cmd, goodbye.code, goodbye.seq) == ("SERVER_GOODBYE_REQUEST", 1, None)
    assert wire("p", "pub").publish(topic, "still here").code == 0
    assert bodies(other, 1) == ["still here"]


def test_a_silent_client_is_closed(broker: MeshBroker, wire: Any) -> None:
    silent, never = wire("g"), wire()
    broker.advance(119)
    assert silent.ask("HEARTBEAT_REQUEST").code == 0
    broker.advance(119)
    assert never.until_closed() == []
    broker.advance(1)
    (goodbye,) = silent.until_closed()
    assert goodbye.cmd == "SERVER_GOODBYE_REQUEST"


VECTORS = json.loads((Path(__file__).parents[1] / "vectors/eventmesh.json").read_text(encoding="utf-8"))["vectors"]
RECORDED = {v["name"]: v for v in VECTORS if v["source"] == "recorded" and v["direction"] == "C->S"}
AGES = sorted({name.rpartition("-")[0] for name in RECORDED if name.endswith("-hello_request")})
ANSWERED = {
    "subscribe_request": "SUBSCRIBE_RESPONSE",
    "listen_request": "LISTEN_RESPONSE",
    "heartbeat_request": "HEARTBEAT_RESPONSE",
    "async_message_to_server": "ASYNC_MESSAGE_TO_SERVER_ACK",
    "broadcast_message_to_server": "BROADCAST_MESSAGE_TO_SERVER_ACK",
    "unsubscribe_request": "UNSUBSCRIBE_RESPONSE",
    "client_goodbye_request": "CLIENT_GOODBYE_RESPONSE",
}


@pytest.mark.parametrize("age", AGES)
def test_recorded_clients_of_every_age(wire: Any, age: str) -> None:
    """What they said to a real server is answered here in their dialect, with their seq."""
    hello = RECORDED[f"{age}-hello_request"]
    peer = wire(dialect=hello["dialect"])
    purpose = json.loads(hello["body"])["purpose"]
    said = {"hello_request": "HELLO_RESPONSE"} | ANSWERED
    for what, answer in said.items():
        vector = RECORDED.get(f"{age}-{what}")
        if vector is None:
            continue
        peer.socket.sendall(bytes.fromhex(vector["hex"]))
        answered = peer.next(answer, json.loads(vector["header"])["seq"])
        needs_sub = what in ("subscribe_request", "listen_request", "unsubscribe_request")
        assert answered.code == (1 if needs_sub and purpose == "pub" else 0), answered.text


# -- messages -----------------------------------------------------------------------------------------------------


def test_pipelined_publishes_are_acknowledged_once_each(wire: Any, topic: str) -> None:
    peer, reader = wire("p", "pub"), subscriber(wire, topic, "g", unack=1_000)
    count = 500
    message = {"topic": topic, "properties": {"ttl": "4000"}}
    raw = [
        peer.frame("ASYNC_MESSAGE_TO_SERVER", message | {"body": str(number)}, seq=f"s{number}")
        for number in range(count)
    ]
    bad = peer.frame("ASYNC_MESSAGE_TO_SERVER", {"topic": ""}, seq="bad")
    none = peer.frame("ASYNC_MESSAGE_TO_SERVER", message)
    peer.socket.sendall(b"".join([*raw[:250], bad, none, *raw[250:]]))
    acks = [peer.next("ASYNC_MESSAGE_TO_SERVER_ACK") for _ in range(count + 2)]
    assert [ack.seq for ack in acks if ack.code == 0] == [f"s{number}" for number in range(count)]
    assert sorted(str(ack.seq) for ack in acks if ack.code) == ["None", "bad"]
    assert bodies(reader, count) == [str(number) for number in range(count)]


def test_a_message_of_64_kib_and_one_too_large(wire: Any, topic: str) -> None:
    peer, reader = wire("p", "pub"), subscriber(wire, topic, "g")
    large = "é" * 32_768
    assert peer.publish(topic, large).code == 0
    assert bodies(reader, 1) == [large]
    refused = peer.publish(topic, "x" * 1_100_000)
    assert (refused.code, "at most 1,048,576" in refused.text) == (1, True)


def test_modes_and_types_choose_the_push(wire: Any, topic: str) -> None:
    publisher = wire("p", "pub")
    readers = [
        (subscriber(wire, topic, "a"), ASYNC),
        (subscriber(wire, topic, "s", "CLUSTERING", "SYNC"), SYNC),
        (subscriber(wire, topic, "b", "BROADCASTING"), ALL),
        (subscriber(wire, topic, "b", "BROADCASTING"), ALL),
    ]
    publisher.publish(topic, "one")
    publisher.publish(topic, "two", "BROADCAST_MESSAGE_TO_SERVER")
    for reader, cmd in readers:
        assert bodies(reader, 2, cmd) == ["one", "two"]


def test_old_clients_are_told_by_the_publisher(wire: Any, topic: str) -> None:
    """Before 1.2 a subscription is a name: one of the group gets a message, all of them a broadcast."""
    old = [wire("g", dialect="wemq", old=True) for _ in range(2)]
    for peer in old:
        assert peer.ask("SUBSCRIBE_REQUEST", {"topicList": [topic]}, old=True).code == 0
        peer.listen()
    publisher = wire("p", "pub")
    publisher.publish(topic, "for all", "BROADCAST_MESSAGE_TO_SERVER")
    for peer in old:
        assert bodies(peer, 1, ALL) == ["for all"]
    publisher.publish(topic, "for one")
    publisher.say("REQUEST_TO_SERVER", {"topic": topic, "properties": {}, "body": "question"})
    found: list[MeshFrame] = []

    def looked() -> bool:
        for peer in old:
            peer.ask("HEARTBEAT_REQUEST")
            found.extend(peer._kept)
            peer._kept.clear()
        return len(found) >= 2

    wait_until(looked)
    assert sorted(frame.cmd for frame in found) == [ASYNC, SYNC]
    request = next(frame.json for frame in found if frame.cmd == SYNC)
    assert "headers" not in request
    assert request["properties"]["REPLY_TO"]


def test_pushes_wait_for_listen_and_messages_for_the_first_group(wire: Any, topic: str) -> None:
    publisher, reader = wire("p", "pub"), wire("g")
    publisher.publish(topic, "before anybody")
    reader.subscribe(topic)
    publisher.publish(topic, "before listen")
    no_more(reader)
    reader.listen()
    assert bodies(reader, 2) == ["before anybody", "before listen"]
    assert reader.listen().code == 0, "each is answered"
    second = topic + "-2"
    reader.subscribe(second)
    publisher.publish(second, "a topic after listen")
    assert bodies(reader, 1) == ["a topic after listen"]


def test_messages_wait_for_the_first_subscriber_whatever_its_mode(wire: Any, topic: str) -> None:
    """And again, when the last one has gone."""
    publisher = wire("p", "pub")
    for text in ("before anybody", "between"):
        publisher.publish(topic, text)
        reader = subscriber(wire, topic, "all", "BROADCASTING")
        assert bodies(reader, 1, ALL) == [text]
        later = subscriber(wire, topic, "all", "BROADCASTING")
        publisher.publish(topic, f"after {text}")
        for each in (reader, later):
            assert bodies(each, 1, ALL) == [f"after {text}"]
            assert each.ask("UNSUBSCRIBE_REQUEST").code == 0


def test_what_is_not_acknowledged_goes_to_another_and_then_to_the_dlq(
    broker: MeshBroker, wire: Any, mq: vibemq.sync.Client, topic: str
) -> None:
    mq.create_queue(topic, mode="fan-out-with-ack", ack_timeout_ms=30_000, max_attempts=2, retry_base_ms=1_000)
    first = subscriber(wire, topic, "g")
    wire("p", "pub").publish(topic, "poison")
    assert bodies(first, 1, ack=False) == ["poison"]
    second = subscriber(wire, topic, "g")
    first.ask("CLIENT_GOODBYE_REQUEST")
    broker.advance(30)
    broker.advance(2)
    assert bodies(second, 1, ack=False) == ["poison"]
    second.ask("HEARTBEAT_REQUEST")
    broker.advance(30)
    (letter,) = wait_until(lambda: dead_letters(mq, topic))
    assert (letter["reason"], letter["attempts"]) == ("max_attempts", 2)
    no_more(second)


@pytest.mark.parametrize("header", ["eventmesh-properties", "eventmesh-headers"])
def test_a_message_that_cannot_be_written_is_dead_lettered_and_ends_no_session(
    wire: Any, mq: vibemq.sync.Client, topic: str, header: str
) -> None:
    peer = subscriber(wire, topic, "g")
    mq.publish(topic, "poison", headers={header: '{"a":' + "[" * 253 + "]" * 253 + "}"})
    mq.publish(topic, b"after")
    assert bodies(peer, 1) == ["after"]
    (letter,) = wait_until(lambda: dead_letters(mq, topic))
    assert f"the header {header} nests too deeply" in letter["error"]
    mq.publish(topic, b"more")
    assert bodies(peer, 1) == ["more"]


def test_a_client_that_works_slowly_keeps_what_waits_in_it(broker: MeshBroker, wire: Any, topic: str) -> None:
    """It acknowledges one message after the other; those behind are not given to others meanwhile."""
    reader, publisher = subscriber(wire, topic, "g"), wire("p", "pub")
    for number in range(5):
        publisher.publish(topic, str(number))
    frames = [reader.next(ASYNC) for _ in range(5)]
    for frame in frames:
        broker.advance(20)
        reader.ack(frame)
        reader.ask("HEARTBEAT_REQUEST")
        publisher.ask("HEARTBEAT_REQUEST")
    no_more(reader)


def test_time_to_live(broker: MeshBroker, wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    publisher = wire("p", "pub")
    publisher.publish(topic, "short", ttl="4000")
    publisher.publish(topic, "long", TTL=40_000)
    broker.advance(5)
    assert bodies(subscriber(wire, topic, "g"), 1) == ["long"]
    (letter,) = wait_until(lambda: dead_letters(mq, topic))
    assert letter["reason"] == "expired"


def test_the_window_of_a_session(wire: Any, topic: str) -> None:
    """`unack` of the user agent, over all topics."""
    reader = subscriber(wire, topic, "g", unack=3)
    reader.subscribe(topic + "-2")
    publisher = wire("p", "pub")
    for number in range(4):
        publisher.publish(topic, f"a{number}")
        publisher.publish(topic + "-2", f"b{number}")
    held = [reader.next(ASYNC) for _ in range(3)]
    no_more(reader)
    reader.ack(held[0])
    held.append(reader.next(ASYNC))
    no_more(reader)
    for _ in range(4):
        reader.ack(held.pop())
        held.append(reader.next(ASYNC))


@pytest.mark.parametrize("reset", [False, True])
def test_goodbye_stops_pushes_and_gives_back_at_the_end(
    wire: Any, mq: vibemq.sync.Client, topic: str, reset: bool
) -> None:
    mq.create_queue(topic, mode="fan-out-with-ack", max_attempts=1)
    leaving, publisher = subscriber(wire, topic, "g"), wire("p", "pub")
    publisher.publish(topic, "held")
    assert bodies(leaving, 1, ack=False) == ["held"]
    staying = subscriber(wire, topic, "g")
    assert leaving.ask("CLIENT_GOODBYE_REQUEST").code == 0
    for number in range(3):
        publisher.publish(topic, str(number))
    assert bodies(staying, 3) == ["0", "1", "2"]
    no_more(leaving)
    if reset:
        leaving.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    leaving.socket.close()
    assert bodies(staying, 1) == ["held"], "no attempt is counted, so it comes at once"


def test_a_queue_that_is_deleted_sends_its_subscribers_away(wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    reader, publisher = subscriber(wire, topic, "g"), wire("p", "pub")
    publisher.publish(topic, "x")
    mq.delete_queue(topic)
    assert [frame.cmd for frame in reader.until_closed()][-1] == "SERVER_GOODBYE_REQUEST"
    assert publisher.publish(topic, "made anew").code == 0
    assert bodies(subscriber(wire, topic, "g"), 1) == ["made anew"]


def test_a_redirect_ends_pushes_and_leaves_30_seconds(
    broker: MeshBroker, wire: Any, mq: vibemq.sync.Client, topic: str
) -> None:
    reader = subscriber(wire, topic, "moving")
    (connection,) = [each for each in mq.admin("connections.list") if each.get("name") == "moving (sub)"]
    place = {"connection_id": connection["connection_id"], "host": "10.0.0.7", "port": 10_000}
    assert mq.admin("connections.redirect", **place) == {"redirected": 1}
    redirect = reader.next("REDIRECT_TO_CLIENT")
    assert (redirect.json, redirect.seq, redirect.text) == ({"ip": "10.0.0.7", "port": 10_000}, None, "")
    wire("p", "pub").publish(topic, "not for it")
    no_more(reader)
    broker.advance(30)
    assert reader.until_closed() == []
    nobody = mq.admin("connections.redirect", connection_id="none", host="h", port=1)
    assert nobody == {"redirected": 0}


def test_the_command_that_redirects(broker: MeshBroker, wire: Any, topic: str) -> None:
    peers = [subscriber(wire, topic, "g") for _ in range(2)]
    redirect = ("vibemq-admin", "connections", "redirect")
    said = run(*redirect, "[::1]:9", "--user", "anonymous", "--url", broker.url)
    assert (said.code, "redirected" in said.out) == (0, True), said.err
    for peer in peers:
        assert peer.next("REDIRECT_TO_CLIENT").json == {"ip": "::1", "port": 9}
    assert run(*redirect, "h:9", "--connection", "none", "--url", broker.url).code == 3
    for wrong in (("h:9",), ("h", "--user", "u"), ("h:0", "--user", "u"), (":9", "--user", "u")):
        assert run(*redirect, *wrong, "--url", broker.url).code == 2


# -- requests -----------------------------------------------------------------------------------------------------


def reply_to(peer: MeshWire, frame: MeshFrame, text: str, *, token: bool = True) -> None:
    message = frame.json | {"body": text}
    if not token:
        message["properties"] = {}
    peer.say("RESPONSE_TO_SERVER", message, protocol="eventmeshmessage")
    peer.ack(frame)


def test_replies_find_their_requests(wire: Any, topic: str) -> None:
    """By what they bring back; without it, the one that the consumer is at; another's never."""
    replier, asker = subscriber(wire, topic, "g", "CLUSTERING", "SYNC"), wire("p", "pub")
    seqs = [
        asker.say("REQUEST_TO_SERVER", {"topic": topic, "properties": {"n": str(n)}, "body": f"q{n}"}) for n in range(3)
    ]
    frames = [replier.next(SYNC) for _ in range(3)]
    reply_to(replier, frames[0], "r0", token=False)
    reply_to(replier, frames[2], "r2")
    reply_to(replier, frames[1], "r1", token=False)
    for seq, text in zip(seqs, ("r0", "r1", "r2"), strict=True):
        answer = asker.next("RESPONSE_TO_CLIENT", seq)
        assert (answer.code, answer.json["body"], answer.json["topic"]) == (0, text, topic)
        assert "correlation99id" not in answer.json["properties"]
        asker.ack(answer)
    reply_to(replier, frames[2], "late")
    no_more(asker)


def test_a_request_that_nobody_answers(broker: MeshBroker, wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    """EventMesh says nothing when its time is over; a request that is refused has an answer with a body."""
    replier, asker = subscriber(wire, topic, "g", "CLUSTERING", "SYNC"), wire("p", "pub")
    asker.say("REQUEST_TO_SERVER", {"topic": topic, "properties": {"ttl": "1000"}, "body": "q"})
    frame = replier.next(SYNC)
    broker.advance(2)
    no_more(asker)
    replier.ack(frame)
    refused = asker.ask("REQUEST_TO_SERVER", {"topic": "no queue", "body": "q"}, answer="RESPONSE_TO_CLIENT")
    assert refused.code == 1


def test_native_and_eventmesh_understand_each_other(wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    replier = subscriber(wire, topic, "g", "CLUSTERING", "SYNC")
    answers: list[Any] = []
    asking = threading.Thread(
        target=lambda: answers.append(mq.request(topic, b"question", headers={"lang": "en"}, timeout=WAIT_S))
    )
    asking.start()
    frame = replier.next(SYNC)
    assert (frame.json["body"], frame.json["properties"]["lang"]) == ("question", "en")
    reply_to(replier, frame, "answer")
    asking.join(WAIT_S)
    assert (answers[0].payload, answers[0].headers["lang"]) == (b"answer", "en")
    assert "correlation99id" not in answers[0].headers


# -- other queues and protocols -----------------------------------------------------------------------------------


def test_a_queue_in_which_consumers_take_turns(wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    """Made by a native client: all members of all groups and native consumers share one pass."""
    mq.create_queue(topic)
    first, second = subscriber(wire, topic, "a", unack=1), subscriber(wire, topic, "b", "BROADCASTING", unack=1)
    mq.publish_many(topic, [b"1", b"2", b"3"])
    frames = [first.next(ASYNC), second.next(ALL)]
    with mq.subscribe(topic) as messages:
        message = next(iter(messages))
        assert sorted([message.payload, *(frame.json["body"].encode() for frame in frames)]) == [b"1", b"2", b"3"]
        message.ack()
    first.ack(frames[0])
    second.ack(frames[1])
    wait_until(lambda: mq.queue_info(topic).in_flight == 0)
    assert [group.name for group in mq.queue_info(topic).groups] == [""]


def test_events_and_messages_in_the_form_that_a_session_shows(wire: Any, mq: vibemq.sync.Client, topic: str) -> None:
    event = {"specversion": "1.0", "id": "e1", "source": "/s", "type": "t", "subject": topic, "colour": "red"}
    event |= {"datacontenttype": "application/cloudevents+json", "data": {"a": 1}}
    plain, events = subscriber(wire, topic, "plain"), subscriber(wire, topic, "events")
    old = subscriber(wire, topic, "old", dialect="em8", old=True)
    sent = events.ask("ASYNC_MESSAGE_TO_SERVER", event, answer="ASYNC_MESSAGE_TO_SERVER_ACK", protocol="cloudevents")
    assert sent.code == 0
    mq.publish(topic, b"native", headers={"lang": "en", "content-type": "text/plain"})
    frames = [plain.next(ASYNC), events.next(ASYNC)]
    for frame in frames:
        assert frame.properties == {"protocoltype": "cloudevents"}
        inline = event | {"data_base64": "eyJhIjogMX0="}
        del inline["data"]
        assert frame.json == inline, "in base64, which clients of all ages read"
    assert old.next(ASYNC).json == {
        "topic": topic,
        "properties": {
            "ce-specversion": "1.0",
            "ce-id": "e1",
            "ce-source": "/s",
            "ce-type": "t",
            "colour": "red",
        },
        "body": '{"a": 1}',
    }
    assert plain.next(ASYNC).json == {
        "topic": topic,
        "properties": {"lang": "en"},
        "headers": {"datacontenttype": "text/plain"},
        "body": "native",
    }
    converted = events.next(ASYNC).json
    assert (converted["subject"], converted["lang"], converted["data"]) == (topic, "en", "native")


def test_headers_for_other_protocols(wire: Any, broker: MeshBroker, mq: vibemq.sync.Client, topic: str) -> None:
    """The native client and the OCaml message queue read what EventMesh has published."""
    mq.create_queue(topic, mode="broadcast")
    wire("p", "pub").publish(topic, '{"a":1}', keys="k", ttl="60000")
    with mq.subscribe(topic, group="natives", start="beginning") as messages:
        message = next(iter(messages))
        assert message.json() == {"a": 1}
        assert message.headers["keys"] == "k"
        assert message.headers["eventmesh-protocol"] == "eventmeshmessage"
        message.ack()
    with OmqWire(broker.omq_port) as ocaml:
        ocaml.subscribe(topic, "From_beginning")
        assert next(ocaml.messages()).body == b'{"a":1}'


def test_a_broker_that_keeps_nothing_makes_topics_too(tmp_path: Path) -> None:
    with MeshBroker(tmp_path, provider="memory") as broker, MeshWire(broker.port) as peer:
        peer.hello("g")
        assert peer.publish("published", "x").code == 0
        assert peer.subscribe("subscribed").code == 0


# -- who may ------------------------------------------------------------------------------------------------------


def test_logins_and_permissions(tmp_path: Path) -> None:
    permissions = (
        Permission(queues="mine", actions=("publish", "subscribe", "create", "inspect")),
        Permission(queues="open", actions=("publish",)),
    )
    user = User(password_hash=hash_password("right"), permissions=permissions)
    with MeshBroker(tmp_path, Auth(users={"ann": user})) as broker:
        for agent in ({"username": "ann", "password": "wrong"}, {"username": None, "password": None}):
            with MeshWire(broker.port) as peer:
                assert peer.hello("g", **agent).code == 2
                assert peer.until_closed() == []
        with MeshWire(broker.port) as peer:
            assert peer.hello("g", username="ann", password="right").code == 0
            assert peer.subscribe("mine").code == 0
            assert peer.publish("mine", "x").code == 0
            peer.listen()
            assert bodies(peer, 1) == ["x"]
            for refused in (peer.publish("other", "x"), peer.subscribe("other"), peer.publish("open", "x")):
                assert refused.code in (1, 2)
                assert json.loads(json.dumps(refused.text))
            assert peer.publish("mine", "y").code == 0
            asked = peer.ask("REQUEST_TO_SERVER", {"topic": "other", "body": "q"}, answer="RESPONSE_TO_CLIENT")
            assert (asked.code, asked.json["topic"]) == (2, "other"), "with a body, or a Java client would close"
