"""What hostile, broken or very large EventMesh clients cost, over TCP and HTTP: after each attack how long the event
loop was held at most, in processor time of its thread and as on the machine of `tests/watchdog.py`, how much memory the
broker has gained, and whether another client's messages are still acknowledged.

    python -m bench.eventmesh_hostile [ATTACK …]
"""

import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any
from urllib.parse import quote_from_bytes, urlencode

import vibemq.sync
from bench.common.watched import WatchedBroker, attack_each, watched_broker
from bench.eventmesh_tcp import frame, read_answer
from tests.unit.protocols.eventmesh.http.test_http_session import BODIES

SETTINGS: dict[str, Any] = {
    "listeners": [
        {"port": 0},
        {"port": 0, "protocol": "eventmesh", "settings": {"subscriptions_max": 10_000}},
        {
            "port": 0,
            "protocol": "eventmesh-http",
            "settings": {"push_allowed_networks": ["127.0.0.0/8"], "heartbeat_expiry_ms": 3_000},
        },
    ],
    "http": {"enabled": False},
    "limits": {"connections_per_ip_per_minute": 0},
}
SUBSCRIPTIONS = 10_000
TOPICS_AT_ONCE = 1_000
SESSIONS = 8_000


class Target:
    """The broker, as an attack sees it."""

    def __init__(self, broker: WatchedBroker, urls: int) -> None:
        self.broker = broker
        self.tcp_port, self.http_port = broker.ports[1:]
        self.subscriber_port = urls
        with socket.create_server(("127.0.0.1", 0)) as nobody:
            self._down_port = nobody.getsockname()[1]

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.subscriber_port}{path}"

    def down(self, path: str) -> str:
        """A URL that answers nothing."""
        return f"http://127.0.0.1:{self._down_port}{path}"


# -- clients -----------------------------------------------------------------------------------------------------------


def said_yes(peer: socket.socket) -> None:
    answer = read_answer(peer)
    assert b'"code":0' in answer, answer[:300]


def tcp_client(target: Target, group: str = "g", unack: int = 0) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", target.tcp_port))
    agent = {"group": group, "purpose": "sub", "version": "2", "unack": unack}
    made.sendall(frame("HELLO_REQUEST", "1", json.dumps(agent).encode()))
    said_yes(made)
    return made


def subscribe_tcp(peer: socket.socket, topics: Sequence[str], mode: str = "CLUSTERING") -> None:
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        items = [{"topic": topic, "mode": mode, "type": "ASYNC"} for topic in topics[at : at + TOPICS_AT_ONCE]]
        peer.sendall(frame("SUBSCRIBE_REQUEST", "2", json.dumps({"topicList": items}).encode()))
        said_yes(peer)


def lose(peer: socket.socket) -> None:
    """As when a client's machine has died."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    peer.close()


def flood(peer: socket.socket, data: bytes, times: int = 1) -> None:
    """Send, and read nothing; the broker may have had enough before the end."""
    peer.settimeout(2.0)
    with suppress(OSError):
        for _ in range(times):
            peer.sendall(data)


def drain(peer: socket.socket, quiet_s: float = 1.0) -> None:
    """Until the broker hangs up, or has said nothing for a while."""
    peer.settimeout(quiet_s)
    with suppress(OSError):
        while peer.recv(1 << 18):
            pass


def post(body: bytes, path: bytes = b"/", kind: bytes = b"application/x-www-form-urlencoded", **headers: str) -> bytes:
    more = b"".join(b"%b: %b\r\n" % (name.encode(), value.encode()) for name, value in headers.items())
    head = b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-type: %b\r\ncontent-length: %d\r\n%b\r\n"
    return head % (path, kind, len(body), more) + body


def ask(peer: socket.socket, request: bytes, wanted: bytes = b'"retCode":0') -> bytes:
    """The body of the answer."""
    peer.settimeout(60)
    peer.sendall(request)
    data = b""
    while b"\r\n\r\n" not in data:
        data += (more := peer.recv(1 << 16))
        assert more, data
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split()[0])
    while len(body) < length:
        body += peer.recv(1 << 16)
    assert wanted in body, body[:300]
    return body


def fields(code: int, **given: str) -> bytes:
    return post(urlencode(given).encode(), code=str(code))


def http_client(target: Target) -> socket.socket:
    return socket.create_connection(("127.0.0.1", target.http_port))


def topics_field(topics: Sequence[str]) -> str:
    return json.dumps([{"topic": topic, "mode": "CLUSTERING", "type": "ASYNC"} for topic in topics])


def subscribe_http(peer: socket.socket, topics: Sequence[str], url: str, group: str = "g", code: int = 206) -> None:
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        some = topics_field(topics[at : at + TOPICS_AT_ONCE])
        ask(peer, fields(code, topic=some, url=url, consumerGroup=group))


def unsubscribe_http(peer: socket.socket, topics: Sequence[str], url: str, group: str = "g") -> None:
    for at in range(0, len(topics), TOPICS_AT_ONCE):
        some = json.dumps(list(topics[at : at + TOPICS_AT_ONCE]))
        ask(peer, fields(207, topic=some, url=url, consumerGroup=group))


def names(prefix: str, count: int = SUBSCRIPTIONS) -> list[str]:
    return [f"{prefix}.{number}" for number in range(count)]


def publish(target: Target, topics: Sequence[str], each: int = 1) -> None:
    """Acknowledged, some of them together."""
    with tcp_client(target, "publisher") as peer:
        frames = [frame("ASYNC_MESSAGE_TO_SERVER", "5", message(topic=topic)) for topic in topics] * each
        for at in range(0, len(frames), 500):
            some = frames[at : at + 500]
            peer.sendall(b"".join(some))
            for _ in some:
                said_yes(peer)


# -- TCP ---------------------------------------------------------------------------------------------------------------


def message(body: str = "x" * 64, topic: str = "t", **properties: str) -> bytes:
    given = {"topic": topic, "properties": properties, "headers": {}, "body": body}
    return json.dumps(given).encode()


def event(data: Any) -> bytes:
    attributes = {"specversion": "1.0", "id": "e", "source": "/", "type": "t", "subject": "t", "data": data}
    return json.dumps(attributes).encode()


def tcp_large_bodies(target: Target) -> None:
    """Of all kinds, up to four MiB."""
    kinds = {
        "eventmeshmessage": [
            message("é" * 300_000),
            message("\\" * 400_000),
            message(**{f"p{number}": "v" * 1_000 for number in range(3_000)}),
            b'{"topic":"t","properties":' + b"[" * 4_000_000,
            b'{"topic":"t","body":"' + b"\\u00e9" * 600_000 + b'"}',
            b'{"topic":"t","headers":{' + b",".join(b'"%d":"v"' % n for n in range(250_000)) + b'},"body":"x"}',
        ],
        "cloudevents": [
            event(list(range(150_000))),
            event([[]] * 600_000),
            event({str(number): number for number in range(80_000)}),
            event("x" * 1_000_000),
            event([1.5] * 500_000),
        ],
    }
    for kind, bodies in kinds.items():
        for body in bodies:
            for command in ("ASYNC_MESSAGE_TO_SERVER", "REQUEST_TO_SERVER", "BROADCAST_MESSAGE_TO_SERVER"):
                peer = tcp_client(target)
                flood(peer, frame(command, "5", body, kind))
                drain(peer, 0.3)
                peer.close()


def tcp_middle_bodies(target: Target) -> None:
    """Each just small enough to be read at once."""
    peer = tcp_client(target)
    bodies = [event(list(range(20_000))), message("é" * 20_000), message(**{f"p{n}": "v" * 100 for n in range(900)})]
    for body in bodies:
        kind = "cloudevents" if b"specversion" in body else "eventmeshmessage"
        flood(peer, frame("ASYNC_MESSAGE_TO_SERVER", "5", body[:130_000], kind) * 50)
        drain(peer, 0.3)


def tcp_flood_unread(target: Target) -> None:
    """Publishes whose answers nobody reads."""
    peer = tcp_client(target)
    flood(peer, frame("ASYNC_MESSAGE_TO_SERVER", "5", message()) * 1_000, 200)
    lose(peer)


def tcp_heartbeats(target: Target) -> None:
    flood(tcp_client(target), frame("HEARTBEAT_REQUEST", "5") * 10_000, 50)


def tcp_headers(target: Target) -> None:
    """Headers of 64 KiB, and commands that there are not."""
    for members in (
        b'"a":' + b"[" * 60_000,
        b'"cmd":"' + b"x" * 60_000 + b'"',
        b'"seq":"' + b"\\u0041" * 10_000 + b'"',
    ):
        peer = tcp_client(target)
        header = b'{"cmd":"HEARTBEAT_REQUEST",' + members + b"}"
        body = b"EventMesh0000" + struct.pack("!II", 13 + len(header), len(header)) + header
        flood(peer, body * 50)
        drain(peer, 0.3)


def tcp_many_subscriptions(target: Target) -> None:
    """10,000 topics of one connection: subscribed, heard, unsubscribed, and said goodbye to."""
    topics = names("many")
    peer = tcp_client(target)
    subscribe_tcp(peer, topics)
    peer.sendall(frame("LISTEN_REQUEST", "3"))
    said_yes(peer)
    peer.sendall(frame("UNSUBSCRIBE_REQUEST", "4"))
    said_yes(peer)
    subscribe_tcp(peer, topics)
    peer.sendall(frame("LISTEN_REQUEST", "3"))
    said_yes(peer)
    peer.sendall(frame("CLIENT_GOODBYE_REQUEST", "4"))
    said_yes(peer)
    peer.close()


def tcp_subscriptions_lost(target: Target) -> None:
    """10,000 topics of one connection, which is then lost; before, each has pushed a message."""
    topics = names("many")
    peer = tcp_client(target, unack=10_000)
    subscribe_tcp(peer, topics)
    peer.sendall(frame("LISTEN_REQUEST", "3"))
    said_yes(peer)
    publish(target, topics)
    drain(peer, 2.0)
    lose(peer)
    time.sleep(1.0)


def tcp_broadcasts_lost(target: Target) -> None:
    """The same of passing groups, which end with it."""
    peer = tcp_client(target)
    subscribe_tcp(peer, names("passing"), "BROADCASTING")
    lose(peer)
    time.sleep(1.0)


def tcp_pushes_unacked(target: Target) -> None:
    """10,000 messages of one topic are pushed; some are acknowledged after a while, and the topic is deleted."""
    peer = tcp_client(target, unack=10_000)
    subscribe_tcp(peer, ["unacked"])
    peer.sendall(frame("LISTEN_REQUEST", "3"))
    said_yes(peer)
    publish(target, ["unacked"], 10_000)
    drain(peer, 2.0)
    for number in range(3):
        peer.sendall(frame("ASYNC_MESSAGE_TO_CLIENT_ACK", str(number + 1)))
        time.sleep(2.1)
    with vibemq.sync.connect(target.broker.url) as mq:
        mq.admin("queue.delete", queue="unacked")
    drain(peer, 0.5)


def tcp_connections_lost(target: Target) -> None:
    """200 connections with 50 topics each are lost together."""
    peers = [tcp_client(target, f"g{number}") for number in range(200)]
    for number, peer in enumerate(peers):
        subscribe_tcp(peer, names("many")[50 * number : 50 * number + 50])
    for peer in peers:
        lose(peer)
    time.sleep(1.0)


def tcp_many_speak_together(target: Target) -> None:
    """8,000 sessions are readable in one turn of the loop, and each says something."""
    peers = [tcp_client(target, f"g{number}") for number in range(SESSIONS)]
    with target.broker.standing_still():
        for number, peer in enumerate(peers):
            peer.sendall(frame("HEARTBEAT_REQUEST", str(number)))
    for peer in peers:
        said_yes(peer)
    for peer in peers:
        peer.close()
    time.sleep(1.0)


# -- HTTP --------------------------------------------------------------------------------------------------------------


def http_large_bodies(target: Target) -> None:
    for path, kind, body, _ in BODIES.values():
        peer = http_client(target)
        form = "cloudevents" if b"specversion" in body[:200] else "eventmeshmessage"
        media = kind or b"application/x-www-form-urlencoded"
        flood(peer, post(body, path, media, protocoltype=form) * 2)
        drain(peer, 0.5)
        peer.close()


def http_batches(target: Target) -> None:
    """As many messages as a batch may have, in one topic and in as many topics."""
    peer = http_client(target)
    for topics in (1, 3_000):
        messages = [{"topic": f"batch.{number % topics}", "msg": "x" * 100} for number in range(10_000)]
        for count in (3_000, 10_000):
            some = messages[:count]
            given = urlencode({"contents": json.dumps(some), "size": str(len(some)), "producerGroup": "g"}).encode()
            ask(peer, post(given, code="102"), b"retCode")
        events = [
            {"specversion": "1.0", "id": str(n), "source": "/", "type": "t", "subject": f"batch.{n % topics}"}
            for n in range(3_000)
        ]
        ask(peer, post(json.dumps(events).encode(), kind=b"application/cloudevents-batch+json"), b"retCode")


def http_pipelined(target: Target) -> None:
    """100,000 requests in one go, whose answers nobody reads, and as many that are refused."""
    for request in (fields(104, topic="t", content="x"), fields(203), fields(999), fields(104, topic="", content="")):
        flood(http_client(target), request * 1_000, 30)


def http_header_floods(target: Target) -> None:
    peer = http_client(target)
    flood(peer, (b"GET / HTTP/1.1\r\n" + b"".join(b"h%d: v\r\n" % n for n in range(3_000)) + b"\r\n") * 100)
    drain(peer, 0.3)
    peer = http_client(target)
    flood(peer, b"GET /?" + quote_from_bytes(b"\xff" * 8_000).encode() + b" HTTP/1.1\r\nhost: x\r\n\r\n")
    drain(peer, 0.3)
    peer = http_client(target)
    flood(peer, b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 600_000)
    drain(peer, 0.3)


def http_many_subscriptions(target: Target) -> None:
    """10,000 topics to one URL; asked for, pushed, ended, and subscribed again."""
    topics, peer = names("http"), http_client(target)
    subscribe_http(peer, topics, target.url("/many"))
    ask(peer, post(b"", b"/eventmesh/subscrition/query"), b"localTopicSet")
    publish(target, topics)
    time.sleep(3.0)
    unsubscribe_http(peer, topics, target.url("/many"))


def http_heartbeats_end(target: Target) -> None:
    """10,000 subscriptions with a heartbeat, and then none: they all end in the same second."""
    topics, peer = names("http"), http_client(target)
    url = target.url("/silent")
    subscribe_http(peer, topics, url)
    for at in range(0, len(topics), 5_000):
        entities = json.dumps([{"topic": topic, "url": url} for topic in topics[at : at + 5_000]])
        ask(peer, fields(203, clientType="SUB", consumerGroup="g", heartbeatEntities=entities))
    time.sleep(6.0)


def http_many_urls(target: Target) -> None:
    """5,000 URLs of one group and topic, half of which answer nothing; then 2,000 messages for it."""
    peer = http_client(target)
    urls = [target.url(f"/{number}") if number % 2 else target.down(f"/{number}") for number in range(5_000)]
    pipelined(peer, [fields(206, topic=topics_field(["urls"]), url=url, consumerGroup="g") for url in urls])
    publish(target, ["urls"], 2_000)
    time.sleep(4.0)
    pipelined(peer, [fields(207, topic='["urls"]', url=url, consumerGroup="g") for url in urls])


def pipelined(peer: socket.socket, requests: Sequence[bytes]) -> None:
    """Eight at a time."""
    for at in range(0, len(requests), 8):
        some = requests[at : at + 8]
        peer.settimeout(60)
        peer.sendall(b"".join(some))
        data = b""
        while data.count(b'"resTime"') < len(some):
            data += (more := peer.recv(1 << 16))
            assert more, data
        assert data.count(b'"retCode":0') == len(some), data[-500:]


def http_many_groups(target: Target) -> None:
    """3,000 groups of one topic, and 30 messages for each of them."""
    peer = http_client(target)
    url = target.url("/groups")
    pipelined(peer, [fields(206, topic=topics_field(["groups"]), url=url, consumerGroup=f"g{n}") for n in range(3_000)])
    publish(target, ["groups"], 30)
    time.sleep(5.0)
    pipelined(peer, [fields(207, topic='["groups"]', url=url, consumerGroup=f"g{n}") for n in range(3_000)])


def http_urls_down(target: Target) -> None:
    """10,000 topics of a URL that answers nothing: their groups rest, and go on together."""
    topics, peer = names("http"), http_client(target)
    url = target.down("/down")
    subscribe_http(peer, topics, url)
    publish(target, topics)
    time.sleep(8.0)
    unsubscribe_http(peer, topics, url)


def http_topics_deleted(target: Target) -> None:
    """Those topics are deleted, and their groups ask again."""
    topics, peer = names("gone", 2_000), http_client(target)
    subscribe_http(peer, topics, target.url("/gone"))
    with vibemq.sync.connect(target.broker.url) as mq:
        for topic in topics:
            mq.admin("queue.delete", queue=topic)
    time.sleep(1.0)


ATTACKS: tuple[Callable[[Target], None], ...] = (
    *(tcp_large_bodies, tcp_middle_bodies, tcp_flood_unread, tcp_heartbeats, tcp_headers, tcp_many_subscriptions),
    *(tcp_subscriptions_lost, tcp_broadcasts_lost, tcp_pushes_unacked, tcp_connections_lost, tcp_many_speak_together),
    *(http_large_bodies, http_batches, http_pipelined, http_header_floods, http_many_subscriptions),
    *(http_heartbeats_end, http_many_urls, http_many_groups, http_urls_down),
    http_topics_deleted,
)


# -- the subscriber and the witness ------------------------------------------------------------------------------------

OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{"retCode":1}'


@contextmanager
def subscriber() -> Iterator[int]:
    """A server that takes what is posted to it; its port."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as server:
        threading.Thread(target=_accept, args=(server,), daemon=True).start()
        yield server.getsockname()[1]


def _accept(server: socket.socket) -> None:
    with suppress(OSError):
        while True:
            peer, _ = server.accept()
            threading.Thread(target=_answer, args=(peer,), daemon=True).start()


def _answer(peer: socket.socket) -> None:
    with peer, suppress(OSError, ValueError):
        data = b""
        while True:
            while b"\r\n\r\n" not in data:
                more = peer.recv(1 << 16)
                if not more:
                    return
                data += more
            head, _, data = data.partition(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].split()[0])
            while len(data) < length:
                data += peer.recv(1 << 16)
            data = data[length:]
            peer.sendall(OK)


def main() -> None:
    wanted = sys.argv[1:]
    with subscriber() as urls, watched_broker(**SETTINGS) as broker:
        target = Target(broker, urls)

        def witness() -> None:
            with tcp_client(target, "witness") as peer, http_client(target) as asking:
                peer.sendall(frame("ASYNC_MESSAGE_TO_SERVER", "9", message("still here", "witness")))
                said_yes(peer)
                ask(asking, fields(104, topic="witness", content="still here"))

        chosen = [each for each in ATTACKS if not wanted or each.__name__ in wanted]
        attack_each(broker, [(each.__name__, partial(each, target)) for each in chosen], witness)


if __name__ == "__main__":
    main()
