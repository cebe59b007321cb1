"""How blocking clients end that the program has not closed: what it has published is confirmed first."""

import gc
import logging
import multiprocessing
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.fake_broker import FakeBroker
from tests.integration.test_client_forks import in_a_child
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.waiting import WAIT_S, wait_until
from vibemq import sync
from vibemq.sync import open_client

SENT = 100


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    before = set(open_client._open)
    with serving_in_a_thread() as broker:
        yield broker
        wait_until(lambda: open_client._open <= before)


def publish(mq: sync.Client) -> None:
    for number in range(SENT):
        mq.publish("orders", number, wait=False)


def run(program: str, folder: Path, *arguments: str) -> str:
    """As a program of its own; what it says."""
    Path(folder, "program.py").write_text(textwrap.dedent(program))
    said = folder / "said"
    with said.open("w") as stderr:
        # Not a pipe, whose end a child that hangs would keep open.
        command = [sys.executable, "program.py", *arguments]
        ended = subprocess.run(command, stderr=stderr, timeout=WAIT_S, check=False, cwd=folder)
    assert ended.returncode == 0, said.read_text()
    return said.read_text()


@pytest.mark.parametrize(
    "program",
    [
        "def main(): publish(connect())\nmain()",
        "class Shop:\n    def __init__(self): self.mq, self.me = connect(), self\npublish(Shop().mq)",
        "thread = threading.Thread(target=lambda: publish(connect()))\nthread.start()\nthread.join()",
    ],
    ids=["local", "in a cycle", "thread"],
)
def test_a_client_that_the_program_has_dropped_ends_behind_its_confirms(
    broker: FakeBroker, tmp_path: Path, program: str
) -> None:
    begin = f"""
        import threading
        import vibemq.sync

        def connect():
            return vibemq.sync.connect({address(broker)!r})

        def publish(mq):
            for number in range({SENT}):
                mq.publish("orders", number, wait=False)

    """
    assert run(textwrap.dedent(begin) + program, tmp_path) == ""
    assert broker.unsettled("orders") == SENT


def test_a_dropped_client_has_neither_thread_nor_connection_any_more(broker: FakeBroker) -> None:
    mq = sync.connect(address(broker))
    loop = mq._current().loop
    publish(mq)
    assert broker.sessions
    del mq
    loop.join()
    wait_until(lambda: not broker.sessions)
    assert broker.unsettled("orders") == SENT


def test_a_client_whose_loop_is_over_is_forgotten(broker: FakeBroker) -> None:
    mq = sync.connect(address(broker))
    mq._current().loop.close()
    assert mq._running in open_client._open
    del mq


def test_a_client_may_be_dropped_in_its_own_thread(broker: FakeBroker) -> None:
    kept = [sync.connect(address(broker))]
    publish(kept[0])
    loop = kept[0]._current().loop
    loop.post(kept.clear)
    loop.join()
    assert broker.unsettled("orders") == SENT


def test_many_clients_are_dropped_while_the_collector_runs(broker: FakeBroker) -> None:
    loops = []
    for _ in range(10):
        mq: Any = sync.connect(address(broker))
        mq.itself = mq
        publish(mq)
        loops.append(mq._current().loop)
    del mq
    threads = [threading.Thread(target=gc.collect) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in [*threads, *loops]:
        thread.join()
    assert broker.unsettled("orders") == 10 * SENT


def test_what_a_client_has_given_out_keeps_it(broker: FakeBroker) -> None:
    def connect() -> sync.Client:
        return sync.connect(address(broker))

    out = connect().publisher("orders")
    for number in range(4):
        out.send(number)
    assert out.flush() == 4
    [message] = connect().fetch("orders")
    message.ack()
    wait_until(lambda: broker.unsettled("orders") == 3)
    with connect().subscribe("orders", prefetch=2) as messages:
        second = next(iter(messages))
        second.ack()
        wait_until(lambda: broker.unsettled("orders") == 2)
        assert len(broker.sessions) == 3
    del out, message, messages, second
    wait_until(lambda: not broker.sessions)
    assert len(broker.queue("orders").ready) == 2


def test_what_fails_when_nobody_is_left_is_logged(
    broker: FakeBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A child that is forked meanwhile neither waits for it nor touches its connection."""
    broker.refuse_bodies = b"7"
    mq = sync.connect(address(broker))
    with caplog.at_level(logging.ERROR, "vibemq.sync"):
        running = mq._current()
        hold, held = threading.Event(), threading.Event()
        running.loop.post(lambda: (held.set(), hold.wait(WAIT_S)))
        publish(mq)
        del mq
        assert held.wait(WAIT_S)

        def work() -> None:
            assert not open_client._open
            open_client._close_all()

        in_a_child(work)
        hold.set()
        running.loop.join()
    [record] = caplog.records
    assert record.exc_info
    assert "19 messages of earlier publish(wait=False) failed" in str(record.exc_info[1])
    assert broker.unsettled("orders") == SENT - 19


# -- children of multiprocessing --------------------------------------------------------------------------------------

WORKERS = """
    import multiprocessing.util, sys, threading
    import vibemq.sync

    URL, METHOD, KIND = sys.argv[1:]
    mq = vibemq.sync.connect(URL) if KIND != "of the worker" else None

    def publish(queue):
        for number in range(100):
            mq.publish(queue, number, wait=False)

    def publish_later():
        main_is_over.wait()
        publish("late")

    def work():
        global mq
        mq = mq or vibemq.sync.connect(URL)
        if KIND == "with a thread":
            global main_is_over
            main_is_over = threading.Event()
            # Of a lower priority than any other.
            multiprocessing.util.Finalize(None, main_is_over.set, exitpriority=-1_000)
            threading.Thread(target=publish_later).start()
        publish("orders")
        [message] = mq.fetch("jobs")
        message.ack()

    if __name__ == "__main__":
        worker = multiprocessing.get_context(METHOD).Process(target=work)
        worker.start()
        worker.join()
        sys.exit(worker.exitcode)
"""


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("fork", "of the module"),
        ("fork", "of the worker"),
        ("fork", "with a thread"),
        ("forkserver", "of the module"),
        ("spawn", "of the worker"),
    ],
)
def test_a_worker_ends_behind_its_confirms(broker: FakeBroker, tmp_path: Path, method: str, kind: str) -> None:
    with sync.connect(address(broker)) as mq:
        mq.publish("jobs", 1)
        assert run(WORKERS, tmp_path, address(broker), method, kind) == ""
        wait_until(lambda: len(broker.sessions) == 1)
    assert broker.unsettled("orders") == SENT
    assert broker.unsettled("late") == (SENT if kind == "with a thread" else 0)
    assert broker.unsettled("jobs") == 0


def test_a_worker_logs_what_has_failed(broker: FakeBroker, tmp_path: Path) -> None:
    broker.refuse_bodies = b"7"
    with sync.connect(address(broker)) as mq:
        mq.publish("jobs", 1)
        said = run(WORKERS, tmp_path, address(broker), "fork", "of the module")
    assert "PublishFailed: 19 messages of earlier publish(wait=False) failed" in said
    assert broker.unsettled("orders") == SENT - 19


def _publish_and_go(url: str) -> None:
    publish(sync.connect(url))


def test_workers_of_a_program_that_has_clients_itself(broker: FakeBroker) -> None:
    """And is forked again and again: neither the finalizers nor what `multiprocessing` calls gathers."""
    with sync.connect(address(broker)) as mq:
        context = multiprocessing.get_context("fork")
        for _ in range(3):
            worker = context.Process(target=_publish_and_go, args=(address(broker),))
            worker.start()
            worker.join(WAIT_S)
            assert worker.exitcode == 0
            with sync.connect(address(broker)) as other:
                publish(other)
        publish(mq)
    assert broker.unsettled("orders") == 7 * SENT
    from multiprocessing import util

    registry = util._afterfork_registry  # type: ignore[attr-defined]
    assert len([key for key in registry if key[2] is open_client._become_a_worker]) == 1
