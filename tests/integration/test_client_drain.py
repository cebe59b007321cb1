"""Ending gracefully: nothing that a program has in hand is delivered again. Against real brokers."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.docs.pages import REPOSITORY, blocks
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.names import queue_named_after
from tests.waiting import WAIT_S, until, wait_until
from vibemq.errors import LocalProtocolError

EACH = 200
"""For workers; three of them, each a process, handle these."""
PAGE = REPOSITORY / "docs/howto/processes.md"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path_factory.mktemp("broker"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    return queue_named_after(request)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_what_is_in_hand_is_settled_and_the_rest_given_back(broker: BrokerProcess, queue: str) -> None:
    async with vibemq.connect(broker.url) as mq, anyio.create_task_group() as tasks:
        await mq.publish_many(queue, range(100))
        given = []
        drained: list[int] = []

        async def drain() -> None:
            drained.append(await messages.drain())

        async with mq.subscribe(queue, prefetch=50) as messages:
            async for message in messages:
                given.append(message)
                if len(given) == 10:
                    tasks.start_soon(drain)
                    await until(lambda: messages._stopped)
            assert [message.body for message in given] == list(range(10))
            await mq.publish(queue, "not for this one")
            assert (drained, messages.held > 0) == ([], True)
            assert await messages.drain(timeout=0) == messages.held
            for message in given:
                await message.ack()
            await until(lambda: drained)
            assert (drained, messages.held) == ([0], 0)
            info = await mq.queue_info(queue)
            assert info is not None
            assert (info.ready, info.in_flight) == (91, 0)
        rest = await mq.fetch(queue, max=100, timeout=0)
        assert [message.body for message in rest] == [*range(10, 100), "not for this one"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_what_is_still_in_hand_at_the_end_of_the_block_is_given_back(broker: BrokerProcess, queue: str) -> None:
    async with vibemq.connect(broker.url) as mq, anyio.create_task_group() as tasks:
        await mq.publish_many(queue, range(5))
        async with mq.subscribe(queue) as messages:
            await anext(messages)
            assert await messages.drain(timeout=0) > 0
            tasks.start_soon(messages.drain)
        await mq.ping()
        assert [message.body for message in await mq.fetch(queue, max=10, timeout=60)] == list(range(5))


def test_a_thread_that_drains_waits_for_the_one_that_works(broker: BrokerProcess, queue: str) -> None:
    done: list[int] = []
    with vibemq.sync.connect(broker.url) as mq:
        mq.publish_many(queue, range(100))
        with mq.subscribe(queue, prefetch=50) as messages:
            ten, go_on = threading.Event(), threading.Event()

            def work() -> None:
                for message in messages:
                    with message.process():
                        if len(done) == 9:
                            ten.set()
                            go_on.wait(60)
                        done.append(message.body)

            worker = threading.Thread(target=work)
            worker.start()
            ten.wait(60)
            assert messages.drain(timeout=0) > 0
            go_on.set()
            assert messages.drain() == 0
            worker.join(60)
        assert done == list(range(10))
        info = mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight) == (90, 0)


def test_the_thread_that_works_only_begins(broker: BrokerProcess, queue: str) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        mq.publish_many(queue, range(100))
        seen = []
        with mq.subscribe(queue, prefetch=50) as messages:
            for message in messages:
                with message.process():
                    seen.append(message.body)
                    with pytest.raises(LocalProtocolError, match=r"write drain\(timeout=0\)"):
                        messages.drain()
                    if len(seen) == 3:
                        messages.drain(timeout=0)
        assert seen == [0, 1, 2]
        assert [message.body for message in mq.fetch(queue, max=100, timeout=60)] == list(range(3, 100))


def _with_another_signal(program: str) -> str:
    """One more SIGTERM when the iteration has ended: in the block of the client, or behind that of the blocking one."""
    start = "\n\nasyncio.run(main())"
    if start not in program:
        return program + "\nsignal.raise_signal(signal.SIGTERM)\n"
    return program.replace(
        start, f"        signal.raise_signal(signal.SIGTERM)\n        await asyncio.sleep(0)\n{start}"
    )


@pytest.mark.parametrize("kind", ["asyncio", "vibemq.sync"])
def test_a_worker_that_is_told_to_end(broker: BrokerProcess, tmp_path: Path, kind: str) -> None:
    """The programs of the documentation: nothing is handled twice, nothing is left unhandled."""
    [program] = [block.text for block in blocks(PAGE) if "SIGTERM" in block.text and f"import {kind}" in block.text]
    queue = f"jobs-{kind}"
    program = program.replace("vibemq://localhost", broker.url).replace('"jobs"', f'"{queue}"')
    Path(tmp_path, "worker.py").write_text(_with_another_signal(program))
    handled = Path(tmp_path, "handled.txt")
    with vibemq.sync.connect(broker.url) as mq:
        for published, handles in ((0, 20), (EACH, 20), (2 * EACH, EACH)):
            # For each worker anew: one that is quick waits for more, and listens to signals.
            mq.publish_many(queue, range(published, published + EACH))
            with (
                Path(tmp_path, "errors.txt").open("w") as errors,
                subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, env=os.environ, stderr=errors) as worker,
            ):
                try:
                    lines = lambda: handled.read_text().split() if handled.exists() else []  # noqa: E731
                    # This worker's: one that has handled none may not listen to signals yet.
                    enough = published + EACH if handles == EACH else len(lines()) + handles
                    wait_until(lambda: len(lines()) >= enough)  # noqa: B023
                    worker.send_signal(signal.SIGTERM)
                    assert worker.wait(60) == 0
                finally:
                    worker.kill()
            assert Path(tmp_path, "errors.txt").read_text() == ""
        assert sorted(map(int, lines())) == list(range(3 * EACH))
        info = mq.queue_info(queue)
        assert info is not None
        assert (info.ready, info.in_flight, info.delayed) == (0, 0, 0)


def test_vibemq_sub_ends_gracefully(broker: BrokerProcess, queue: str, commands: Path) -> None:
    command = [str(commands / "vibemq"), "sub", queue, "--follow", "--drain", "--url", broker.url]
    with vibemq.sync.connect(broker.url) as mq:
        # A pipe has no room for all: nobody reads it, so some are left.
        mq.publish_many(queue, (b"%200d" % number for number in range(5_000)))
        printed: list[str] = []
        for _ in range(2):
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sub:
                assert sub.stdout is not None
                assert sub.stderr is not None
                printed.append(sub.stdout.readline())
                sub.send_signal(signal.SIGTERM)
                printed += sub.stdout.read().split()
                notes = sub.stderr.read()
                assert (sub.wait(60), "Traceback" in notes) == (0, False)
        left = mq.fetch(queue, max=5_000, timeout=0)
        assert sorted([*map(int, printed), *(message.body for message in left)]) == list(range(5_000))


@contextmanager
def sub_in_a_pipe(commands: Path, queue: str, url: str) -> Iterator["subprocess.Popen[bytes]"]:
    """`vibemq sub --follow --drain` that has begun to print; nothing reads its output."""
    command = [str(commands / "vibemq"), "sub", queue, "--follow", "--drain", "--url", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as sub:
        try:
            assert sub.stdout is not None
            assert os.read(sub.stdout.fileno(), 1)
            yield sub
        finally:
            sub.kill()


def test_vibemq_sub_ends_while_the_broker_is_away(commands: Path) -> None:
    with contextlib.ExitStack() as stack:
        with serving_in_a_thread() as gone:
            with vibemq.sync.connect(address(gone)) as mq:
                mq.publish("orders", 1)
            sub = stack.enter_context(sub_in_a_pipe(commands, "orders", address(gone)))
        assert sub.stderr is not None
        assert b"no connection" in sub.stderr.readline()
        sub.send_signal(signal.SIGTERM)
        said = sub.stderr.read()
        assert (sub.wait(WAIT_S), b"error" in said) == (0, False), said


def test_vibemq_sub_ends_gracefully_when_nobody_reads_its_output(
    broker: BrokerProcess, queue: str, commands: Path
) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        mq.publish_many(queue, ["x" * 1_000] * 2_000)
        with sub_in_a_pipe(commands, queue, broker.url) as sub:
            # More than a pipe holds is printed, so that it waits for a reader.
            sub.send_signal(signal.SIGTERM)
            assert sub.wait(WAIT_S) == 0
        info = mq.queue_info(queue)
        assert info is not None
        assert (info.ready > 1_000, info.in_flight) == (True, 0)


def test_vibemq_sub_ends_without_a_word_when_its_reader_has_gone(
    broker: BrokerProcess, queue: str, commands: Path
) -> None:
    with vibemq.sync.connect(broker.url) as mq:
        mq.publish_many(queue, ["x" * 1_000] * 2_000)
    with sub_in_a_pipe(commands, queue, broker.url) as sub:
        assert sub.stdout is not None
        assert sub.stderr is not None
        sub.stdout.close()
        assert (sub.wait(WAIT_S), sub.stderr.read()) == (1, b"")
