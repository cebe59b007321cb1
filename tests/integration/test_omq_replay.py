"""A long broadcast log, read by several at once from several places, and by one whose broker is killed meanwhile.

OMQ_REPLAY_MESSAGES (100,000) says how long the log is; `make interop` takes a million.
"""

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import vibemq.sync
from tests.integration.conditions import resident_mib, running
from tests.interop.omq import Message, OmqBroker, OmqWire

pytestmark = pytest.mark.slow

LOGGED = int(os.environ.get("OMQ_REPLAY_MESSAGES", "100000"))
LIVE = 10_000
"""Published while the log is read."""
TOPIC = "prices"
GROWTH_MIB_MAX = 16
"""What the broker's private memory may grow by when the log gets ten times as long and three read it at once. It holds
what is on its way: three sockets' buffers, what has been read for them, the publisher's batches."""

STORAGE = """
[storage.settings]
buffer_bytes = 2097152
segment_bytes = 4194304
checkpoint_lag_bytes = 8388608
"""
"""Small, so that even the short log is far longer than what the broker keeps in memory for a checkpoint."""


def body(number: int) -> bytes:
    """100 bytes that name the message they belong to, whose id is `number` too."""
    return b"%0100d" % number


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OmqBroker]:
    broker = OmqBroker(tmp_path, toml=STORAGE)
    with running(broker):
        with vibemq.sync.connect(broker.url) as mq:
            mq.create_queue(TOPIC, mode="broadcast", durability="weak")
        yield broker


def publish(broker: OmqBroker, first: int, last: int, *, batch: int = 10_000) -> None:
    """Numbers from first to last, each its own id."""
    with vibemq.sync.connect(broker.url) as mq:
        for start in range(first, last + 1, batch):
            mq.publish_many(TOPIC, [body(number) for number in range(start, min(start + batch, last + 1))])


class Peak:
    """The most private memory that a process has had since `start`, MiB."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._over = threading.Event()
        self.mib = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self.mib = max(self.mib, resident_mib(self._pid))


def read_share(wire: OmqWire, topic: int, first: int, last: int) -> int:
    """Read to the last message: each exactly once, in order, as it was published. How many they were."""
    expected = first
    for message in wire.messages():
        assert message == Message(expected, topic, body(expected))
        if expected == last:
            return last - first + 1
        expected += 1
    raise AssertionError(f"the broker closed after message {expected - 1} of {last}")


def test_each_subscriber_gets_its_share_and_memory_does_not_grow(broker: OmqBroker) -> None:
    publish(broker, 1, LOGGED // 10)
    short_mib = resident_mib(broker.pid)
    publish(broker, LOGGED // 10 + 1, LOGGED)
    long_mib = resident_mib(broker.pid)

    middle, last = LOGGED // 2, LOGGED + LIVE
    places = {"From_beginning": 1, f"(From_message {middle})": middle, "From_current": LOGGED + 1}
    peak = Peak(broker.pid)
    readers: dict[str, Future[int]] = {}
    with peak.watched(), ExitStack() as wires, ThreadPoolExecutor(len(places)) as pool:
        for replay, first in places.items():
            wire = wires.enter_context(OmqWire(broker.omq_port))
            readers[replay] = pool.submit(read_share, wire, wire.subscribe(TOPIC, replay), first, last)
        publish(broker, LOGGED + 1, last, batch=500)
        read = {replay: reader.result() for replay, reader in readers.items()}
    assert read == {replay: last - first + 1 for replay, first in places.items()}

    figures = {"short_mib": short_mib, "long_mib": long_mib, "peak_mib": peak.mib}
    print(json.dumps({"messages": LOGGED, **figures}))
    assert max(long_mib, peak.mib) - short_mib <= GROWTH_MIB_MAX, figures


def read_until_killed(wire: OmqWire, broker: OmqBroker, count: int) -> list[Message]:
    """Kill the broker after so many messages; everything that still came out of the socket."""
    read = []
    for message in wire.messages():
        read.append(message)
        if len(read) == count:
            broker.kill()
    return read


def test_a_client_resumes_exactly_where_the_kill_left_it(broker: OmqBroker) -> None:
    publish(broker, 1, LOGGED)
    # A small buffer: what the sockets hold still comes after the kill, and must not be the rest of the log.
    with OmqWire(broker.omq_port, receive_buffer_bytes=65_536) as wire:
        topic = wire.subscribe(TOPIC, "From_beginning")
        before = read_until_killed(wire, broker, LOGGED // 10)
    assert before == [Message(number, topic, body(number)) for number in range(1, len(before) + 1)]
    assert len(before) < LOGGED

    broker.start()
    with OmqWire(broker.omq_port) as again:
        next_one = before[-1].number + 1
        topic = again.subscribe(TOPIC, f"(From_message {next_one})")
        read_share(again, topic, next_one, LOGGED)
        # Ids go on behind the old ones.
        publish(broker, LOGGED + 1, LOGGED + 5)
        read_share(again, topic, LOGGED + 1, LOGGED + 5)
    # Nothing of the subscriber that was there when the broker died is left in it.
    with vibemq.sync.connect(broker.url) as mq:
        info = mq.queue_info(TOPIC)
    assert info is not None
    assert len(info.groups) == 1
