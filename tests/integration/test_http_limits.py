"""The HTTP port under peers that say nothing, little, or take nothing: probes and scrapes are answered all the same."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import until
from vibemq.server.broker import Broker
from vibemq.web import limits as http_limits
from vibemq.web.limits import CONNECTIONS_MAX, REPORTS_MAX, HttpConnection, Receive, RouteSlots, Scope, Send
from vibemq.web.server import MOUNT_REQUESTS_MAX, Mounts

pytestmark = pytest.mark.anyio

CEILING_S = 60


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with Broker(tmp_path / "data", storage="memory", http_port=0) as broker:
        yield broker


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def silent(broker: Broker, sockets: ExitStack, count: int) -> list[socket.socket]:
    assert broker.http_address is not None
    opened = [sockets.enter_context(socket.create_connection(broker.http_address)) for _ in range(count)]
    for each in opened:
        each.setblocking(False)
    return opened


async def status(broker: Broker, path: str) -> int:
    assert broker.http_address is not None
    async with asyncio.timeout(CEILING_S):
        reader, writer = await asyncio.open_connection(*broker.http_address)
        writer.write(b"GET %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n" % path.encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return int(answer.split()[1])


@pytest.mark.parametrize("count", [64, CONNECTIONS_MAX, 3 * CONNECTIONS_MAX])
async def test_silent_connections_take_no_probe_away(broker: Broker, sockets: ExitStack, count: int) -> None:
    silent(broker, sockets, count)
    for path in ("/livez", "/readyz", "/startupz", "/metrics", "/health/"):
        assert await status(broker, path) == 200


async def test_who_waits_over_http_is_counted(broker: Broker, sockets: ExitStack) -> None:
    """The cycle collector looks at all objects only while nobody is there."""
    assert broker.http_connection_count == 0
    silent(broker, sockets, 3)
    await until(lambda: broker.http_connection_count == 3)
    sockets.close()
    await until(lambda: broker.http_connection_count == 0)


async def test_connections_that_begin_a_header_again_and_again_take_none_away_either(
    broker: Broker, sockets: ExitStack
) -> None:
    for each in silent(broker, sockets, CONNECTIONS_MAX):
        each.send(b"GET /livez HTTP/1.1\r\nx: y")
    assert await status(broker, "/livez") == 200


async def test_a_header_has_a_deadline_that_single_bytes_do_not_move(
    tmp_path: Path, sockets: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_limits, "HEAD_TIMEOUT_S", 0.2)
    async with Broker(tmp_path / "data", storage="memory", http_port=0) as broker:
        [quiet, trickling] = silent(broker, sockets, 2)

        async def trickle() -> None:
            while True:
                await asyncio.get_running_loop().sock_sendall(trickling, b"G")
                await asyncio.sleep(0.01)

        task = asyncio.create_task(trickle())
        for each in (quiet, trickling):
            async with asyncio.timeout(CEILING_S):
                try:
                    while await asyncio.get_running_loop().sock_recv(each, 1000):
                        pass
                except ConnectionError:
                    pass
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_address_with_the_most_connections_makes_room() -> None:
    closed: list[str] = []

    class Stub(HttpConnection):
        def __init__(self, name: str, busy: bool) -> None:
            self.name, self._busy = name, busy

        @property
        def busy(self) -> bool:
            return self._busy

        def drop(self) -> None:
            closed.append(self.name)

    pool = http_limits.HttpPool(connections_max=4)
    for name, host, busy in (("probe", "a", False), ("b1", "b", True), ("b2", "b", False), ("b3", "b", False)):
        pool.add(Stub(name, busy), host)
    for number in range(3):
        pool.add(Stub(f"b{number + 4}", True), "b")
    assert closed == ["b2", "b3", "probe"]
    pool.add(Stub("late", False), "c")
    assert closed[3:] == ["b1"], "where nobody is idle, the oldest goes"
    assert (len(pool), pool.dropped) == (4, 4)


async def test_reports_take_no_slot_of_the_probes() -> None:
    going_on = asyncio.Event()
    answered: list[int] = []

    async def app(scope: object, receive: object, send: object) -> None:
        await going_on.wait()

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            answered.append(int(str(message["status"])))

    async def receive() -> None: ...

    slots: RouteSlots = http_limits.with_slots(app)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(REPORTS_MAX):
            tasks.create_task(slots({"path": "/metrics"}, receive, send))
        await asyncio.sleep(0)
        await slots({"path": "/health/"}, receive, send)
        assert answered == [503]
        probe = tasks.create_task(slots({"path": "/livez"}, receive, send))
        await asyncio.sleep(0)
        assert not probe.done(), "it is being answered"
        assert answered == [503]
        going_on.set()
    await slots({"path": "/metrics"}, receive, send)
    assert answered == [503]


async def test_mounted_applications_share_one_bound() -> None:
    """Fewer than connections: two that never answer leave idle connections, and the broker's pages are answered."""
    go = asyncio.Event()
    said: list[Any] = []

    async def stuck(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()

    async def pages(scope: Scope, receive: Receive, send: Send) -> None:
        said.append("page")

    async def send(event: Any) -> None:
        said.append(event.get("status"))

    async def receive() -> None:
        return None

    mounts = Mounts(pages)
    for prefix in ("/a", "/b"):
        mounts.mount(prefix, stuck)
    tasks = [
        asyncio.ensure_future(mounts({"path": path}, receive, send)) for path in ("/a", "/b/x") * MOUNT_REQUESTS_MAX
    ]
    await asyncio.sleep(0)
    try:
        assert said.count(503) == MOUNT_REQUESTS_MAX
        await mounts({"path": "/livez"}, receive, send)
        assert said.count("page") == 1
    finally:
        go.set()
        await asyncio.gather(*tasks)


async def exchanged(broker: Broker, request: bytes) -> bytes:
    """All that comes until the broker closes the connection."""
    assert broker.http_address is not None
    async with asyncio.timeout(CEILING_S):
        reader, writer = await asyncio.open_connection(*broker.http_address)
        writer.write(request)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer


HEAD = b"POST /livez HTTP/1.1\r\nhost: localhost\r\n"
CHUNKS = HEAD + b"transfer-encoding: chunked\r\n\r\n"
HIDDEN = b"0\r\n\r\nGET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "status_code"),
    [
        (HEAD + b"x: " + b"a" * 40_000 + b"\r\n\r\n", 431),
        (HEAD + b"x: a\r\n" * 3_000 + b"\r\n", 431),
        (HEAD + b"content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n" + HIDDEN, 400),
        (HEAD + b"x: a\r\n transfer-encoding: chunked\r\n\r\n" + HIDDEN, 400),
        (HEAD.replace(b"\r\n", b"\n") + b"\n" + HIDDEN, 400),
        (b"no request\r\n\r\n", 400),
        (HEAD + b"transfer-encoding: gzip\r\n\r\n" + HIDDEN, 501),
        (HEAD.replace(b"1.1", b"2.0") + b"\r\n" + HIDDEN, 505),
        (CHUNKS + b"2;a\rb\r\n{}\r\n" + HIDDEN, 400),
        (CHUNKS + b"2\r\n{}\r\n0\r\n\n" + HIDDEN, 400),
        (CHUNKS + b"2\r\n{}\r\n0\r\na: b\n\r\n" + HIDDEN, 400),
        (CHUNKS + b"2\r\n{}\r\n0\r\na: b\r\n c\r\n" + HIDDEN, 400),
        (CHUNKS + b"2\r\n{}" + HIDDEN, 400),
    ],
)
async def test_heads_that_are_refused_end_the_connection(
    broker: Broker, request_bytes: bytes, status_code: int
) -> None:
    answer = await exchanged(broker, request_bytes)
    assert int(answer.split()[1]) == status_code
    assert answer.count(b"HTTP/1.1 ") == 1, "what comes behind it is no request"
    assert b"\r\nconnection: close\r\n" in answer.lower()


async def test_what_cannot_be_read_behind_an_answer_ends_the_connection(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    assert broker.http_address is not None
    async with asyncio.timeout(CEILING_S):
        reader, writer = await asyncio.open_connection(*broker.http_address)
        writer.write(CHUNKS + b"2\r\n{}\r\n")
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"x\r\n" + HIDDEN)
        rest = await reader.read()
        writer.close()
        await writer.wait_closed()
    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"HTTP/1.1 " not in rest
    assert [record for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_each_request_of_a_connection_is_looked_at(broker: Broker) -> None:
    get = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n"
    answer = await exchanged(broker, get + b"\r\n" + get + b"x: a\n\r\n")
    assert [int(part.split()[0]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [200, 400]


async def test_a_body_of_very_many_chunks_is_read_to_its_end(broker: Broker) -> None:
    put = b"PUT /api/v1/queues/many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    body = b"8\r\n        \r\n" * 2_000 + b"2\r\n{}\r\n0\r\n\r\n"
    last = b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = await exchanged(broker, put + b"transfer-encoding: chunked\r\n\r\n" + body + last)
    assert [int(part.split()[0]) for part in answer.split(b"HTTP/1.1 ")[1:]] == [201, 200]


async def test_a_body_of_too_small_chunks_is_refused(broker: Broker) -> None:
    put = b"PUT /api/v1/queues/many HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    answer = await exchanged(broker, put + b"transfer-encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 8_000)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"too small for their number" in answer
