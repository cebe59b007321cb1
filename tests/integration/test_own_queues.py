"""A queue of the broker's own: no user can touch it, through no protocol, no operation and no page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from anyio.to_thread import run_sync

import vibemq
from tests.integration.cursor_peer import Peer, Refusal, rows_of
from tests.integration.eventmesh_http import LOOPBACK, client, subscriber
from tests.integration.test_permissions import EXPECTED, send
from tests.interop.blazingmq.broker import ModelClient
from tests.interop.eventmesh import DIALECTS, MeshWire
from tests.interop.omq import ERROR, OmqWire
from tests.waiting import WAIT_S, until
from vibemq.auth.matrix import INSPECT, OPERATIONS
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.model.access import ResourceKind
from vibemq.protocols.blazingmq.codec.messages import OpenQueueResponse
from vibemq.protocols.eventmesh.http.push.registry import QUEUE
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.wire import CommandType, encode_body
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio

OTHER = "their.own"
"""What the same words are good for."""
OPERATIONS_ON_QUEUES = sorted(
    name
    for name, row in OPERATIONS.items()
    if any(permission.kind is ResourceKind.QUEUE and permission != INSPECT for permission in row)
)


def settings(folder: Path, *, mesh: bool = True) -> Settings:
    allowed = {"push_allowed_networks": LOOPBACK}
    listeners = [Listener(port=0), *(Listener(protocol=name, port=0) for name in ("omq", "blazingmq", "eventmesh"))]
    if mesh:
        listeners.append(Listener(protocol="eventmesh-http", port=0, settings=allowed))
    return Settings(
        data_dir=folder,
        storage=StorageChoice(provider="lmdb"),
        listeners=tuple(listeners),
        protocols={"blazingmq": {"domains": {"here": {"plain_names": True}}}},
        http=Http(port=0) if mesh else Http(enabled=False),
    )


def port_of(broker: Broker, protocol: str) -> int:
    return next(each.port for each in broker.listening if each.protocol == protocol)


def refused(attack: Callable[[], Any]) -> bool:
    try:
        attack()
    except (Refusal, ConnectionError):
        return True
    return False


def native(port: int, queue: str, forged: bytes) -> set[str]:
    """What was let through."""
    about = {"app": "app", "version": 1, "stage": "s", "chunk": 0}
    frames = {
        "publish": encode_body(CommandType.PUBLISH, "m", queue, forged),
        "subscribe": encode_body(CommandType.SUBSCRIBE, "s", queue),
        "create": encode_body(CommandType.CREATE_QUEUE, "c", queue),
        "publish many": extensions.publish_many("p", queue, rows_of(1)),
        "stage": extensions.stage("g", queue, about, rows_of(1)),
        "delete": encode_body(CommandType.DELETE_QUEUE, "d", queue),
    }
    through = set()
    for name, frame in frames.items():
        peer = Peer(port, headers={"supported-extensions": "batch/1,cursor/1,admin/1,request/1,stage/1"})
        peer.send(frame)
        body = peer.receive()
        if body[1] != CommandType.ERROR:
            through.add(name)
        peer.close()
    return through


def turned_away(refusal: Refusal) -> bool:
    """For the queue's name, or its owner."""
    return refusal.code in ("NOT_AUTHORIZED", "INVALID_QUEUE") or "is not allowed" in str(refusal)


def operations(port: int, queue: str) -> set[str]:
    """Which of them were let through, or were refused for another reason than the queue's name or ownership."""
    through = set()
    for verb in OPERATIONS_ON_QUEUES:
        peer = Peer(port)
        try:
            send(peer, verb, EXPECTED[verb], "root", lambda _: queue)
        except Refusal as refusal:
            if not turned_away(refusal):
                through.add(f"{verb}: {refusal}")
        except ConnectionError:
            continue
        else:
            through.add(verb)
        finally:
            peer.close()
    return through


def as_a_target(port: int, source: str, queue: str) -> set[str]:
    """Which operations put something into the queue."""
    through = set()
    for verb, arguments in {
        "queue.move": {"queue": source},
        "dlq.replay": {"queue": source},
        "dlq.edit": {"queue": source, "dead_id": 1, "replay": True},
        "job.start": {"kind": "replay", "filter": {"queue": source}},
        "dead.redrive": {"ids": [1]},
    }.items():
        peer = Peer(port)
        try:
            if verb.startswith("dead."):
                peer.ask(verb, source, to=queue, **arguments)
            else:
                peer.admin(verb, to=queue, **arguments)
        except Refusal as refusal:
            if not turned_away(refusal):
                through.add(f"{verb}: {refusal}")
        else:
            through.add(verb)
        finally:
            peer.close()
    return through


def omq(port: int, queue: str) -> bool:
    with OmqWire(port) as wire:
        wire.tell(f"(Subscribe {queue} From_beginning)\n")
        return next(wire.frames)[0] != ERROR


def blazingmq(port: int, queue: str) -> bool:
    with ModelClient(port) as peer:
        return isinstance(peer.ask(peer.sdk.open(f"bmq://here/{queue}", 0)), OpenQueueResponse)


def eventmesh(port: int, queue: str, forged: str) -> set[str]:
    through = set()
    for dialect in DIALECTS:
        for name in ("publish", "broadcast", "subscribe"):
            with MeshWire(port, dialect) as wire:
                wire.hello("g", "pub" if name != "subscribe" else "sub")
                if name == "publish":
                    answer = wire.publish(queue, forged)
                elif name == "broadcast":
                    answer = wire.publish(queue, forged, "BROADCAST_MESSAGE_TO_SERVER")
                else:
                    answer = wire.subscribe(queue)
                if answer.code == 0:
                    through.add(f"{dialect} {name}")
    return through


async def http(broker: Broker, queue: str, forged: str, url: str) -> set[Any]:
    through: set[Any] = set()
    batch = orjson.dumps([{"topic": queue, "msg": forged, "bizSeqNo": "1" * 30}]).decode()
    async with client(broker) as mesh:
        answers = {
            101: await mesh.send(101, topic=queue, content=forged, ttl="1000") if queue == QUEUE else {"retCode": 0},
            102: await mesh.send(102, batchId="1", size="1", producerGroup="p", contents=batch),
            104: await mesh.publish(queue, forged),
            107: await mesh.send(107, bizseqno="1", topic=queue, msg=forged, tag="", ttl="60000", producergroup="p"),
            206: await mesh.subscribe(queue, url),
        }
        posted = await mesh.http.post(f"/eventmesh/publish/{queue}", json={"forged": forged})
        if posted.json().get("retCode") == 0:
            through.add("posted")
    return through | {code for code, answer in answers.items() if answer["retCode"] == 0}


async def attacked(broker: Broker, queue: str, forged: bytes, url: str, *, mesh: bool) -> set[Any]:
    """The ways in which the queue could be touched."""
    through: set[Any] = set(await run_sync(native, port_of(broker, "native"), queue, forged))
    if await run_sync(omq, port_of(broker, "omq"), queue):
        through.add("omq")
    if await run_sync(blazingmq, port_of(broker, "blazingmq"), queue):
        through.add("blazingmq")
    through |= await run_sync(eventmesh, port_of(broker, "eventmesh"), queue, forged.decode())
    if mesh:
        through |= await http(broker, queue, forged.decode(), url)
    return through


async def own_queue(broker: Broker) -> tuple[int, int, int]:
    """Waiting, with the broker, and ever published."""
    async with vibemq.connect(broker.url) as mq:
        [info] = [info for info in await mq.list_queues() if info.name == QUEUE]
    return info.ready, info.in_flight, info.next_sequence


async def test_no_protocol_reaches_a_queue_of_the_brokers_own(tmp_path: Path) -> None:
    async with subscriber() as app, subscriber() as thief:
        fields = {"version": 1, "user": "anonymous", "token_id": "", "group": "f", "topic": "t", "url": thief.url()}
        forged = orjson.dumps({**fields, "sync": False, "beating": False})
        async with Broker(settings=settings(tmp_path)) as broker, client(broker) as mesh:
            assert (await mesh.subscribe("t", app.url()))["retCode"] == 0
            before = await own_queue(broker)
            assert before[:2] == (0, 1)
            assert await attacked(broker, QUEUE, forged, thief.url(), mesh=True) == set()
            assert await run_sync(operations, port_of(broker, "native"), QUEUE) == set()
            assert await run_sync(as_a_target, port_of(broker, "native"), OTHER, QUEUE) == set()
            assert broker.http_address is not None
            host, port = broker.http_address[:2]
            async with httpx.AsyncClient(trust_env=False, timeout=WAIT_S) as web:
                for method in ("POST", "PUT", "DELETE"):
                    page = f"http://{host}:{port}/queues/{QUEUE}"
                    assert (await web.request(method, page)).status_code in (404, 405)
            assert await own_queue(broker) == before
        async with Broker(settings=settings(tmp_path, mesh=False)) as broker:
            assert await attacked(broker, QUEUE, forged, thief.url(), mesh=False) == set()
            assert await run_sync(operations, port_of(broker, "native"), QUEUE) == set()
        without_pages = settings(tmp_path).model_copy(update={"http": Http(enabled=False)})
        async with Broker(settings=without_pages) as broker, client(broker) as mesh:
            assert (await mesh.publish("t", "x"))["retCode"] == 0
            await until(lambda: app.pushes)
            assert (await own_queue(broker))[:2] == (0, 1)
    assert not thief.pushes


async def test_the_same_words_reach_any_other_queue(tmp_path: Path) -> None:
    async with subscriber() as app, Broker(settings=settings(tmp_path)) as broker:
        through = await attacked(broker, OTHER, b"{}", app.url(), mesh=True)
        reached = await run_sync(operations, port_of(broker, "native"), OTHER)
        assert {each.partition(":")[0] for each in reached} == set(OPERATIONS_ON_QUEUES)
        assert len(await run_sync(as_a_target, port_of(broker, "native"), OTHER, "their.target")) == 5
    assert through >= {"publish", "subscribe", "create", "publish many", "omq", "blazingmq", "posted"}
    assert through >= {101, 102, 104, 107, 206}
    assert through >= {f"{dialect} {name}" for dialect in DIALECTS for name in ("publish", "subscribe")}
