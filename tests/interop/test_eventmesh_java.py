"""The real Java SDK of EventMesh (1.10.0) over TCP, against a broker in a process of its own."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import vibemq.sync
from tests.integration.conditions import running
from tests.interop.eventmesh import EventMeshBroker, JavaDriver, MeshWire, compile_java, java_classpath
from tests.names import queue_named_after
from tests.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("eventmesh-java")]

KINDS = ("em", "ce")
HOWTO = Path(__file__).parents[2] / "docs/howto/eventmesh.md"
MANY = 50


@pytest.fixture(scope="module")
def classpath(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Fetched and compiled once, and kept by pytest's cache."""
    cache = getattr(pytestconfig, "cache", None)
    kept = cache.mkdir("eventmesh-sdk") if cache else tmp_path_factory.mktemp("sdk")
    return java_classpath(kept)


@pytest.fixture(scope="module")
def broker(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventMeshBroker]:
    broker = EventMeshBroker(tmp_path_factory.mktemp("broker"))
    with running(broker):
        yield broker


@pytest.fixture(scope="module")
def jvm(classpath: str, broker: EventMeshBroker) -> Iterator[JavaDriver]:
    with JavaDriver.started(classpath) as driver:
        yield driver


@pytest.fixture
def mq(broker: EventMeshBroker) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url) as mq:
        yield mq


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return queue_named_after(request)


class Clients:
    """Clients of one test; their names do not meet those of others."""

    def __init__(self, jvm: JavaDriver, broker: EventMeshBroker, topic: str) -> None:
        self.jvm, self.broker, self.topic = jvm, broker, topic
        self.names: list[str] = []

    def add(self, kind: str, purpose: str, group: str) -> str:
        name = f"{self.topic}-{len(self.names)}"
        self.names.append(name)
        self.jvm.do("client", name, kind, purpose, group, self.broker.mesh_port)
        return name

    def subscriber(self, kind: str, group: str, mode: str = "CLUSTERING", type_: str = "ASYNC") -> str:
        name = self.add(kind, "sub", group)
        self.jvm.do("subscribe", name, self.topic, mode, type_)
        self.jvm.do("listen", name)
        return name

    def publisher(self, kind: str) -> str:
        return self.add(kind, "pub", "publishers")


@pytest.fixture
def clients(jvm: JavaDriver, broker: EventMeshBroker, topic: str) -> Iterator[Clients]:
    clients = Clients(jvm, broker, topic)
    yield clients
    for name in clients.names:
        jvm.say("close", name)


def body(kind: str, number: int) -> str:
    return f"text é {number}" if kind == "em" else f'{{"number":{number}}}'


@pytest.mark.parametrize("kind", KINDS)
def test_publish_and_push_in_order(kind: str, clients: Clients, jvm: JavaDriver, mq: vibemq.sync.Client) -> None:
    subscriber, publisher = clients.subscriber(kind, "readers"), clients.publisher(kind)
    sent = [body(kind, number) for number in range(MANY)]
    for text in sent:
        assert jvm.do("publish", publisher, clients.topic, text)["code"] == 0
    assert jvm.bodies(subscriber, MANY) == sent
    wait_until(lambda: mq.queue_info(clients.topic).groups[0].head == MANY + 1)


@pytest.mark.parametrize("kind", KINDS)
def test_groups_and_broadcasting(kind: str, clients: Clients, jvm: JavaDriver) -> None:
    """Each group gets each message once; of BROADCASTING subscribers, each one."""
    pair = [clients.subscriber(kind, "pair"), clients.subscriber(kind, "pair")]
    others = [clients.subscriber(kind, "all", "BROADCASTING"), clients.subscriber(kind, "all", "BROADCASTING")]
    publisher = clients.publisher(kind)
    sent = [body(kind, number) for number in range(6)]
    for text in sent[:3]:
        jvm.do("publish", publisher, clients.topic, text)
    for text in sent[3:]:
        jvm.do("broadcast", publisher, clients.topic, text)
    for name in others:
        assert jvm.bodies(name, 6) == sent
    shared = [jvm.event("message", client=name) for name in pair * 3]
    assert sorted(event["body"] for event in shared) == sorted(sent)


@pytest.mark.parametrize("kind", KINDS)
def test_request_and_reply(kind: str, clients: Clients, jvm: JavaDriver) -> None:
    replier, asker = clients.subscriber(kind, "repliers", type_="SYNC"), clients.publisher(kind)
    jvm.do("answer", replier, "" if kind == "ce" else "reply to ")
    answered = jvm.do("request", asker, clients.topic, body(kind, 1), 60_000)
    assert answered["code"] == 0
    reply = json.loads(answered["body"])
    if kind == "em":
        assert reply["body"] == "reply to " + body(kind, 1)
    else:
        assert reply["subject"] == clients.topic


def test_answers_that_are_not_waited_for_and_that_never_come(clients: Clients, jvm: JavaDriver) -> None:
    """`asyncRR` of the SDK calls its handler of late answers; a request that nobody answers ends by the SDK's time."""
    asker = clients.publisher("em")
    with pytest.raises(AssertionError, match="rr error"):
        jvm.do("request", asker, f"{clients.topic}-nobody", "?", 200)
    replier = clients.subscriber("em", "repliers", type_="SYNC")
    jvm.do("answer", replier, "reply to ")
    jvm.do("ask", asker, clients.topic, "one", 20_000)
    assert jvm.event("late", client=asker)["body"] == "reply to one"


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_that_is_added_after_listen_and_a_text_of_64_kib(kind: str, clients: Clients, jvm: JavaDriver) -> None:
    subscriber, publisher = clients.subscriber(kind, "readers"), clients.publisher(kind)
    jvm.do("subscribe", subscriber, f"{clients.topic}-second", "CLUSTERING", "ASYNC")
    text = "x" * 65_536 if kind == "em" else f'{{"text":"{"x" * 65_536}"}}'
    assert jvm.do("publish", publisher, f"{clients.topic}-second", text)["code"] == 0
    assert jvm.bodies(subscriber, 1) == [text]


@pytest.mark.parametrize("kind", KINDS)
def test_slow_members_get_all_though_one_of_them_leaves(kind: str, clients: Clients, jvm: JavaDriver) -> None:
    slow, leaving = clients.subscriber(kind, "readers"), clients.subscriber(kind, "readers")
    for name in (slow, leaving):
        jvm.do("slow", name, 250)
    publisher, sent = clients.publisher(kind), [body(kind, number) for number in range(10)]
    for text in sent:
        assert jvm.do("publish", publisher, clients.topic, text)["code"] == 0
    got = {leaving: [jvm.event("message", client=leaving)["body"]], slow: []}
    jvm.do("close", leaving)
    while {*got[leaving], *got[slow]} < set(sent):
        event = jvm.event("message")
        got.setdefault(event["client"], []).append(event["body"])


@pytest.mark.parametrize("kind", KINDS)
def test_native_requester_and_java_replier(
    kind: str, clients: Clients, jvm: JavaDriver, mq: vibemq.sync.Client
) -> None:
    replier = clients.subscriber(kind, "repliers", type_="SYNC")
    jvm.do("answer", replier, "" if kind == "ce" else "reply to ")
    event = {
        "ce-specversion": "1.0",
        "ce-id": "1",
        "ce-source": "/s",
        "ce-type": "t",
        "content-type": "application/json",
    }
    headers = {"kind": "test"} | (event if kind == "ce" else {})
    reply = mq.request(clients.topic, body(kind, 1).encode(), headers=headers, timeout=30)
    assert reply.payload.decode() == ("" if kind == "ce" else "reply to ") + body(kind, 1)
    assert reply.headers["kind" if kind == "em" else "ce-kind"] == "test"


@pytest.mark.parametrize("kind", KINDS)
def test_java_requester_and_native_replier(
    kind: str, clients: Clients, jvm: JavaDriver, mq: vibemq.sync.Client
) -> None:
    mq.create_queue(clients.topic)
    asker = clients.publisher(kind)
    jvm.say("request", asker, clients.topic, body(kind, 1), 20_000)
    with mq.subscribe(clients.topic) as messages:
        message = next(iter(messages))
        assert message.payload.decode() == body(kind, 1)
        message.reply(b'{"native": true}', headers={"lang": "python"})
        message.ack()
    answered = jvm.event("answered", "failed", client=asker)
    assert answered["code"] == 0, answered
    reply = json.loads(answered["body"])
    assert (reply["properties"] if kind == "em" else reply)["lang"] == "python"


@pytest.mark.parametrize(
    ("kind", "headers"),
    [
        ("ce", {"ce-My_Key": "x", "ce-time": "yesterday", "ce-source": "my app", "ce-dataschema": "a b"}),
        ("em", {"eventmesh-properties": '{"a":{"b":1}}', "eventmesh-headers": '{"c":[1]}'}),
    ],
)
def test_what_others_have_written_ends_no_connection(
    kind: str, headers: dict[str, str], clients: Clients, jvm: JavaDriver, mq: vibemq.sync.Client
) -> None:
    subscriber = clients.subscriber(kind, "readers")
    event = {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "/s", "ce-type": "t", "content-type": "text/plain"}
    form = event if kind == "ce" else {}
    mq.publish(clients.topic, b"odd", headers=form | headers)
    mq.publish(clients.topic, b"after", headers=form)
    assert jvm.bodies(subscriber, 2) == ["odd", "after"]


def test_both_forms_on_one_topic_with_native(clients: Clients, jvm: JavaDriver, mq: vibemq.sync.Client) -> None:
    """A publisher of events, a subscriber of events, and a native consumer group that reads the same messages."""
    subscriber, publisher = clients.subscriber("ce", "readers"), clients.publisher("ce")
    with mq.subscribe(clients.topic, group="natives") as messages:
        jvm.do("publish", publisher, clients.topic, '{"a":1}')
        message = next(iter(messages))
        assert message.json() == {"a": 1}
        assert message.headers["ce-subject"] == clients.topic
        assert message.headers["ce-id"] == message.id
        assert message.headers["content-type"] == "application/cloudevents+json"
        message.ack()
    headers = {"ce-specversion": "1.0", "ce-id": "n1", "ce-source": "/native", "ce-type": "t", "ce-colour": "red"}
    mq.publish(clients.topic, b'{"b":2}', headers=headers)
    assert jvm.bodies(subscriber, 2) == ['{"a":1}', '{"b":2}']


def test_unsubscribed_members_get_nothing_more(clients: Clients, jvm: JavaDriver) -> None:
    leaving, staying = clients.subscriber("em", "readers"), clients.subscriber("em", "readers")
    publisher = clients.publisher("em")
    jvm.do("unsubscribe", leaving)
    for number in range(6):
        jvm.do("publish", publisher, clients.topic, body("em", number))
    assert jvm.bodies(staying, 6) == [body("em", number) for number in range(6)]
    jvm.do("subscribe", leaving, clients.topic, "CLUSTERING", "ASYNC")
    jvm.do("close", staying)
    jvm.do("publish", publisher, clients.topic, "again")
    assert jvm.bodies(leaving, 1) == ["again"]


def test_a_killed_member_leaves_its_messages_to_another(
    clients: Clients, jvm: JavaDriver, classpath: str, broker: EventMeshBroker
) -> None:
    publisher = clients.publisher("em")
    with JavaDriver.started(classpath) as doomed:
        doomed.do("client", "doomed", "em", "sub", "readers", broker.mesh_port)
        doomed.do("hold", "doomed")
        doomed.do("subscribe", "doomed", clients.topic, "CLUSTERING", "ASYNC")
        doomed.do("listen", "doomed")
        jvm.do("many", publisher, clients.topic, "m", 10)
        assert doomed.bodies("doomed", 1) == ["m0"]
        doomed.process.kill()
    survivor = clients.subscriber("em", "readers")
    assert sorted(jvm.bodies(survivor, 10)) == [f"m{number}" for number in range(10)]


def test_messages_survive_a_killed_broker(classpath: str, jvm: JavaDriver, topic: str, tmp_path: Path) -> None:
    """What was acknowledged to a Java publisher is there afterwards; what Java acknowledged does not come again."""
    broker = EventMeshBroker(tmp_path)
    with running(broker):
        mine = Clients(jvm, broker, topic)
        subscriber, publisher = mine.subscriber("em", "readers"), mine.publisher("em")
        jvm.do("many", publisher, topic, "before", 20)
        assert jvm.bodies(subscriber, 20) == [f"before{number}" for number in range(20)]
        with vibemq.sync.connect(broker.url) as mq:
            wait_until(lambda: mq.queue_info(topic).groups[0].head == 21)
        jvm.do("unsubscribe", subscriber)
        jvm.do("many", publisher, topic, "kept", 20)
        broker.kill()
        broker.start()
        with MeshWire(broker.mesh_port) as wire:
            wire.hello("readers")
            wire.subscribe(topic)
            wire.listen()
            found = [wire.next("ASYNC_MESSAGE_TO_CLIENT") for _ in range(20)]
            assert [frame.json["body"] for frame in found] == [f"kept{number}" for number in range(20)]
        again = Clients(jvm, broker, topic + "-again")
        again.topic = topic
        assert jvm.do("publish", again.publisher("em"), topic, "after")["code"] == 0


@pytest.mark.long(covered_by="tests/interop/test_eventmesh_java.py::test_messages_survive_a_killed_broker")
def test_a_subscriber_of_events_comes_back_by_itself(classpath: str, tmp_path: Path) -> None:
    """At its next heartbeat, which is up to a minute after the broker is back."""
    broker = EventMeshBroker(tmp_path)
    with running(broker), JavaDriver.started(classpath) as driver:
        driver.do("client", "reader", "ce", "sub", "readers", broker.mesh_port)
        driver.do("subscribe", "reader", "restarted", "CLUSTERING", "ASYNC")
        driver.do("listen", "reader")
        broker.kill()
        broker.start()
        event = {"specversion": "1.0", "id": "e1", "source": "/", "type": "t", "subject": "restarted", "data": {}}
        with MeshWire(broker.mesh_port) as wire:
            wire.hello("writers", "pub")
            ack = "ASYNC_MESSAGE_TO_SERVER_ACK"
            assert wire.ask("ASYNC_MESSAGE_TO_SERVER", event, answer=ack, protocol="cloudevents").code == 0
        assert driver.bodies("reader", 1) == ["{}"]


def test_the_program_of_the_documentation(classpath: str, broker: EventMeshBroker, tmp_path: Path) -> None:
    """As printed, but for the port and its patience: a busy machine loads the SDK's classes for more than 5 s."""
    (program,) = re.findall(r"```java\n(.*?)```", HOWTO.read_text(encoding="utf-8"), re.DOTALL)
    source = tmp_path / "Orders.java"
    program = program.replace("10000", str(broker.mesh_port)).replace(", 5000)", ", 60000)")
    source.write_text(program, encoding="utf-8")
    compile_java(source, classpath, tmp_path)
    command = ["java", "-Xmx96m", "-XX:+UseSerialGC", "-cp", f"{tmp_path}:{classpath}", "Orders"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    assert said.count("code 0") == 2
    assert "3.50 for tea" in said
    assert "billing received order 1" in said
    assert "billing received order 2" in said
