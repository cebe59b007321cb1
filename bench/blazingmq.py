"""BlazingMQ's protocol on a broker of its own process: posts of 1 KiB with ACK on a strong queue, pushes with confirms,
and how long one post takes at a fixed rate. The clients: a raw one that keeps a window of posts under way, as an SDK
sends them (one message to an event) or many to an event; and the real Python SDK, if it is installed.

    python -m bench.blazingmq [--seconds 3] [--data-dir DIR]
"""

import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

from bench.common.options import switches
from tests.interop.blazingmq.broker import PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from vibemq.protocols.blazingmq.codec.acks import build_confirms
from vibemq.protocols.blazingmq.codec.events import EVENT_HEADER_BYTES, EventReader, EventType
from vibemq.protocols.blazingmq.codec.put import build_puts, put_message

PAYLOAD = bytes(1024)
WINDOW = 4_000
ACK_BYTES = 24
GUID_AT = 13
"""In a PUT, where its GUID is counted."""
COUNTER = struct.Struct("!I")
PUSHED = struct.Struct(f"!12x16s{4 + 8 + len(PAYLOAD) + 4}x")
"""A message with its header, option, payload and padding."""

SDK = """
import sys, threading, time, blazingmq
address, uri, seconds, window = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
room = threading.Semaphore(window)
acked = 0
def on_ack(ack):
    global acked
    acked += 1
    room.release()
session = blazingmq.Session(lambda event: None, broker=address, timeout=300)
session.open_queue(uri, write=True)
payload = bytes(1024)
began = time.monotonic()
end = began + seconds
posted = 0
while time.monotonic() < end:
    for _ in range(50):
        room.acquire()
        session.post(uri, payload, on_ack=on_ack)
    posted += 50
while acked < posted:
    time.sleep(0.001)
print(acked / (time.monotonic() - began))
session.stop()
"""


def posts(client: ModelClient, uri: str, seconds: float, per_event: int) -> float:
    """ACKs per second of a client with a window. They are counted, not read: else the client would be measured."""
    sdk = client.sdk
    client.ask(sdk.open(uri, 0, flags=WRITE))
    together = max(1, 100 // per_event)
    messages = per_event * together
    event = build_puts([put_message(0, sdk.guid(), PAYLOAD) for _ in range(per_event)])
    chunk = bytearray(event * together)
    size = (len(event) - EVENT_HEADER_BYTES) // per_event
    places = [
        at + EVENT_HEADER_BYTES + size * place + GUID_AT
        for at in range(0, len(chunk), len(event))
        for place in range(per_event)
    ]
    chunks = count(1)
    acked = 0
    moved = threading.Condition()
    done = threading.Event()

    def read() -> None:
        nonlocal acked
        while not done.is_set():
            data = client.socket.recv(1 << 18)
            with moved:
                # 12 bytes of headers to an event of ACKs are counted as half an ACK: too little to matter.
                acked += len(data)
                moved.notify()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    began, sent = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        # Each message has a GUID of its own, or it would be a duplicate.
        begin = next(chunks) * messages
        for number, place in enumerate(places, begin):
            COUNTER.pack_into(chunk, place, number)
        with moved:
            moved.wait_for(lambda sent=sent: sent - acked / ACK_BYTES < WINDOW, 60)
        client.socket.sendall(chunk)
        sent += messages
    took = time.monotonic() - began
    rate = acked / ACK_BYTES / took
    done.set()
    return rate


def pushes(client: ModelClient, uri: str, messages: int) -> float:
    """Messages pushed and confirmed per second, of a backlog. A CONFIRM event goes out for each, as the SDKs send them;
    of a PUSH the GUID is read and nothing else: else the client would be measured."""
    sdk = client.sdk
    client.ask(sdk.open(uri, 0, flags=READ | WRITE))
    for _ in range(messages // 500):
        client.post_and_wait(0, *[PAYLOAD] * 500)
    around = build_confirms([(0, b"G" * 16, 0)]).split(b"G" * 16)
    reader = EventReader(event_bytes_max=1 << 26, control_bytes_max=1 << 16)
    client.say(sdk.configure(0)[1])
    began, done = time.monotonic(), 0
    while done < messages:
        reader.receive_data(client.socket.recv(1 << 18))
        while events := reader.read():
            for event in events:
                if event.type == EventType.PUSH:
                    guids = [guid for (guid,) in PUSHED.iter_unpack(memoryview(event.data)[event.start : event.end])]
                    client.say(b"".join((around[0], b"".join(reversed(around)).join(guids), around[1])))
                    done += len(guids)
    return messages / (time.monotonic() - began)


def latency(client: ModelClient, uri: str, per_second: int, seconds: float) -> float:
    """Median of post to ACK in ms."""
    sdk = client.sdk
    client.ask(sdk.open(uri, 0, flags=WRITE))
    took: list[float] = []
    begin = time.perf_counter()
    for number in range(int(per_second * seconds)):
        while time.perf_counter() < begin + number / per_second:
            time.sleep(0.0001)
        data = sdk.post(0, PAYLOAD)
        start = time.perf_counter()
        client.say(data)
        client.until(lambda: not sdk.unacked)
        took.append(time.perf_counter() - start)
    return statistics.median(took) * 1000


def real_sdk(address: str, uri: str, seconds: float) -> float | None:
    command = [sys.executable, "-c", SDK, address, uri, str(seconds), str(WINDOW)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return float(done.stdout) if done.returncode == 0 else None


def sunk(seconds: float) -> float | None:
    """The ceiling of the SDK."""
    command = [sys.executable, "-m", "bench.blazingmq_sink", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as sink:
        assert sink.stdout is not None
        try:
            return real_sdk(f"tcp://127.0.0.1:{int(sink.stdout.readline())}", uri("sink"), seconds)
        finally:
            sink.kill()


def main() -> None:
    parser = switches("blazingmq", __doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--data-dir", type=Path, default=None)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(dir=options.data_dir))
    broker = BlazingmqBroker(folder, toml="[http]\nenabled = false")
    broker.start()
    try:
        measure(broker, options.seconds)
    finally:
        broker.kill()
        broker.wait()


def measure(broker: BlazingmqBroker, seconds: float) -> None:
    def client() -> ModelClient:
        return ModelClient(broker.bmq_port)

    rows: list[tuple[str, Callable[[], float | None]]] = [
        ("posts/s, raw client, 1 message to an event", lambda: posts(client(), uri("one"), seconds, 1)),
        ("posts/s, raw client, 100 messages to an event", lambda: posts(client(), uri("many"), seconds, 100)),
        ("posts/s, real SDK", lambda: real_sdk(broker.address, uri("sdk"), seconds)),
        ("posts/s, real SDK and a sink that only acknowledges", lambda: sunk(seconds)),
        ("pushes with confirms/s", lambda: pushes(client(), uri("push"), 50_000)),
        ("p50 of post to ACK at 1,000/s, ms", lambda: latency(client(), uri("p50"), 1_000, seconds)),
    ]
    for name, run in rows:
        found = run()
        print(f"{name:52} {'not measured' if found is None else f'{found:,.2f}'}", flush=True)


def uri(name: str) -> str:
    return f"bmq://{PRIORITY}/{name}"


if __name__ == "__main__":
    main()
