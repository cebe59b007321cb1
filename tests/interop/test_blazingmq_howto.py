"""What docs/howto/blazingmq.md shows: the program for the real SDK and its settings, as they are printed."""

import subprocess
import sys
from pathlib import Path

import pytest

import vibemq.sync
from tests.docs.pages import DOCS, blocks
from tests.integration.conditions import running
from tests.interop.blazingmq.broker import BlazingmqBroker, ModelClient

pytestmark = pytest.mark.slow

PAGE = DOCS / "howto" / "blazingmq.md"


def block(*words: str) -> str:
    (found,) = [shown.text for shown in blocks(PAGE) if shown.words == words]
    return found


def test_the_page_works_as_printed(tmp_path: Path) -> None:
    pytest.importorskip("blazingmq", reason="BlazingMQ's SDK is not installed (pip install blazingmq)")
    _, domains = block("toml").split("[protocols", 1)
    program = block("python", "sdk")
    with running(BlazingmqBroker(tmp_path, domains=f"[protocols{domains}")) as broker:
        assert isinstance(broker, BlazingmqBroker)
        assert "localhost:30114" in program
        program = program.replace("localhost:30114", f"127.0.0.1:{broker.bmq_port}")
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stderr
        assert set(done.stdout.splitlines()) == {"SUCCESS", "two shirts {'region': 'eu', 'total': 250}"}


def test_the_queue_has_the_name_that_the_page_says(tmp_path: Path) -> None:
    with running(BlazingmqBroker(tmp_path)) as broker, vibemq.sync.connect(broker.url) as mq:
        assert isinstance(broker, BlazingmqBroker)
        with ModelClient(broker.bmq_port) as client:
            client.open_reader("bmq://bmq.test.mmap.priority/orders")
            mq.publish("bmq.test.mmap.priority..orders", b"three hats", headers={"region": "us"})
            client.pushed(1)
