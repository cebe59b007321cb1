"""The clients of `bench.mixed`, each in a process of its own: `python -m bench.mixed.clients ROLE PORT {options}`.

They speak the native protocol over a plain socket with frames that are made beforehand, so that little of what is
measured is a client's own work. Each writes `ready` when it is connected, begins with the first line on its standard
input, ends when that is closed, and writes its result as JSON.
"""

import json
import os
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anyio

import vibemq
import vibemq.sync
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import encode_body

SMALL, BULK = "mixed-small", "mixed-bulk"
MARK = b"mixed-small-stamp"
"""In a body of the small client, before the instant at which it was sent."""
STAMP = struct.Struct("<d")
BODY_BYTES = 1024
now = time.perf_counter


class Wire:
    """A connection that publishes frames."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        hello = encode_body(0, "connect", headers={"supported-extensions": extensions.BATCH_EXTENSION})
        self.socket.sendall(encode_frame(hello))
        self.hear()

    def hear(self) -> int:
        """Wait for something of the broker; returns the number of whole frames that have come."""
        count = 0
        while not count:
            data = self.socket.recv(65_536)
            if not data:
                raise ConnectionError("the broker has hung up")
            self._data += data
            while len(self._data) >= 4 and len(self._data) >= (end := 5 + int.from_bytes(self._data[:4], "big")):
                self._data = self._data[end:]
                count += 1
        return count


def publish_frame(queue: str, bodies: list[bytes]) -> bytes:
    rows = Rows.of([pack_row(f"{number:032x}", body) for number, body in enumerate(bodies)])
    return encode_frame(extensions.publish_many("request", queue, rows))


def told_to_end() -> threading.Event:
    """Set when the standard input is closed."""
    ended = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=listen, daemon=True).start()
    return ended


def ready() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def small(port: int, rate: float) -> dict[str, Any]:
    """One message at a time, due at a fixed rate; each is sent when the one before is confirmed."""
    wire = Wire(port)
    frame = bytearray(publish_frame(SMALL, [(MARK + bytes(STAMP.size)).ljust(BODY_BYTES, b".")]))
    at = frame.index(MARK) + len(MARK)
    ready()
    ended = told_to_end()
    latencies: list[tuple[float, float]] = []
    due = now()
    while not ended.is_set():
        due = max(due + 1 / rate, now() - 0.1)
        if (wait := due - now()) > 0:
            time.sleep(wait)
        began = now()
        STAMP.pack_into(frame, at, began)
        wire.socket.sendall(frame)
        wire.hear()
        latencies.append((began, now() - began))
    return {"latencies": latencies}


def bulk(port: int, rows: int, window_bytes: int, rate: float) -> dict[str, Any]:
    """Frames of `rows` messages, so many bytes unconfirmed; `rate` in messages a second, 0 is full speed."""
    wire = Wire(port)
    frame = publish_frame(BULK, [b"x" * BODY_BYTES] * rows)
    window = threading.Semaphore(max(1, window_bytes // len(frame)))
    confirmed: list[float] = []

    def listen() -> None:
        while True:
            for _ in range(wire.hear()):
                confirmed.append(now())
                window.release()

    ready()
    ended = told_to_end()
    threading.Thread(target=listen, daemon=True).start()
    began = due = now()
    while not ended.is_set():
        if rate:
            due = max(due + rows / rate, now() - 0.1)
            time.sleep(max(0.0, due - now()))
        if window.acquire(timeout=0.2):
            wire.socket.sendall(frame)
    return {"per_s": len(confirmed) * rows / (now() - began)}


def large(port: int, body_bytes: int) -> dict[str, Any]:
    """One large message after the other, each when the one before is confirmed, through the Python client."""
    published = 0
    body = os.urandom(body_bytes)
    with vibemq.sync.connect(f"vibemq://127.0.0.1:{port}") as mq:
        ready()
        ended = told_to_end()
        began = now()
        while not ended.is_set():
            mq.publish(BULK, body)
            published += 1
        return {"per_s": published / (now() - began)}


def take(port: int) -> dict[str, Any]:
    """Receive the bulk and acknowledge it, through the Python client."""
    taken = 0

    async def work() -> None:
        nonlocal taken
        async with vibemq.connect(f"vibemq://127.0.0.1:{port}") as mq, mq.subscribe(BULK) as subscription:
            ready()
            ended = told_to_end()
            with anyio.CancelScope() as scope:

                async def watch() -> None:
                    while not ended.is_set():
                        await anyio.sleep(0.05)
                    scope.cancel()

                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(watch)
                    async for batch in subscription.batches():
                        taken += len(batch)
                        batch.ack_all()

    began = now()
    anyio.run(work, backend_options={"use_uvloop": True})
    return {"per_s": taken / (now() - began)}


ROLES: dict[str, Callable[..., dict[str, Any]]] = {"small": small, "bulk": bulk, "large": large, "take": take}


def _arguments() -> Iterator[Any]:
    yield int(sys.argv[2])


if __name__ == "__main__":
    print(json.dumps(ROLES[sys.argv[1]](*_arguments(), **json.loads(sys.argv[3]))), flush=True)
