"""EventMesh over HTTP: publishes with keep-alive, pushes to one fast URL, and subscriptions that get nothing. `python -m bench.eventmesh_http`.

The client and the subscriber are raw sockets of another process, so that little but the broker is measured.
"""

import asyncio
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlencode

MESSAGE_BYTES = 1_024
CONNECTIONS = 8
IDLE_SUBSCRIPTIONS = 1_000
IDLE_S = 4.0
HEAD = (
    "POST / HTTP/1.1\r\nprotocolversion: 1.0\r\ncode: {code}\r\nip: 127.0.0.1\r\nidc: FT\r\nprotocoldesc: http\r\n"
    "pid: 4321\r\nlanguage: JAVA\r\nenv: P\r\nsys: 1234\r\nversion: 1.0\r\npasswd: pass\r\n"
    "protocoltype: eventmeshmessage\r\nusername: eventmesh\r\nContent-Length: {size}\r\n"
    "Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\nHost: 127.0.0.1\r\nConnection: Keep-Alive\r\n"
    "User-Agent: Apache-HttpClient/4.5.14 (Java/17.0.15)\r\nAccept-Encoding: gzip,deflate\r\n\r\n"
)


def request(code: int, **fields: str) -> bytes:
    body = urlencode(fields)
    return (HEAD.format(code=code, size=len(body)) + body).encode()


def publish_request(topic: str) -> bytes:
    content = "x" * MESSAGE_BYTES
    return request(104, topic=topic, bizseqno="1" * 30, uniqueid="2" * 30, ttl="", producergroup="p", content=content)


class Asking(asyncio.Protocol):
    """Sends the same request again as soon as it is answered."""

    def __init__(self, data: bytes, left: int, done: "asyncio.Future[None]") -> None:
        self.data, self.left, self.done = data, left, done

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        transport.write(self.data)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        assert b'"retCode":0' in data, data
        self.left -= 1
        if self.left:
            self.transport.write(self.data)  # type: ignore[attr-defined]
        else:
            self.done.set_result(None)


async def ask(port: int, data: bytes, count: int, connections: int) -> float:
    loop = asyncio.get_running_loop()
    done = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for one in done:
        await loop.create_connection(lambda one=one: Asking(data, count // connections, one), "127.0.0.1", port)
    await asyncio.gather(*done)
    return time.perf_counter() - began


class Taking(asyncio.Protocol):
    """A subscriber that is as fast as can be: it looks for the end of a body, and at nothing else."""

    taken = 0
    ANSWER = b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"retCode":1}'

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport, self.buffer = transport, b""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while True:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            at = self.buffer[:end].lower().find(b"content-length: ") + 16
            size = int(self.buffer[at : self.buffer.index(b"\r\n", at)])
            if len(self.buffer) < end + 4 + size:
                return
            self.buffer = self.buffer[end + 4 + size :]
            Taking.taken += 1
            self.transport.write(self.ANSWER)  # type: ignore[attr-defined]


def peer(port: int, count: int, results: "multiprocessing.Queue[tuple[str, float]]") -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        await ask(port, publish_request("bench"), 200, CONNECTIONS)
        seconds = await ask(port, publish_request("bench"), count, CONNECTIONS)
        results.put(("publish", count / seconds))
        server = await loop.create_server(Taking, "127.0.0.1", 0)
        mine = server.sockets[0].getsockname()[1]
        item = json.dumps([{"topic": "push", "mode": "CLUSTERING", "type": "ASYNC"}])
        url = f"http://127.0.0.1:{mine}/sub"
        await ask(port, request(206, topic=item, consumerGroup="g", url=url), 1, 1)
        await ask(port, request(207, topic='["push"]', consumerGroup="g", url=url), 1, 1)
        await ask(port, publish_request("push"), count, CONNECTIONS)
        results.put(("filling", count))
        began = time.perf_counter()
        await ask(port, request(206, topic=item, consumerGroup="g", url=url), 1, 1)
        while Taking.taken < count:
            await asyncio.sleep(0.005)
        results.put(("push", count / (time.perf_counter() - began)))
        time.sleep(IDLE_S)
        results.put(("idle", 0))
        for number in range(IDLE_SUBSCRIPTIONS // 10):
            topics = json.dumps([{"topic": f"idle{each}", "mode": "CLUSTERING", "type": "ASYNC"} for each in range(10)])
            await ask(port, request(206, topic=topics, consumerGroup="g", url=f"{url}/{number}"), 1, 1)
        results.put(("subscribing", 0))
        time.sleep(IDLE_S)
        results.put(("idle with subscriptions", 0))

    asyncio.run(main())


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main(count: int = 10_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder, "v.toml")
        options = 'push_allowed_networks = ["127.0.0.0/8"]'
        settings.write_text(f'[[listeners]]\nprotocol = "eventmesh-http"\nport = 0\n[listeners.settings]\n{options}\n')
        command = [*sys.argv[1:], sys.executable, "-m", "vibemq", "serve", "--config", str(settings)]
        broker = subprocess.Popen(
            [*command, "--data-dir", f"{folder}/data", "--no-http"], stdout=subprocess.PIPE, text=True
        )
        assert broker.stdout is not None
        port = json.loads(broker.stdout.readline())["port"]
        broker.stdout.readline()
        results: multiprocessing.Queue[tuple[str, float]] = multiprocessing.Queue()
        process = multiprocessing.Process(target=peer, args=(port, count, results))
        process.start()
        used = cpu_s(broker.pid)
        for _ in range(3):
            what, rate = results.get()
            now = cpu_s(broker.pid)
            print(f"{what}: {rate:,.0f}/s; {(now - used) / count * 1e6:.0f} µs of the broker's CPU for each")
            used = now
        for _ in range(3):
            what, _ = results.get()
            now = cpu_s(broker.pid)
            print(f"{what}: {now - used:.2f} s of the broker's CPU")
            used = now
        process.join()
        broker.terminate()
        broker.wait()


if __name__ == "__main__":
    main()
