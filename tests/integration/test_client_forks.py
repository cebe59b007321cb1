"""Clients in forked processes: the child never waits for what only the parent has, and the parent notices nothing."""

import asyncio
import contextlib
import multiprocessing
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import RLock, Thread
from typing import Any

import anyio
import pytest

import vibemq
from tests.integration.fake_broker import QUICK, FakeBroker
from tests.integration.test_client_sync import address, serving_in_a_thread
from tests.waiting import WAIT_S, exit_code_of, wait_until
from vibemq.client.connecting import forking
from vibemq.errors import ClientForked, NotConnected, VibeMQError


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with serving_in_a_thread() as broker:
        yield broker


def in_a_child(work: Callable[[], object]) -> None:
    """Run it in a forked child. One that hangs is ended, and its exit code says so."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert exit_code_of(child) == 0


def connections_to(port: int) -> set[int]:
    """Inodes of this process's sockets, also of those that are not connected yet."""
    ours = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # The descriptor of the listing itself.
            ours.add(os.fstat(int(name)).st_ino)
    rows = [line.split() for line in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return ours & {int(row[9]) for row in rows if int(row[2].partition(":")[2], 16) == port}


def test_a_child_publishes_by_a_connection_of_its_own(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 1)

        def work() -> None:
            assert mq.publish("orders", 2).sequence == 2
            assert mq.publish("orders", 3).sequence == 3
            mq.close()
            with pytest.raises(NotConnected, match="closed"):
                mq.publish("orders", 4)

        in_a_child(work)
        assert mq.publish("orders", 5).sequence == 4
        assert mq.reconnects == 0


@pytest.mark.parametrize("use", ["nothing", "close", "leave", "drop"])
def test_a_child_ends_whatever_it_does_with_the_client(broker: FakeBroker, use: str) -> None:
    clients = [vibemq.sync.connect(address(broker))]
    clients[0].publish("orders", 1)

    def work() -> None:
        if use == "close":
            clients[0].close()
        elif use == "leave":
            clients[0].__exit__(ValueError, ValueError("of the child"), None)
        elif use == "drop":
            clients.clear()

    for _ in range(5):
        in_a_child(work)
    assert clients[0].publish("orders", 2).sequence == 2
    assert clients[0].reconnects == 0
    clients[0].close()


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_a_child_does_not_keep_the_parents_connection_open(
    broker: FakeBroker, loop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loop == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 1)
        assert connections_to(broker.port)

        def work() -> None:
            assert not connections_to(broker.port)

        in_a_child(work)


async def _connect(url: str) -> None:
    async with vibemq.connect(url):
        pass


@pytest.mark.parametrize(("scheme", "backend"), [("vibemq", "asyncio"), ("vibemqs", "asyncio"), ("vibemq", "trio")])
@pytest.mark.parametrize("reached", [False, True])
def test_a_child_does_not_keep_what_the_parent_is_connecting(scheme: str, backend: str, reached: bool) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening, contextlib.ExitStack() as peers:
        port = listening.getsockname()[1]
        if not reached:
            # The backlog is full, and nobody else is answered.
            peers.enter_context(socket.create_connection(("127.0.0.1", port)))
        before = connections_to(port)
        url = f"{scheme}://127.0.0.1:{port}"

        def connect() -> None:
            with pytest.raises(VibeMQError):
                anyio.run(_connect, url, backend=backend)

        thread = Thread(target=connect)
        thread.start()
        if reached:
            peer = peers.enter_context(listening.accept()[0])
            assert peer.recv(1), "it shakes hands"
        wait_until(lambda: connections_to(port) - before)

        def work() -> None:
            assert connections_to(port) == before

        in_a_child(work)
    thread.join()


def test_a_child_does_not_keep_what_the_parent_is_connecting_anew(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker), reconnect=QUICK) as mq:
        running = mq._running
        assert running is not None
        connection = running.client._supervisor._connection
        assert connection is not None
        broker.silent = True
        running.loop.post(lambda: connection.end("of the test"))
        wait_until(lambda: broker.accepted == 2 and len(connections_to(broker.port)) == 1)

        def work() -> None:
            assert not connections_to(broker.port)

        in_a_child(work)
        broker.silent = False
        assert mq.publish("orders", 1).sequence == 1


class CountingLock:
    """Counts who has come for it."""

    def __init__(self) -> None:
        self.came = 0
        self._lock = RLock()

    def acquire(self) -> None:
        self.came += 1
        self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    __enter__ = acquire

    def __exit__(self, *_: object) -> None:
        self.release()


def test_no_process_is_forked_while_a_socket_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    lock, made = CountingLock(), list[socket.socket]()
    monkeypatch.setattr(forking, "_making", lock)

    def work() -> None:
        [inherited] = made
        assert not stat.S_ISSOCK(os.fstat(inherited.fileno()).st_mode)

    with ThreadPoolExecutor(1) as pool:
        forks: list[Future[None]] = []

        def make(*arguments: Any) -> socket.socket:
            """It is there, another thread forks, and nobody knows of it yet."""
            made.append(original(*arguments))
            forks.append(pool.submit(in_a_child, work))
            wait_until(lambda: lock.came == 2 or forks[0].done())
            return made[0]

        original = socket.socket
        monkeypatch.setattr(socket, "socket", make)
        with forking.open_socket(socket.AF_INET):
            monkeypatch.setattr(socket, "socket", original)
            forks[0].result(WAIT_S)


def test_what_the_parent_was_given_is_refused_in_the_child(broker: FakeBroker) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish_many("orders", range(10))
        with mq.subscribe("orders", prefetch=4) as messages, mq.publisher("others") as out:
            out.send("of the parent")
            iterator = iter(messages)
            first = next(iterator)

            def work() -> None:
                for refused in (lambda: next(iterator), messages.next_batch, first.ack, lambda: next(iter(messages))):
                    with pytest.raises(ClientForked, match="connect in the child"):
                        refused()
                messages.stop()
                out.send("of the child")
                assert out.flush() == 1
                with mq.subscribe("orders") as own:
                    assert next(iter(own)).json() >= 4

            in_a_child(work)
            assert [message.ack() is not None and message.json() for message in (first, next(iterator))] == [0, 1]
            assert out.flush() == 1
        assert sorted(m.body for m in mq.fetch("others", max=9)) == ["of the child", "of the parent"]


def test_a_closed_client_stays_closed_in_the_child(broker: FakeBroker) -> None:
    mq = vibemq.sync.connect(address(broker))
    mq.close()

    def work() -> None:
        with pytest.raises(NotConnected, match="closed"):
            mq.publish("orders", 1)

    in_a_child(work)


def test_an_asynchronous_client_refuses_in_the_child(broker: FakeBroker) -> None:
    async def parent() -> None:
        async with vibemq.connect(address(broker)) as mq, mq.subscribe("orders") as messages:
            await mq.publish_many("orders", range(3))
            message = await anext(messages)

            async def use() -> None:
                for refused in (mq.ping(), mq.publish("orders", 9), anext(messages), mq.subscribe("orders").start()):
                    with pytest.raises(ClientForked, match="connect in the child"):
                        await refused
                calls = mq.flush, mq.open, messages.drain, mq.publisher("orders").__aenter__
                for call in calls:
                    with pytest.raises(ClientForked, match="connect in the child"):
                        await call()
                async with vibemq.connect(address(broker)) as own:
                    assert (await own.publish("orders", 4)).sequence == 4
                # There is nothing to wait for.
                await messages.stop()
                await mq.close()

            def work() -> None:
                # Python takes the forked child for one whose loop runs.
                asyncio.run(use())

            in_a_child(work)
            message.ack()
            assert (await mq.publish("orders", 5)).sequence == 5

    asyncio.run(parent())


def _publish_elsewhere(url: str, number: int) -> int:
    """For every start method: a module's function, with a client of its own or the parent's."""
    mq = _shared or vibemq.sync.connect(url)
    return mq.publish("orders", number).sequence


_shared: Any = None


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(broker: FakeBroker, method: str) -> None:
    global _shared
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 0)
        _shared = mq
        try:
            context = multiprocessing.get_context(method)
            with context.Pool(2) as pool:
                work = [(address(broker), number) for number in range(1, 9)]
                sequences = pool.starmap_async(_publish_elsewhere, work, chunksize=1).get(WAIT_S)
        finally:
            _shared = None
        assert sorted(sequences) == list(range(2, 10))
        assert mq.publish("orders", 9).sequence == 10


def _die(queue: str) -> None:
    _shared.publish(queue, 1)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_pool_whose_children_are_killed_goes_on(broker: FakeBroker) -> None:
    """The pool forks others in their places."""
    global _shared
    with vibemq.sync.connect(address(broker)) as mq:
        mq.publish("orders", 0)
        _shared = mq
        try:
            with multiprocessing.get_context("fork").Pool(2) as pool:
                for killed in range(1, 6):
                    pool.apply_async(_die, ("deaths",))
                    wait_until(lambda killed=killed: broker.unsettled("deaths") == killed)
                    work = [(address(broker), number) for number in range(4)]
                    pool.starmap_async(_publish_elsewhere, work, chunksize=1).get(WAIT_S)
        finally:
            _shared = None
        assert mq.publish("orders", 1).sequence == 22
        assert mq.reconnects == 0


@pytest.mark.parametrize("children", [20, pytest.param(1_000, marks=pytest.mark.long)])
def test_children_that_are_killed_are_no_concern_of_the_parent(broker: FakeBroker, children: int) -> None:
    with vibemq.sync.connect(address(broker)) as mq:
        for number in range(1, children + 1):
            child = os.fork()
            if not child:
                mq.publish("deaths", number)
                os.kill(os.getpid(), signal.SIGKILL)
            assert exit_code_of(child) == -signal.SIGKILL
            assert mq.publish("orders", number).sequence == number
        assert mq.reconnects == 0
        assert len(mq.fetch("deaths", max=1_000)) == children


def test_a_child_that_ends_like_any_program_says_nothing(broker: FakeBroker, tmp_path: Path) -> None:
    """With finalizers and exit handlers, of a client in use and of one dropped."""
    program = f"""
        import os, sys, vibemq
        mq = vibemq.sync.connect({address(broker)!r})
        other = vibemq.sync.connect({address(broker)!r})
        mq.publish("orders", 1)
        messages = mq.subscribe("orders").__enter__()
        message = next(iter(messages))
        child = os.fork()
        if child:
            _, status = os.waitpid(child, 0)
            assert status == 0, status
            mq.publish("orders", 2)
            message.ack()
        else:
            del other, messages, message
            mq.publish("orders", 3)
    """
    said = tmp_path / "said"
    with said.open("w") as stderr:
        # Not a pipe, whose end a child that hangs would keep open.
        # Python 3.12 warns of every fork in a process that has threads.
        warnings = ["-W", "default", "-W", "ignore:This process:DeprecationWarning"]
        command = [sys.executable, *warnings, "-c", textwrap.dedent(program)]
        ended = subprocess.run(command, stderr=stderr, timeout=WAIT_S, check=False, cwd=tmp_path)
    assert (ended.returncode, said.read_text()) == (0, "")
    assert broker.queue("orders").next_sequence == 4


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_an_idle_child_ends_with_the_status_that_it_gives(broker: FakeBroker, tmp_path: Path, loop: str) -> None:
    """It uses nothing of what it has inherited. Whoever connects again in the child would hide that libuv's pool has
    threads to join which only the parent has."""
    host, port = address(broker).removeprefix("vibemq://").split(":")
    program = f"""
        import asyncio, os, sys, threading
        if {loop!r} == "asyncio":
            sys.modules["uvloop"] = None
        import vibemq
        named, numbered = (vibemq.sync.connect(f"vibemq://{{host}}:{port}") for host in ("localhost", {host!r}))
        try:
            vibemq.sync.connect("vibemqs://localhost:{port}")
        except vibemq.errors.NotConnected:
            pass
        with_uvloop = {{}}
        if {loop!r} == "uvloop":
            import uvloop
            with_uvloop["loop_factory"] = uvloop.new_event_loop
        begun, end = threading.Event(), threading.Event()

        async def embed():
            async with vibemq.Broker(host="localhost") as broker, vibemq.connect(broker.url) as mq:
                await mq.publish("orders", 1)
                begun.set()
                while not end.is_set():
                    await asyncio.sleep(0.05)

        def run():
            with asyncio.Runner(**with_uvloop) as runner:
                runner.run(embed())

        thread = threading.Thread(target=run)
        thread.start()
        begun.wait()
        child = os.fork()
        if not child:
            sys.exit(7)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end.set()
        thread.join()
        named.publish("orders", 1)
        numbered.publish("orders", 2)
        sys.exit(status)
    """
    said = tmp_path / "said"
    with said.open("w") as stderr:
        command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
        ended = subprocess.run(command, stderr=stderr, timeout=WAIT_S, check=False, cwd=tmp_path)
    assert (ended.returncode, said.read_text()) == (7, "")
