"""EventMesh over TCP beside the native protocol: publishes with acknowledgement, and pushes with acknowledgement.

    .venv/bin/python -m bench.eventmesh_tcp [--seconds 4] [--window 1000]

One raw client pipelines on one connection; messages of 1 KiB in a strong queue on LMDB; the broker is a process of its
own. The client's frames are made before the clock starts, so that the broker is what is measured.
"""

import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import vibemq.sync
from bench.common.options import switches

BODY = "x" * 1024
TOPIC = "bench"
SIZES = struct.Struct("!II")
START = b"EventMesh0000"


def frame(cmd: str, seq: str, body: bytes = b"", protocol: str = "eventmeshmessage") -> bytes:
    """As the Java SDK of today writes it."""
    properties = {"protocolversion": "1.0", "protocoldesc": "tcp", "protocoltype": protocol}
    header = json.dumps(
        {"cmd": cmd, "code": 0, "seq": seq, "properties": properties, "command": cmd}, separators=(",", ":")
    ).encode()
    return b"".join((START, SIZES.pack(13 + len(header) + len(body), len(header)), header, body))


def message(kind: str) -> bytes:
    if kind == "cloudevents":
        event = {"specversion": "1.0", "id": "e1", "source": "/", "type": "cloudevents", "subject": TOPIC}
        event |= {"datacontenttype": "application/cloudevents+json", "ttl": "4000000", "data": {"content": BODY}}
        return json.dumps(event, separators=(",", ":")).encode()
    properties = {"keys": "0123456789012345", "msgtype": "persistent", "ttl": "4000000"}
    return json.dumps(
        {"topic": TOPIC, "properties": properties, "headers": {"datacontenttype": "text/plain"}, "body": BODY}
    ).encode()


@contextmanager
def broker(folder: Path) -> Iterator[tuple[int, str, int]]:
    """Serve; yield the process, the native URL and EventMesh's port."""
    config = folder / "vibemq.toml"
    config.write_text(
        '[[listeners]]\nprotocol = "native"\nport = 0\n[[listeners]]\nprotocol = "eventmesh"\nport = 0\n'
        "[http]\nenabled = false\n"
    )
    command = [sys.executable, "-m", "vibemq", "serve", "--data-dir", str(folder / "data"), "--config", str(config)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ports: dict[str, int] = {}
    assert process.stdout is not None
    try:
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                break
            ports[event["protocol"]] = event["port"]
        yield process.pid, f"vibemq://127.0.0.1:{ports['native']}", ports["eventmesh"]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def cpu_s(pid: int) -> float:
    """What the process has used of its processors, which does not depend on who else uses them."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def show(what: str, count: int, took_s: float, used_s: float) -> None:
    print(f"{what:36} {count / took_s:10,.0f}/s {used_s / count * 1e6:8.1f} us of the broker's CPU for each")


def connect(port: int, purpose: str, unack: int = 0) -> socket.socket:
    made = socket.create_connection(("127.0.0.1", port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    agent = {"group": "bench", "purpose": purpose, "version": "2", "unack": unack}
    made.sendall(frame("HELLO_REQUEST", "1", json.dumps(agent).encode()))
    read_answer(made)
    return made


def read_answer(peer: socket.socket) -> bytes:
    """One frame, when nothing else is on its way."""
    head = peer.recv(21, socket.MSG_WAITALL)
    total, _ = SIZES.unpack_from(head, 13)
    return peer.recv(total - 13, socket.MSG_WAITALL)


def publish(port: int, kind: str, seconds: float, window: int) -> tuple[int, float]:
    """Messages that were acknowledged, and seconds; `window` at most are under way."""
    peer = connect(port, "pub")
    body = message(kind)
    batch = window // 4
    chunk = b"".join(frame("ASYNC_MESSAGE_TO_SERVER", f"{number:010}", body, kind) for number in range(batch))
    mark, sent, acked = b'"cmd":"ASYNC_MESSAGE_TO_SERVER_ACK","command":"ASYNC_MESSAGE_TO_SERVER_ACK","code":0', 0, 0
    started = time.perf_counter()
    end, rest = started + seconds, b""
    while time.perf_counter() < end or acked < sent:
        while sent - acked <= window - batch and time.perf_counter() < end:
            peer.sendall(chunk)
            sent += batch
        data = rest + peer.recv(1 << 20)
        found = data.count(mark)
        acked += found
        at = data.rfind(mark) + len(mark) if found else 0
        rest = data[at:][-len(mark) :] if at else data[-len(mark) :]
    took = time.perf_counter() - started
    peer.close()
    return acked, took


def push(port: int, count: int, window: int) -> tuple[int, float]:
    """Messages that were pushed and acknowledged, and seconds."""
    peer = connect(port, "sub", window)
    topics = {"topicList": [{"topic": TOPIC, "mode": "CLUSTERING", "type": "ASYNC"}]}
    peer.sendall(frame("SUBSCRIBE_REQUEST", "2", json.dumps(topics).encode()))
    read_answer(peer)
    started = time.perf_counter()
    peer.sendall(frame("LISTEN_REQUEST", "3"))
    read_answer(peer)
    data, got = b"", 0
    head, tail = b'{"cmd":"ASYNC_MESSAGE_TO_CLIENT_ACK","code":0,"seq":', b',"properties":{}}'
    while got < count:
        data += peer.recv(1 << 20)
        at, acks = 0, []
        while len(data) - at >= 21:
            total, size = SIZES.unpack_from(data, at + 13)
            end = at + 8 + total
            if end > len(data):
                break
            header = data[at + 21 : at + 21 + size]
            begin = header.index(b'"seq":') + 6
            header = b"%b%b%b" % (head, header[begin : header.index(b",", begin)], tail)
            acks.append(b"%b%b%b" % (START, SIZES.pack(13 + len(header), len(header)), header))
            at = end
        got += len(acks)
        data = data[at:]
        peer.sendall(b"".join(acks))
    took = time.perf_counter() - started
    peer.close()
    return got, took


def native(url: str, pid: int, seconds: float) -> None:
    """The Python client, in bulk."""
    queue, payload = "native", BODY.encode()
    with vibemq.sync.connect(url) as mq:
        mq.create_queue(queue)
        used, started, count = cpu_s(pid), time.perf_counter(), 0
        while (took := time.perf_counter() - started) < seconds:
            mq.publish_many(queue, [payload] * 1000)
            count += 1000
        show("native client, publish", count, took, cpu_s(pid) - used)
        used, started = cpu_s(pid), time.perf_counter()
        left = count
        with mq.subscribe(queue, prefetch=1000) as messages:
            for each in messages:
                each.ack()
                left -= 1
                if not left:
                    break
        show("native client, consume", count, time.perf_counter() - started, cpu_s(pid) - used)


def main() -> None:
    parser = switches("eventmesh_tcp", __doc__)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--window", type=int, default=4_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder)) as (pid, url, port):
        for kind in ("eventmeshmessage", "cloudevents"):
            used = cpu_s(pid)
            count, took = publish(port, kind, options.seconds, options.window)
            show(f"{kind}, publish with ack", count, took, cpu_s(pid) - used)
            used = cpu_s(pid)
            pushed, took = push(port, count, options.window)
            show(f"{kind}, push with ack", pushed, took, cpu_s(pid) - used)
        native(url, pid, options.seconds)


if __name__ == "__main__":
    main()
