"""What clients of every age may expect of EventMesh over TCP, in each dialect. The real server of their age fails some.

The broker's time stands still until a test moves it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.test_eventmesh_tcp import ALL, ASYNC, SYNC, MeshBroker, bodies, no_more
from tests.interop.eventmesh import DIALECTS, MeshWire
from tests.names import queue_named_after

pytestmark = pytest.mark.slow

MANY = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MeshBroker]:
    with MeshBroker(tmp_path_factory.mktemp("ages")) as broker:
        yield broker


@dataclass
class Mesh:
    """Clients of one dialect, and a topic of their own."""

    broker: MeshBroker
    dialect: str
    topic: str
    wires: list[MeshWire] = field(default_factory=list)

    def client(self, group: str, purpose: str) -> MeshWire:
        made = MeshWire(self.broker.port, self.dialect)
        self.wires.append(made)
        assert made.hello(group, purpose).code == 0
        return made

    def publisher(self) -> MeshWire:
        return self.client("publishers", "pub")

    def reader(self, group: str, *how: str) -> MeshWire:
        made = self.client(group, "sub")
        assert made.subscribe(self.topic, *how).code == 0
        assert made.listen().code == 0
        return made


@pytest.fixture(params=DIALECTS)
def mesh(request: pytest.FixtureRequest, broker: MeshBroker) -> Iterator[Mesh]:
    made = Mesh(broker, request.param, queue_named_after(request))
    yield made
    for wire in made.wires:
        wire.socket.close()


def publish_all(publisher: MeshWire, topic: str, count: int) -> list[str]:
    sent = [f"text é {number}" for number in range(count)]
    for text in sent:
        assert publisher.publish(topic, text).code == 0
    return sent


def test_messages_of_a_group_come_in_order(mesh: Mesh) -> None:
    reader = mesh.reader("readers")
    sent = publish_all(mesh.publisher(), mesh.topic, MANY)
    assert bodies(reader, MANY) == sent
    no_more(reader)


def test_each_group_gets_each_message_with_its_properties(mesh: Mesh) -> None:
    readers, publisher = [mesh.reader("a"), mesh.reader("b")], mesh.publisher()
    assert publisher.publish(mesh.topic, "one", colour="red", keys="k1").code == 0
    for reader in readers:
        frame = reader.next(ASYNC)
        assert frame.json["body"] == "one"
        assert frame.json["properties"].items() >= {"colour": "red", "keys": "k1"}.items()
        reader.ack(frame)
        no_more(reader)


def test_broadcasts_reach_all_members_of_a_group(mesh: Mesh) -> None:
    members = [mesh.reader("all", "BROADCASTING") for _ in range(3)]
    publisher = mesh.publisher()
    sent = publish_all(publisher, mesh.topic, 3)
    assert publisher.publish(mesh.topic, "to all", "BROADCAST_MESSAGE_TO_SERVER").code == 0
    for member in members:
        assert bodies(member, 4, ALL) == [*sent, "to all"]


def test_requests_are_answered(mesh: Mesh) -> None:
    replier, asker = mesh.reader("repliers", "CLUSTERING", "SYNC"), mesh.publisher()
    for number in range(3):
        question = {"topic": mesh.topic, "properties": {"ttl": "5000"}, "body": f"question {number}"}
        seq = asker.say("REQUEST_TO_SERVER", question, protocol="eventmeshmessage")
        asked = replier.next(SYNC)
        replier.say("RESPONSE_TO_SERVER", asked.json | {"body": f"answer {number}"}, protocol="eventmeshmessage")
        replier.ack(asked)
        answer: Any = asker.next("RESPONSE_TO_CLIENT", seq)
        assert (answer.code, answer.json["body"]) == (0, f"answer {number}")


def test_a_topic_that_is_added_after_listen_is_served(mesh: Mesh) -> None:
    reader, second = mesh.reader("readers"), f"{mesh.topic}-second"
    assert reader.subscribe(second).code == 0
    sent = publish_all(mesh.publisher(), second, 5)
    assert bodies(reader, 5) == sent


def test_a_slow_reader_gets_all_and_each_once(mesh: Mesh) -> None:
    reader, publisher = mesh.reader("readers"), mesh.publisher()
    sent = publish_all(publisher, mesh.topic, MANY)
    found = []
    for _ in sent:
        frame = reader.next(ASYNC)
        mesh.broker.advance(0.25)
        found.append(frame.json["body"])
        reader.ack(frame)
    assert found == sent
    no_more(reader)


@pytest.mark.parametrize("goodbye", [True, False], ids=["goodbye", "lost"])
def test_what_a_leaving_member_has_not_acknowledged_goes_to_another(mesh: Mesh, goodbye: bool) -> None:
    leaving = mesh.reader("readers")
    sent = publish_all(mesh.publisher(), mesh.topic, 10)
    held = [leaving.next(ASYNC) for _ in sent]
    leaving.ack(held[0])
    staying = mesh.reader("readers")
    if goodbye:
        assert leaving.ask("CLIENT_GOODBYE_REQUEST").code == 0
    else:
        leaving.ask("HEARTBEAT_REQUEST")
    leaving.socket.close()
    assert sorted(bodies(staying, 9)) == sorted(sent[1:])
    no_more(staying)


def test_who_has_unsubscribed_gets_nothing_more(mesh: Mesh) -> None:
    leaving, staying, publisher = mesh.reader("readers"), mesh.reader("readers"), mesh.publisher()
    item = {"topicList": [{"topic": mesh.topic, "mode": "CLUSTERING", "type": "ASYNC"}]}
    assert leaving.ask("UNSUBSCRIBE_REQUEST", item).code == 0
    sent = publish_all(publisher, mesh.topic, 6)
    assert bodies(staying, 6) == sent
    no_more(leaving)


def test_a_text_of_64_kib_is_taken(mesh: Mesh) -> None:
    reader, text = mesh.reader("readers"), "é" * 32_768
    assert mesh.publisher().publish(mesh.topic, text).code == 0
    assert bodies(reader, 1) == [text]
