"""The real Python SDK of BlazingMQ against a broker in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import vibemq.sync
from tests.interop.blazingmq.broker import DOMAINS, PRIORITY, BlazingmqBroker
from tests.waiting import wait_until

pytest.importorskip("blazingmq", reason="BlazingMQ's SDK is not installed (pip install blazingmq, on Linux x86-64)")
checks = pytest.importorskip("tests.interop.blazingmq.checks")

pytestmark = pytest.mark.slow

RECONNECTS = int(os.environ.get("BLAZINGMQ_RECONNECTS", "2"))
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


def begin(*arguments: str) -> "subprocess.Popen[str]":
    command: Sequence[str] = (sys.executable, "-m", "tests.interop.blazingmq.checks", *arguments)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(child: "subprocess.Popen[str]") -> str:
    out, complaints = child.communicate(timeout=900)
    assert child.returncode == 0, f"the SDK ended with {child.returncode}: {complaints[-2_000:]}"
    return out


@pytest.mark.parametrize("check", [check.__name__ for check in checks.CHECKS])
def test_the_sdk(broker: BlazingmqBroker, check: str) -> None:
    finish(begin(check, broker.address))


def test_a_message_that_kills_its_consumers_becomes_a_dead_letter(broker: BlazingmqBroker) -> None:
    uri, queue = "bmq://poison/q", "poison..q"
    with vibemq.sync.connect(broker.url) as mq:
        poster = begin("post_through_deaths", broker.address, uri, "2")
        assert finish(poster).split() == ["0", "0"]
        for _ in range(2):
            assert finish(begin("die_over_messages", broker.address, uri)).split() == ["0"]
        assert finish(begin("die_over_messages", broker.address, uri)).split() == ["1"]
        (letter,) = wait_until(lambda: mq.admin("dlq.list", queue=queue)["letters"])
        assert letter["reason"] == "max_attempts"


def test_kills_of_the_broker_lose_nothing_and_harm_no_sdk(tmp_path: Path) -> None:
    broker = BlazingmqBroker(tmp_path)
    broker.start()
    uri = f"bmq://{PRIORITY}/deaths"
    count = POSTS_PER_LIFE * (RECONNECTS + 1)
    poster = begin("post_through_deaths", broker.address, uri, str(count))
    reader = begin("consume_through_deaths", broker.address, uri, str(count - 1))
    seen: list[int] = []
    assert reader.stdout is not None
    try:
        for life in range(1, RECONNECTS + 1):
            while len(seen) < life * POSTS_PER_LIFE * 2 // 3:
                seen.append(int(reader.stdout.readline()))
            broker.kill()
            broker.wait()
            broker.start()
        seen += map(int, reader.stdout)
        finish(reader)
        lost, restored = map(int, finish(poster).split())
    finally:
        for process in (poster, reader):
            process.kill()
        broker.kill()
        broker.wait()
    assert set(seen) == set(range(count)), "a message that was acknowledged is lost"
    # A kill may come before the state of the last life is restored, or when the poster has nothing left to post.
    assert restored <= lost <= RECONNECTS
    firsts = list(dict.fromkeys(seen))
    assert firsts == sorted(firsts), "messages of one producer come in their order"
