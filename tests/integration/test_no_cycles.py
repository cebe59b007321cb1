"""What ends in a broker is free at once: it leaves no cycle to the collector, which looks at old objects hardly ever.

Each test lets very many things of one kind come and go while the collector is off, and then has it find what is left.
"""

import asyncio
import gc
import struct
import types
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio import to_thread
from pydantic import SecretStr

import vibemq
from tests.integration.access import PASSWORD, cheap_hash
from tests.interop.blazingmq.broker import ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.waiting import until
from vibemq.config import Auth, Http, Limits, Listener, Settings, User
from vibemq.errors import VibeMQError
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.broker import Broker
from vibemq.server.commit.release_order import Hold, ReleaseQueue
from vibemq.server.net import transport

pytestmark = pytest.mark.anyio

TIMES = 20
BROKERS = (
    "vibemq.server",
    "vibemq.engine",
    "vibemq.operations",
    "vibemq.storage",
    "vibemq.web",
    "vibemq.protocols",
    "starlette",
    "uvicorn",
    "h11",
    "json",
)
"""Modules that no client in this process uses, but for the codecs of the protocols."""
HELLO = {"supported-extensions": "batch/1,settle/1"}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    listeners = Listener(port=0), Listener(port=0, protocol="omq"), Listener(port=0, protocol="blazingmq")
    protocols = {"blazingmq": {"domains": {"d": {}}}}
    http = Http(port=0, requests_per_second=0)
    settings = Settings(data_dir=tmp_path / "data", listeners=listeners, protocols=protocols, http=http)
    async with Broker(settings=settings) as broker:
        yield broker


def module_of(thing: object) -> str:
    """Of the class of an object, of a function, or of the code that a frame runs."""
    if isinstance(thing, types.FrameType):
        return str(thing.f_globals.get("__name__", ""))
    return thing.__module__ if isinstance(thing, types.FunctionType) else type(thing).__module__


def is_a_brokers(module: str) -> bool:
    return module.startswith(BROKERS) and ".codec" not in module


@contextmanager
def no_cycles(*, of_clients: str = "-") -> Iterator[None]:
    """`of_clients`: a module whose objects a client in this process leaves, too."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        modules = ((thing, module_of(thing)) for thing in gc.garbage)
        brokers = (one for one, module in modules if is_a_brokers(module) and not module.startswith(of_clients))
        found = Counter(getattr(thing, "__qualname__", type(thing).__qualname__) for thing in brokers)
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert found == {}


async def all_gone(broker: Broker) -> None:
    await until(lambda: broker.connection_count == 0)
    # What the last of them had begun ends within a few turns of the loop.
    for _ in range(100):
        await asyncio.sleep(0)


async def raw(port: int, data: bytes, *, answer: bool) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    if answer:
        await reader.read(10)
    writer.transport.abort()


async def test_connections_and_their_subscriptions(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("jobs")
        await mq.create_queue("news", mode="fan_out_with_ack")
    await all_gone(broker)
    with no_cycles():
        for _ in range(TIMES):
            async with (
                vibemq.connect(broker.url) as mq,
                mq.subscribe("jobs") as jobs,
                mq.subscribe("news") as news,
            ):
                await mq.publish("jobs", b"x")
                await mq.publish("news", b"x")
                for subscription in (jobs, news):
                    async for message in subscription:
                        await message.ack()
                        break
        await all_gone(broker)


async def test_peers_that_hang_up_or_break_the_protocol(broker: Broker) -> None:
    body = encode_body(CommandType.CONNECT, "c", "", b"", HELLO)
    native, omq, _ = (listening.port for listening in broker.listening)
    with no_cycles():
        for _ in range(TIMES):
            await raw(native, b"", answer=False)
            await raw(native, b"\0\0\0\x09\x00123456789", answer=True)
            await raw(native, b"GET / HTTP/1.1\r\n\r\n", answer=True)
            await raw(native, struct.pack("!IB", len(body), 0) + body, answer=True)
            await raw(omq, b"nonsense", answer=False)
            await raw(omq, b"\0\0\0\0\0\0\0\x02()", answer=True)
        await all_gone(broker)


@pytest.mark.parametrize("answer", [False, True], ids=["that the peer ends", "that the broker ends"])
async def test_no_timer_keeps_a_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch, answer: bool) -> None:
    """A thousand in a second that came and went would all be there, for the collector to look at."""
    monkeypatch.setattr(transport, "LINGER_S", 3600.0)
    before = connections_in_memory()
    for _ in range(TIMES):
        await raw(broker.port, b"GET / HTTP/1.1\r\n\r\n" if answer else b"", answer=answer)
    await all_gone(broker)
    await until(lambda: connections_in_memory() <= before)


def connections_in_memory() -> int:
    gc.collect()  # The streams of the peers, which are in this process, too.
    # uvloop's transports keep their protocol, asyncio's do not.
    return sum(isinstance(thing, transport.Connection | asyncio.Transport) for thing in gc.get_objects())


def use_blazingmq(port: int, *, unanswered: bool) -> None:
    """`unanswered`: hang up behind requests whose answers nobody has waited for."""
    with ModelClient(port) as client:
        client.open_reader("bmq://d/q", flags=READ | WRITE)
        client.post_and_wait(0, b"x", b"y")
        client.pushed(2)
        client.ask(client.sdk.configure(0, messages=5))
        client.say(client.sdk.confirm(0, *(push.guid for push in client.sdk.got.pushes)))
        if unanswered:
            requests = (client.sdk.post(0, b"z"), client.sdk.close(0)[1], client.sdk.disconnect()[1])
            client.say(b"".join(requests))
        else:
            client.ask(client.sdk.close(0))
            client.disconnect()


@pytest.mark.parametrize("unanswered", [False, True])
async def test_blazingmq_clients(broker: Broker, unanswered: bool) -> None:
    port = broker.listening[2].port
    await to_thread.run_sync(partial(use_blazingmq, port, unanswered=False))
    await all_gone(broker)
    with no_cycles():
        for _ in range(TIMES):
            await to_thread.run_sync(partial(use_blazingmq, port, unanswered=unanswered))
        await all_gone(broker)


async def test_queues_that_are_deleted_with_their_consumers_and_messages(broker: Broker) -> None:
    with no_cycles():
        async with vibemq.connect(broker.url) as mq:
            for number in range(TIMES):
                queue = f"queue-{number}"
                await mq.create_queue(queue, mode="fan_out_with_ack" if number % 2 else "round_robin")
                await mq.publish_many(queue, [b"x"] * 10)
                async with mq.subscribe(queue) as subscription, mq.subscribe(queue, group="other"):
                    async for message in subscription:
                        await message.reject("no")
                        break
                    await mq.delete_queue(queue)
        await all_gone(broker)


async def test_operations_and_their_refusals(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("history", retention="log")
        with no_cycles():
            for number in range(TIMES):
                group = f"group-{number}"
                await mq.admin("group.join", queue="history", group=group)
                await mq.admin("group.list", queue="history")
                await mq.admin("group.delete", queue="history", group=group)
                await mq.admin("queue.list")
                await mq.admin("connections.list")
                await mq.admin("broker.metrics")
                refused: list[tuple[str, dict[str, str]]] = [
                    ("queue.info", {}),
                    ("group.offsets", {"queue": "none", "group": "x"}),
                    ("group.seek", {"queue": "none", "group": "x", "start": "latest"}),
                    ("dlq.show", {"queue": "none"}),
                    ("transaction.commit", {}),
                    ("nonsense", {}),
                ]
                for name, arguments in refused:
                    with suppress(VibeMQError):
                        await mq.admin(name, **arguments)
                with suppress(VibeMQError):
                    await mq.publish("!", b"x")


async def test_pages_of_the_http_server(broker: Broker) -> None:
    assert broker.http_address is not None
    address = f"http://{broker.http_address[0]}:{broker.http_address[1]}"

    def ask(path: str) -> None:
        with suppress(urllib.error.HTTPError), urllib.request.urlopen(address + path, timeout=60) as answer:
            answer.read()

    paths = "/livez", "/readyz", "/startupz", "/health/", "/metrics/", "/metrics/prometheus", "/nothing"
    with no_cycles():
        for _ in range(TIMES):
            for path in paths:
                await to_thread.run_sync(ask, path)


async def test_the_http_api_and_its_refusals(broker: Broker) -> None:
    asked: list[tuple[str, str, dict[str, Any] | bytes | None]] = [
        ("GET", "/overview", None),
        ("GET", "/queues/none", None),
        ("GET", "/openapi.json", None),
        ("PUT", "/queues/q", {}),
        ("PUT", "/queues/q", {"max_attempts": 9}),
        ("PUT", "/queues/q", {"nonsense": 9}),
        ("POST", "/queues/q/messages?lines=1", {}),
        ("POST", "/queues/q/deliveries", {"max": 1, "wait_ms": 0}),
        ("POST", "/queues/own/deliveries", {"max": 1, "wait_ms": 0}),
        ("PUT", "/queues/full", {"max_messages": 1}),
        ("POST", "/queues/full/messages", b"x"),
        ("POST", "/deliveries", {"settlements": [{"lease": "x", "verb": "ack"}]}),
        ("POST", "/dead-letters/preview", {"filter": {"queue": "none"}}),
        ("DELETE", "/queues/q?at_most=-1", None),
        ("DELETE", "/queues/q", None),
        ("GET", "/nothing", None),
        ("PATCH", "/jobs/77", {"state": "paused"}),
    ]
    async with vibemq.connect(broker.url) as mq, client_of(broker) as http:
        await mq.create_queue("own", exclusive=True)
        await every(http, asked)
        with no_cycles(of_clients="h11"):
            for _ in range(TIMES):
                await every(http, asked)


async def test_jobs(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq, client_of(broker) as http:
        await mq.create_queue("q", max_attempts=1)

        async def jobs() -> None:
            await mq.publish_many("q", [b"x"] * 3)
            async with mq.subscribe("q") as subscription:
                for _ in range(3):
                    (await anext(subscription)).reject("no")
            for kind in ("replay", "purge_dead"):
                body = {"kind": kind, "filter": {"queue": "q"}, "rate": 1}
                job = (await http.post("/jobs", json=body)).json()["job"]
                for state in ("paused", "running", "cancelled", "running"):
                    await http.patch(f"/jobs/{job}", json={"state": state})
            await http.post("/jobs", json={"kind": "purge_dead", "filter": {"queue": "q"}})
            await until(lambda: not broker._running().job_runner._workers)

        await jobs()
        with no_cycles(of_clients="h11"):
            for _ in range(5):
                await jobs()


async def test_logins_over_http(tmp_path: Path) -> None:
    auth = Auth(users={"ann": User(password_hash=SecretStr(cheap_hash()), superuser=True)})
    http_settings = Http(port=0, requests_per_second=0)
    settings = Settings(data_dir=tmp_path / "data", listeners=(Listener(port=0),), http=http_settings, auth=auth)
    async with Broker(settings=settings) as broker, client_of(broker) as http:

        async def come_and_go() -> None:
            for password in (PASSWORD, "wrong"):
                await http.post("/session", json={"user": "ann", "password": password})
            await http.delete("/session")

        await come_and_go()
        with no_cycles(of_clients="h11"):
            for _ in range(3):
                await come_and_go()


async def test_streams_that_are_closed(broker: Broker) -> None:
    async with client_of(broker) as http:
        await http.put("/queues/q", json={})

        async def look() -> None:
            for path in ("/events?topic=overview&topic=queues", "/queues/q/tail"):
                async with http.stream("GET", path) as answer:
                    await anext(answer.aiter_raw())

        await look()
        with no_cycles(of_clients="h11"):
            for _ in range(5):
                await look()
            for _ in range(100):
                await asyncio.sleep(0)


def client_of(broker: Broker) -> httpx.AsyncClient:
    assert broker.http_address is not None
    host, port = broker.http_address
    address = f"http://{host}:{port}/api/v1"
    return httpx.AsyncClient(base_url=address, headers={"Sec-Fetch-Site": "same-origin"}, timeout=60, trust_env=False)


async def every(http: httpx.AsyncClient, asked: list[tuple[str, str, dict[str, Any] | bytes | None]]) -> None:
    for method, path, body in asked:
        if isinstance(body, bytes):
            await http.request(method, path, content=body, headers={"content-type": "application/octet-stream"})
        else:
            await http.request(method, path, **({} if body is None else {"json": body}))


@pytest.mark.parametrize("data", [b"no request\r\n\r\n", b"GET / HTTP/1.1\r\nHost\r\n\r\n", b"GET / HTTP/9\r\n\r\n"])
async def test_bytes_that_are_no_http_request(broker: Broker, data: bytes) -> None:
    assert broker.http_address is not None
    _, port = broker.http_address
    with no_cycles():
        for _ in range(TIMES):
            await raw(port, data, answer=True)
        assert broker._listeners.web is not None
        pool = broker._listeners.web.pool
        await until(lambda: not len(pool))
        await all_gone(broker)


def leave_a_cycle() -> None:
    queue = ReleaseQueue(print)
    queue._holds.append(Hold(queue, [], is_open=True))


def test_a_cycle_is_found() -> None:
    with pytest.raises(AssertionError, match="ReleaseQueue"), no_cycles():
        leave_a_cycle()


@pytest.mark.parametrize("protocol", ["native", "omq"])
async def test_wrong_credentials(tmp_path: Path, protocol: str) -> None:
    settings = Settings(
        data_dir=tmp_path / "data",
        listeners=(Listener(port=0, protocol=protocol),),
        http=Http(enabled=False),
        auth=Auth(token="a secret of sixteen and more"),
        limits=Limits(connections_per_ip_per_minute=0),
    )
    connect = encode_body(CommandType.CONNECT, "c", "", b"", {"authToken": "wrong"})
    asked = {
        "native": struct.pack("!IB", len(connect), 0) + connect,
        "omq": struct.pack("!q", 1) + b"(Connect 1 peer:wrong)\n",
    }
    async with Broker(settings=settings) as broker:
        with no_cycles():
            for _ in range(TIMES):
                await raw(broker.port, asked[protocol], answer=True)
            await all_gone(broker)
        metrics = broker._running().socket_services.metrics
        # After some failures, connections of the same address are turned away at times.
        assert metrics.auth_failures + metrics.connections_rejected >= TIMES
        assert metrics.auth_failures >= TIMES // 4


async def test_commands_that_the_engine_refuses(broker: Broker) -> None:
    async with vibemq.connect(broker.url) as mq:
        with no_cycles():
            for _ in range(TIMES):
                with suppress(VibeMQError):
                    await mq.admin("queue.change", queue="missing", changes={"max_messages": 5})


@pytest.mark.parametrize("kind", [CommandType.PUBLISH, CommandType.SUBSCRIBE, CommandType.DELETE_QUEUE])
async def test_commands_of_a_user_without_rights(tmp_path: Path, kind: CommandType) -> None:
    nobody = User(password_hash=cheap_hash())
    settings = Settings(
        data_dir=tmp_path / "data",
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auth=Auth(users={"nobody": nobody}),
        limits=Limits(connections_per_ip_per_minute=0),
    )
    headers = {"authUsername": "nobody", "authPassword": PASSWORD}
    bodies = encode_body(CommandType.CONNECT, "c", headers=headers), encode_body(kind, "r", "q", b"x")
    async with Broker(settings=settings) as broker:
        with no_cycles():
            for _ in range(TIMES):
                await refused(broker.port, bodies)
            await all_gone(broker)


async def refused(port: int, bodies: tuple[bytes, ...]) -> None:
    """A connection whose last frame is answered with an error."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    for body in bodies:
        writer.write(struct.pack("!IB", len(body), 0) + body)
        size, _ = struct.unpack("!IB", await reader.readexactly(5))
        answer = await reader.readexactly(size)
    assert answer[1] == CommandType.ERROR
    writer.transport.abort()


async def test_topics_that_are_refused(broker: Broker) -> None:
    port = broker.listening[1].port
    asked = struct.pack("!q", 1) + b'(Connect 1 a)\n(Subscribe "!" From_current)\n'
    with no_cycles():
        for _ in range(TIMES):
            await raw(port, asked, answer=True)
        await all_gone(broker)
