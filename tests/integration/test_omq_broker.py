"""The OCaml message queue on a real broker and real sockets, published to by the native client."""

import random
import socket
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple, Self

import anyio
import anyio.to_thread
import pytest

import vibemq.sync
from tests.integration.conditions import resident_mib, running
from tests.interop.omq import OmqBroker
from tests.waiting import wait_until
from vibemq.auth.passwords import hash_password
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.protocols.omq.frames import (
    ACCEPTED,
    REFUSED,
    Error,
    Frame,
    MessageFrame,
    OmqFrameReader,
    Ping,
    SubscribedFrame,
    Topic,
    UnsubscribedFrame,
)
from vibemq.testing.timed_broker import TimedBroker

pytestmark = pytest.mark.slow

WAIT_S = 60.0
CONNECT = b"(Connect 1 peer)\n"
NUMBERS = count(1)
SMALL_STORAGE = """
[storage.settings]
buffer_bytes = 2097152
segment_bytes = 4194304
checkpoint_lag_bytes = 8388608
"""
"""What the broker keeps in memory for storage's sake is to be little beside what a stuck reader could cost it."""


class Door(NamedTuple):
    """Where a broker of this process listens."""

    omq_port: int


class Peer:
    """A client on a raw socket. Answers pings unless told otherwise."""

    def __init__(self, broker: OmqBroker | Door, hello: bytes = ACCEPTED + CONNECT, *, acks: bool = True) -> None:
        self.socket = socket.create_connection(("127.0.0.1", broker.omq_port), timeout=WAIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.acks = acks
        self._reader = OmqFrameReader()
        self._frames = self._read()
        if hello:
            self.say(hello)
            assert self.exactly(8) == ACCEPTED

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, data: bytes) -> None:
        self.socket.sendall(data)

    def exactly(self, count: int) -> bytes:
        return self.socket.recv(count, socket.MSG_WAITALL)

    def subscribe(self, topic: str, replay: str = "From_current", number: int = 1) -> None:
        self.say(f"(Subscribe {topic} {replay})\n".encode())
        assert self.frame() == SubscribedFrame(Topic(number, topic.encode()))

    def frame(self) -> Frame:
        """The next one that is no ping."""
        return next(self._frames)

    def messages(self, count: int) -> list[MessageFrame]:
        found: list[MessageFrame] = []
        while len(found) < count:
            frame = self.frame()
            assert isinstance(frame, MessageFrame), frame
            found.append(frame)
        return found

    def read_aside(self) -> None:
        """Go on reading, and answering pings, until the connection ends."""

        def read() -> None:
            try:
                self.rest()
            except OSError:
                pass

        threading.Thread(target=read, daemon=True).start()

    def rest(self) -> list[Frame]:
        """Everything until the broker closes."""
        return list(self._frames)

    def _read(self) -> Iterator[Frame]:
        while data := self.socket.recv(262_144):
            self._reader.receive_data(data)
            for frame in self._reader.frames():
                if not isinstance(frame, Ping):
                    yield frame
                elif self.acks:
                    self.say(b"(Ack %d)\n" % frame.second)
        assert not self._reader.buffered, "the stream ends between frames"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    broker = OmqBroker(tmp_path_factory.mktemp("omq"), toml=SMALL_STORAGE)
    with running(broker):
        yield broker


@pytest.fixture
def mq(broker: OmqBroker) -> Iterator[vibemq.sync.Client]:
    with vibemq.sync.connect(broker.url) as client:
        yield client


@pytest.fixture
def topic(mq: vibemq.sync.Client) -> str:
    name = f"ticks-{next(NUMBERS)}"
    mq.create_queue(name, mode="fan_out_without_ack", retention="log")
    return name


@pytest.fixture
def jobs(mq: vibemq.sync.Client) -> str:
    name = f"jobs-{next(NUMBERS)}"
    mq.create_queue(name)
    return name


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


# -- delivery ----------------------------------------------------------------------------------------------------------


def test_bodies_arrive_unchanged_whatever_the_publisher_spoke(broker: OmqBroker, topic: str) -> None:
    bodies = [b"", b"null", b'{ "spaced" : 1 }', bytes(range(256)), b"A" * 200_000, random.Random(1).randbytes(50_000)]
    with Peer(broker) as one, Peer(broker) as two:
        one.subscribe(topic)
        two.subscribe(topic)
        for spoken in ("", "?compression=brotli&compressionThreshold=1", "?compression=gzip&compressionThreshold=1"):
            with vibemq.sync.connect(broker.url + spoken) as mq:
                mq.publish_many(topic, bodies)
                mq.publish(topic, b"with headers", headers={"content-type": "text/plain", "x": "y"}, priority="high")
        expected = [*bodies, b"with headers"] * 3
        for peer in (one, two):
            got = peer.messages(len(expected))
            assert [message.body for message in got] == expected
            assert [message.id for message in got] == list(range(1, len(expected) + 1))


def test_replay_goes_over_into_live_while_publishers_run(broker: OmqBroker, mq: vibemq.sync.Client, topic: str) -> None:
    mq.publish_many(topic, numbered(1, 5_000))

    def publish() -> None:
        with vibemq.sync.connect(broker.url) as other:
            for first in range(5_001, 10_001, 50):
                other.publish_many(topic, numbered(first, first + 49))

    publisher = threading.Thread(target=publish)
    with Peer(broker) as beginning, Peer(broker) as middle:
        publisher.start()
        beginning.subscribe(topic, "From_beginning")
        middle.subscribe(topic, "(From_message 2500)")
        for peer, first in ((beginning, 1), (middle, 2_500)):
            got = peer.messages(10_001 - first)
            assert [message.id for message in got] == list(range(first, 10_001))
            assert [message.body for message in got] == numbered(first, 10_000)
        publisher.join(WAIT_S)


def test_round_robin_shares_and_an_ack_settles(broker: OmqBroker, mq: vibemq.sync.Client, jobs: str) -> None:
    with Peer(broker) as one, Peer(broker) as two:
        one.subscribe(jobs)
        two.subscribe(jobs)
        for number in range(20):
            mq.publish(jobs, b"%d" % number)
        got = [peer.messages(10) for peer in (one, two)]
        assert sorted(int(message.body) for share in got for message in share) == list(range(20))
        for peer in (one, two):
            # The next ping is behind the messages, and its echo settles them.
            peer.read_aside()
        wait_until(lambda: mq.queue_info(jobs).in_flight == 0)
        assert mq.queue_info(jobs).ready == 0


def test_what_a_lost_client_never_acked_goes_to_another(broker: OmqBroker, mq: vibemq.sync.Client, jobs: str) -> None:
    mq.publish_many(jobs, numbered(1, 10))
    with Peer(broker, acks=False) as lost:
        lost.subscribe(jobs)
        assert len(lost.messages(10)) == 10
    with Peer(broker) as heir:
        heir.subscribe(jobs)
        assert [message.id for message in heir.messages(10)] == list(range(1, 11))


def test_a_deleted_topic_is_unsubscribed_unasked(broker: OmqBroker, mq: vibemq.sync.Client, topic: str) -> None:
    with Peer(broker) as peer:
        peer.subscribe(topic)
        mq.delete_queue(topic)
        assert peer.frame() == UnsubscribedFrame(Topic(1, topic.encode()))


def test_a_half_closed_client_gets_what_is_queued(broker: OmqBroker, mq: vibemq.sync.Client, topic: str) -> None:
    mq.publish_many(topic, numbered(1, 20_000))
    with Peer(broker) as peer:
        peer.say(f"(Subscribe {topic} From_beginning)".encode())
        peer.socket.shutdown(socket.SHUT_WR)
        peer.acks = False
        assert peer.frame() == SubscribedFrame(Topic(1, topic.encode()))
        assert [message.body for message in peer.messages(20_000)] == numbered(1, 20_000)
        assert peer.rest() == []


def test_a_reader_that_never_reads_costs_the_broker_little(
    broker: OmqBroker, mq: vibemq.sync.Client, topic: str
) -> None:
    with Peer(broker) as stuck, Peer(broker) as reader:
        stuck.subscribe(topic)
        reader.subscribe(topic)
        before = 0.0
        for step in range(20):
            mq.publish_many(topic, [b"x" * 400] * 10_000)
            reader.messages(10_000)
            if step == 3:
                before = resident_mib(broker.pid)
        assert resident_mib(broker.pid) - before < 16, "the stuck reader has been owed 64 MB"


# -- the other side of the wire ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [b"", CONNECT * 3_000])
def test_a_refused_version_arrives_although_more_was_sent(broker: OmqBroker, more: bytes) -> None:
    with Peer(broker, hello=b"") as peer:
        peer.say(b"\0\0\0\0\0\0\0\2" + more)
        assert peer.exactly(8) == REFUSED
        assert peer.socket.recv(1) == b""


def test_one_byte_per_segment(broker: OmqBroker, topic: str) -> None:
    with Peer(broker, hello=b"") as peer:
        for byte in ACCEPTED + CONNECT + f'(Subscribe "{topic}" From_current)'.encode():
            peer.say(bytes((byte,)))
        assert peer.exactly(8) == ACCEPTED
        assert peer.frame() == SubscribedFrame(Topic(1, topic.encode()))


@pytest.mark.parametrize("endless", [b"a" * 4096, b"(" * 64, b'"' + b"x" * 4096])
def test_endless_input_ends_with_an_error(broker: OmqBroker, endless: bytes) -> None:
    with Peer(broker) as peer:
        try:
            peer.say(b"(")
            for _ in range(100):
                peer.say(endless)
        except OSError:
            pass
        frame = peer.frame()
        assert isinstance(frame, Error)
        assert frame.text.startswith("malformed command: ")


@pytest.mark.parametrize("seed", range(5))
def test_garbage_does_not_disturb_others(broker: OmqBroker, mq: vibemq.sync.Client, topic: str, seed: int) -> None:
    source = random.Random(seed)
    with Peer(broker) as good:
        good.subscribe(topic)
        for _ in range(20):
            with Peer(broker, hello=b"") as bad:
                try:
                    bad.say(source.choice((b"", ACCEPTED, ACCEPTED + CONNECT)) + source.randbytes(2_000))
                except OSError:
                    pass
        mq.publish(topic, b"still here")
        assert [message.body for message in good.messages(1)] == [b"still here"]


# -- restarts ----------------------------------------------------------------------------------------------------------


def start_with_log(folder: Path, logged: int) -> OmqBroker:
    broker = OmqBroker(folder)
    broker.start()
    with vibemq.sync.connect(broker.url) as mq:
        mq.create_queue("ticks", mode="fan_out_without_ack", retention="log")
        mq.publish_many("ticks", numbered(1, logged))
    return broker


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_ids_go_on_after_a_restart(tmp_path: Path, how: str) -> None:
    broker = start_with_log(tmp_path, 10)
    try:
        broker.stop() if how == "stop" else broker.kill()
        broker.start()
        with vibemq.sync.connect(broker.url) as mq, Peer(broker) as peer:
            peer.subscribe("ticks", "(From_message 8)")
            mq.publish_many("ticks", numbered(11, 12))
            assert [(message.id, message.body) for message in peer.messages(5)] == [
                (number, b"%d" % number) for number in range(8, 13)
            ]
    finally:
        broker.kill()


def test_a_killed_broker_and_on_from_the_next_message(tmp_path: Path) -> None:
    logged = 30_000
    broker = start_with_log(tmp_path, logged)
    try:
        got: list[int] = []
        for until in (7_000, 19_000):
            with Peer(broker) as peer:
                peer.subscribe("ticks", f"(From_message {len(got) + 1})")
                got += [message.id for message in peer.messages(until - len(got))]
                broker.kill()
            broker.start()
        with Peer(broker) as peer:
            peer.subscribe("ticks", f"(From_message {len(got) + 1})")
            got += [message.id for message in peer.messages(logged - len(got))]
        assert got == list(range(1, logged + 1))
    finally:
        broker.kill()


def test_a_stopping_broker_says_so(tmp_path: Path) -> None:
    broker = start_with_log(tmp_path, 1)
    with Peer(broker) as peer:
        peer.subscribe("ticks")
        assert broker.stop() == 0
        [last] = peer.rest()
        assert isinstance(last, Error)
        assert last.text.startswith("shutting down: ")


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "right"), [("alice:pass word", True), ("anyone:shared", True), ("alice:wrong", False), ("alice", False)]
)
def test_credentials_in_the_id(tmp_path: Path, name: str, right: bool) -> None:
    hashed = hash_password("pass word")
    toml = f'[auth]\ntoken = "shared"\n[auth.users.alice]\npassword_hash = "{hashed}"\nsuperuser = true\n'
    broker = OmqBroker(tmp_path, toml=toml)
    with running(broker), Peer(broker, ACCEPTED + f'(Connect 1 "{name}")'.encode()) as peer:
        peer.say(b"(Subscribe anything From_current)")
        if right:
            assert peer.frame() == SubscribedFrame(Topic(1, b"anything"))
        else:
            [last] = peer.rest()
            assert isinstance(last, Error)
            assert last.text.startswith("authentication failed: ")


@pytest.mark.anyio
async def test_a_silent_client_is_closed(tmp_path: Path) -> None:
    in_thread = anyio.to_thread.run_sync
    listener = Listener(protocol="omq", port=0, settings={"ack_timeout_ms": 5_000, "ping_interval_ms": 1_000})
    settings = Settings(
        data_dir=tmp_path / "data",
        storage=StorageChoice(provider="sqlite"),
        listeners=(listener,),
        http=Http(enabled=False),
    )
    async with TimedBroker(settings=settings) as broker:
        door = Door(broker.listening[0].port)
        silent = await in_thread(lambda: Peer(door, acks=False))
        talking = await in_thread(lambda: Peer(door))
        with silent, talking:
            for number in range(1, 7):
                await in_thread(talking.subscribe, f"topic{number}", "From_current", number)
                broker.advance(1)
            assert await in_thread(silent.rest) == [Error("heartbeat timeout: no command within 5000 ms")]
            await in_thread(talking.subscribe, "anything", "From_current", 7)


def test_acks_settle_with_every_provider(tmp_path: Path) -> None:
    for provider in ("sqlite", "lmdb"):
        folder = tmp_path / provider
        folder.mkdir()
        broker = OmqBroker(folder, toml="")
        broker._provider = provider
        with running(broker), vibemq.sync.connect(broker.url) as mq, Peer(broker) as peer:
            mq.create_queue("jobs")
            mq.create_queue("ticks", mode="broadcast")
            peer.subscribe("jobs")
            mq.publish_many("jobs", numbered(1, 5))
            mq.publish_many("ticks", numbered(1, 30_000))
            assert len(peer.messages(5)) == 5
            peer.subscribe("ticks", "From_beginning", number=2)
            assert [message.body for message in peer.messages(30_000)] == numbered(1, 30_000)
            peer.read_aside()
            wait_until(lambda: mq.queue_info("jobs").in_flight == 0)
            assert mq.queue_info("jobs").ready == 0
