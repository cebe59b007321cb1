"""The real Python SDK of BlazingMQ against a broker in a process of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import pytest

import vibemq.sync
from tests.interop.blazingmq.broker import DOMAINS, PRIORITY, BlazingmqBroker
from tests.waiting import wait_until

pytest.importorskip("blazingmq", reason="BlazingMQ's SDK is not installed (pip install blazingmq, on Linux x86-64)")
checks = pytest.importorskip("tests.interop.blazingmq.checks")

pytestmark = pytest.mark.slow

RECONNECTS = int(os.environ.get("BLAZINGMQ_RECONNECTS", "2"))
KILLS_PER_PROCESS = 5
"""After each connection that does not last, the SDK waits longer before it connects again, up to a minute; a new
session begins with half a second."""
POSTS_PER_LIFE = 3_000
FURTHER = """
[protocols.blazingmq.domains.limited]
max_messages = 3
[protocols.blazingmq.domains.limited_bytes]
max_bytes = 2000
[protocols.blazingmq.domains.poison]
max_delivery_attempts = 2
redelivery_delay_ms = 20
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlazingmqBroker]:
    process = BlazingmqBroker(tmp_path_factory.mktemp("sdk"), domains=DOMAINS + FURTHER)
    process.start()
    yield process
    process.kill()
    process.wait()


class Child:
    """A process with the SDK in it. What it complains of goes to a file: an SDK whose log nobody reads stands still as
    soon as the pipe is full, with all its threads, and does not even open its queues again."""

    def __init__(self, *arguments: str) -> None:
        command: Sequence[str] = (sys.executable, "-m", "tests.interop.blazingmq.checks", *arguments)
        pipe = subprocess.PIPE
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._complaints, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.input: IO[str] = self._process.stdin
        self.output: IO[str] = self._process.stdout

    def finish(self) -> str:
        out, _ = self._process.communicate(timeout=900)
        code = self._process.returncode
        assert code == 0, f"the SDK ended with {code}: {self._complained()[-2_000:]}"
        self._complaints.close()
        return out

    def _complained(self) -> str:
        self._complaints.seek(0)
        return self._complaints.read()

    def number(self) -> int:
        """The next one that it prints."""
        line = self.output.readline()
        assert line, f"the SDK has ended early: {self._complained()[-2_000:]}"
        return int(line)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.mark.parametrize("check", [check.__name__ for check in checks.CHECKS])
def test_the_sdk(broker: BlazingmqBroker, check: str) -> None:
    Child(check, broker.address).finish()


def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(broker: BlazingmqBroker) -> None:
    uri, queue = "bmq://poison/q", "poison..q"
    with vibemq.sync.connect(broker.url) as mq:
        poster = Child("post_through_deaths", broker.address, uri, "2")
        assert poster.finish().split() == ["0", "0"]
        for _ in range(2):
            assert Child("die_over_messages", broker.address, uri).finish().split() == ["0"]
        assert Child("die_over_messages", broker.address, uri).finish().split() == ["1"]
        (letter,) = wait_until(lambda: mq.admin("dlq.list", queue=queue)["letters"])
        assert letter["reason"] == "max_attempts"


def test_kills_of_the_broker_lose_nothing_and_harm_no_sdk(tmp_path: Path) -> None:
    broker = BlazingmqBroker(tmp_path)
    broker.start()
    posted = 0
    try:
        for kills in [KILLS_PER_PROCESS] * (RECONNECTS // KILLS_PER_PROCESS) + [RECONNECTS % KILLS_PER_PROCESS]:
            posted += _live_through(broker, kills, posted)
    finally:
        broker.kill()
        broker.wait()


def _live_through(broker: BlazingmqBroker, kills: int, first: int) -> int:
    """A poster and a reader, whose broker is killed so often; returns how many messages they have passed on."""
    uri, count = f"bmq://{PRIORITY}/deaths", POSTS_PER_LIFE * (kills + 1)
    poster = Child("post_through_deaths", broker.address, uri, str(count), str(first))
    reader = Child("consume_through_deaths", broker.address, uri, str(first + count - 1))
    seen: list[int] = []
    try:
        for life in range(1, kills + 1):
            while len(seen) < life * POSTS_PER_LIFE * 2 // 3:
                seen.append(reader.number())
            broker.kill()
            broker.wait()
            broker.start()
        seen += map(int, reader.output)
        reader.finish()
        lost, restored = map(int, poster.finish().split())
    finally:
        for process in (poster, reader):
            process.kill()
    # The last confirms of the reader before may have been lost with the broker.
    seen = [number for number in seen if number >= first]
    assert set(seen) == set(range(first, first + count)), "a message that was acknowledged is lost"
    # A kill may come before the state of the last life is restored, or when the poster has nothing left to post.
    assert restored <= lost <= kills
    firsts = list(dict.fromkeys(seen))
    assert firsts == sorted(firsts), "messages of one producer come in their order"
    return count


def test_a_reader_that_is_behind_when_the_broker_dies_hears_everything_in_order(tmp_path: Path) -> None:
    broker = BlazingmqBroker(tmp_path)
    broker.start()
    uri, count = f"bmq://{PRIORITY}/behind", 1_500
    reader = Child("consume_behind", broker.address, uri, str(count - 1))
    try:
        Child("post_through_deaths", broker.address, uri, str(count)).finish()
        assert reader.output.readline() == "held\n"
        broker.kill()
        broker.wait()
        broker.start()
        reader.input.write("\n")
        reader.input.flush()
        seen = list(map(int, reader.output))
        reader.finish()
    finally:
        reader.kill()
        broker.kill()
        broker.wait()
    assert list(dict.fromkeys(seen)) == list(range(count))
    assert len(seen) > count, "nothing came again, so the reader was not behind"
