"""OCaml clients, whose commands real sexplib converters write, against a broker in a process of its own."""

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import vibemq.sync
from tests.integration.conditions import running
from tests.interop.omq import OmqBroker, need_ocaml
from tests.names import queue_named_after
from tests.waiting import wait_until
from vibemq.auth.passwords import hash_password

pytestmark = pytest.mark.slow

SOURCES = Path(__file__).parent / "ocaml"
WAIT_S = 90
FORMS = ("plain", "hum", "bare")

Event = dict[str, Any]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the clients have been built."""
    need_ocaml()
    folder = tmp_path_factory.mktemp("ocaml")
    subprocess.run(["make", "-C", SOURCES, f"BUILD={folder}"], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    broker = OmqBroker(tmp_path_factory.mktemp("broker"), toml="auto_create = false")
    with running(broker):
        yield broker


@pytest.fixture
def mq(broker: OmqBroker) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url) as mq:
        yield mq


@pytest.fixture
def topic(request: pytest.FixtureRequest, mq: vibemq.sync.Client) -> str:
    """A broadcast queue of this test's own."""
    name = queue_named_after(request)
    mq.create_queue(name, mode="broadcast", durability="weak")
    return name


@dataclass
class Client:
    """A running client; `event` and `rest` read what it prints."""

    process: subprocess.Popen[str]
    events: list[Event] = field(default_factory=list)

    def event(self, kind: str) -> Event:
        """Read up to the next event of that kind."""
        for event in self._say():
            if event["event"] == kind:
                return event
        raise AssertionError(f"it ended without {kind!r}: {self.events}")

    def end(self, code: int = 0) -> list[Event]:
        """Everything it has said, pings left out, once it has ended with that code, which it does if nothing comes."""
        list(self._say())
        assert self.process.wait(WAIT_S) == code, self.events
        return [event for event in self.events if event["event"] != "ping"]

    def _say(self) -> Iterator[Event]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))
            yield self.events[-1]


Start = Callable[..., Client]


@pytest.fixture
def ocaml_at(folder: Path) -> Iterator[Start]:
    """Start a client of the broker at a port; none outlives the test."""
    clients: list[Client] = []

    def start(port: int, *words: str | int) -> Client:
        command = [str(folder / "omq_client"), str(port), *map(str, words)]
        clients.append(Client(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
        return clients[-1]

    yield start
    for client in clients:
        client.process.kill()
        client.process.communicate()


@pytest.fixture
def ocaml(ocaml_at: Start, broker: OmqBroker) -> Start:
    """Start a client of the tests' common broker."""
    return partial(ocaml_at, broker.omq_port)


def bodies(events: list[Event]) -> list[bytes]:
    return [bytes.fromhex(event["body"]) for event in events if event["event"] == "message"]


def numbers(events: list[Event]) -> list[int]:
    return [event["id"] for event in events if event["event"] == "message"]


def kinds(events: list[Event]) -> list[str]:
    return [event["event"] for event in events]


def rows(first: int, last: int) -> list[bytes]:
    return [b"row %d" % number for number in range(first, last + 1)]


# -- handshake ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manner", [(), ("--pipeline",)], ids=["waiting", "pipelined"])
@pytest.mark.parametrize("version", [2, 0, -1, 1 << 62])
def test_another_version_is_refused(ocaml: Start, version: int, manner: tuple[str, ...]) -> None:
    events = ocaml("--version", version, *manner, "unsubscribe", "x").end(2)
    assert events == [{"event": "handshake", "version": -1}]


def test_version_one_comes_back(ocaml: Start) -> None:
    assert ocaml("pings", 1).end() == [{"event": "handshake", "version": 1}]


# -- broadcast ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("manner", [(), ("--pipeline",)], ids=["waiting", "pipelined"])
@pytest.mark.parametrize("form", FORMS)
def test_a_log_from_the_beginning_and_on(
    ocaml: Start, mq: vibemq.sync.Client, topic: str, form: str, manner: tuple[str, ...]
) -> None:
    mq.publish_many(topic, rows(1, 5))
    client = ocaml("--form", form, *manner, "subscribe", topic, "beginning", "receive", 7)
    subscribed = client.event("subscribed")
    mq.publish_many(topic, rows(6, 7))
    events = client.end()
    assert subscribed == {"event": "subscribed", "id": 1, "topic": topic}
    assert bodies(events) == rows(1, 7)
    assert numbers(events) == [1, 2, 3, 4, 5, 6, 7]
    assert {event["topic"] for event in events[2:]} == {topic}


@pytest.mark.parametrize("form", FORMS)
def test_a_log_from_a_message_on(ocaml: Start, mq: vibemq.sync.Client, topic: str, form: str) -> None:
    mq.publish_many(topic, rows(1, 5))
    client = ocaml("--form", form, "subscribe", topic, 4, "receive", 3)
    client.event("subscribed")
    mq.publish_many(topic, rows(6, 6))
    events = client.end()
    assert list(zip(numbers(events), bodies(events), strict=True)) == [(4, b"row 4"), (5, b"row 5"), (6, b"row 6")]


def test_a_log_from_now_on(ocaml: Start, mq: vibemq.sync.Client, topic: str) -> None:
    mq.publish_many(topic, rows(1, 5))
    client = ocaml("subscribe", topic, "current", "receive", 2)
    client.event("subscribed")
    mq.publish_many(topic, rows(6, 7))
    events = client.end()
    assert (numbers(events), bodies(events)) == ([6, 7], rows(6, 7))


def test_every_subscriber_gets_everything(ocaml: Start, mq: vibemq.sync.Client, topic: str) -> None:
    clients = [ocaml("--name", name, "subscribe", topic, "beginning", "receive", 50) for name in ("a", "b", "c")]
    for client in clients:
        client.event("subscribed")
    mq.publish_many(topic, rows(1, 50))
    assert [bodies(client.end()) for client in clients] == [rows(1, 50)] * 3


def test_unsubscribed_and_back_under_the_same_id(ocaml: Start, mq: vibemq.sync.Client, topic: str) -> None:
    """The client itself judges: no message after Unsubscribed, and no id for two topics."""
    mq.publish_many(topic, rows(1, 3))
    mq.create_queue(f"{topic}-2", mode="broadcast")
    client = ocaml(
        *("subscribe", topic, "beginning", "receive", 3, "unsubscribe", topic),
        *("subscribe", f"{topic}-2", "current", "subscribe", topic, 3, "receive", 1, "unsubscribe", topic),
    )
    events = client.end()
    first, second = [event["id"] for event in events if event["event"] == "subscribed" and event["topic"] == topic]
    assert first == second
    assert numbers(events) == [1, 2, 3, 3]
    assert kinds(events)[-1] == "unsubscribed"


def test_a_new_start_of_the_broker_and_on_from_the_next_message(
    ocaml: Start, mq: vibemq.sync.Client, topic: str, broker: OmqBroker
) -> None:
    mq.publish_many(topic, rows(1, 10))
    client = ocaml("subscribe", topic, "beginning", "receive", 4, "end")
    client.event("subscribed")
    broker.stop()
    seen = client.end()
    broker.start()
    last = numbers(seen)[-1]
    with vibemq.sync.connect(broker.url) as again:
        again.publish_many(topic, rows(11, 12))
    events = ocaml("subscribe", topic, last + 1, "receive", 12 - last).end()
    assert bodies(seen) + bodies(events) == rows(1, 12)
    assert numbers(seen) + numbers(events) == list(range(1, 13))


# -- bodies and names -----------------------------------------------------------------------------------------------


def test_bodies_arrive_byte_for_byte(ocaml: Start, mq: vibemq.sync.Client, topic: str) -> None:
    sent = [bytes(range(256)), b"", b"\x00", b"((id 7)(topic x))", bytes(range(255, -1, -1)) * 1000]
    mq.publish_many(topic, sent)
    assert bodies(ocaml("subscribe", topic, "beginning", "receive", len(sent)).end()) == sent


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "name", ["caf\u00e9", "\u0437\u0430\u043a\u0430\u0437\u044b", "\u6ce8\u6587", "a-b_c.d", "7" * 200]
)
def test_names_that_a_queue_may_have(ocaml: Start, mq: vibemq.sync.Client, name: str, form: str) -> None:
    """What is not ASCII travels as decimal escapes; the client's converters read the answer back."""
    mq.create_queue(f"{name}-{form}", mode="broadcast")
    mq.publish(f"{name}-{form}", b"x")
    events = ocaml("--form", form, "subscribe", f"{name}-{form}", "beginning", "receive", 1).end()
    assert [event["topic"] for event in events[1:]] == [f"{name}-{form}"] * 2


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["a b", "back\\slash", "new\nline", 'quo"te', "(", ";", "tab\t", "", "a" * 300])
def test_names_that_no_queue_may_have_are_an_error_and_nothing_else(
    ocaml: Start, topic: str, name: str, form: str
) -> None:
    """Written by sexplib, quoted or broken over lines as it likes; the next command is understood."""
    events = ocaml("--form", form, "subscribe", name, "beginning", "subscribe", topic, "beginning").end()
    assert kinds(events) == ["handshake", "error", "subscribed"]
    assert events[2]["topic"] == topic


def test_an_unknown_topic_is_an_error_and_the_connection_stays(ocaml: Start, topic: str) -> None:
    events = ocaml("unsubscribe", topic, "subscribe", "unknown", "beginning", "subscribe", topic, "current").end()
    assert kinds(events) == ["handshake", "error", "error", "subscribed"]
    assert "unknown" in events[2]["text"]


# -- round robin ----------------------------------------------------------------------------------------------------


def test_two_clients_share_and_what_they_acknowledged_is_done(ocaml: Start, mq: vibemq.sync.Client, topic: str) -> None:
    queue = f"{topic}-jobs"
    mq.create_queue(queue)
    clients = [ocaml("--name", name, "subscribe", queue, "current", "receive", 10, "pings", 1) for name in ("a", "b")]
    for client in clients:
        client.event("subscribed")
    mq.publish_many(queue, rows(1, 20))
    shares = [bodies(client.end()) for client in clients]
    assert [len(share) for share in shares] == [10, 10]
    assert sorted(shares[0] + shares[1]) == sorted(rows(1, 20))
    # A ping that comes after a message and is answered proves that the message was read.
    wait_until(lambda: unsettled(mq, queue) == 0)


def unsettled(mq: vibemq.sync.Client, queue: str) -> int:
    info = mq.queue_info(queue)
    assert info is not None
    return info.ready + info.in_flight + info.delayed


def test_what_a_client_took_and_did_not_acknowledge_goes_to_the_next(
    ocaml: Start, mq: vibemq.sync.Client, topic: str
) -> None:
    queue = f"{topic}-jobs"
    mq.create_queue(queue, lost_connection="release")
    mq.publish_many(queue, rows(1, 5))
    taken = ocaml("--no-acks", "subscribe", queue, "beginning", "receive", 5).end()
    events = ocaml("subscribe", queue, "beginning", "receive", 5, "pings", 1).end()
    assert sorted(bodies(taken)) == sorted(bodies(events)) == rows(1, 5)


# -- heartbeat and credentials --------------------------------------------------------------------------------------


def test_acks_keep_a_connection_and_silence_ends_it(ocaml_at: Start, tmp_path: Path) -> None:
    broker = OmqBroker(tmp_path, listener="ping_interval_ms = 1000\nack_timeout_ms = 5000")
    with running(broker):
        talking = ocaml_at(broker.omq_port, "pings", 8)
        silent = ocaml_at(broker.omq_port, "--no-acks", "end")
        assert kinds(talking.end()) == ["handshake"]
        handshake, error, closed = silent.end()
    times = [event["time"] for event in talking.events if event["event"] == "ping"]
    assert times == sorted(set(times))
    assert error["text"].startswith("heartbeat timeout: ")
    assert kinds([handshake, closed]) == ["handshake", "closed"]


def test_the_id_carries_the_credentials(ocaml_at: Start, tmp_path: Path) -> None:
    permissions = '[{ queues = "prices", actions = ["subscribe"] }]'
    watcher = f'password_hash = "{hash_password("horse-battery")}"\npermissions = {permissions}'
    broker = OmqBroker(tmp_path, toml=f'[auth]\ntoken = "s3cret"\n[auth.users.watcher]\n{watcher}')
    prices, other = ("subscribe", "prices", "current"), ("subscribe", "other", "current")
    with running(broker):
        with vibemq.sync.connect(broker.url, token="s3cret") as mq:
            mq.create_queue("prices", mode="broadcast")
        anybody = ocaml_at(broker.omq_port, "--name", "anybody:s3cret", *prices, *other)
        assert kinds(anybody.end()) == ["handshake", "subscribed", "subscribed"]
        user = ocaml_at(broker.omq_port, "--name", "watcher:horse-battery", *other, *prices).end()
        assert kinds(user) == ["handshake", "error", "subscribed"]
        assert user[1]["text"].startswith("not authorized: ")
        # The secret stands behind the first colon.
        for name in ("watcher", "watcher:wrong", "s3cret", "nobody:horse-battery"):
            events = ocaml_at(broker.omq_port, "--name", name, *prices, "end").end()
            assert kinds(events) == ["handshake", "error", "closed"]
            assert events[1]["text"].startswith("authentication failed: ")
    log = broker.log_text()
    assert "authentication failed" in log
    assert "s3cret" not in log
    assert "horse-battery" not in log
