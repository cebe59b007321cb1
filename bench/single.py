"""What one message costs the broker when it comes alone: a publish that waits for its confirm, then the next.

    python -m bench.single [--rounds 3] [--messages 3000] [--rate 1000] [--other FOLDER] [--plain]

The clients are bare sockets with frames made beforehand, so that little but the broker is measured. `alone` publishes;
`served` has a consumer besides, on a connection of its own, that acknowledges each message. Brokers take turns when
`--other` names a second checkout (its `.venv` is used). Prints medians: time to the confirm, processor time of the
broker's process with all its threads, and its voluntary switches of context.
"""

import argparse
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.common.options import switches
from vibemq.client.address import ClientSettings
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publishing.outbox import PublishBatch
from vibemq.client.publishing.outgoing import RowPacker
from vibemq.model.commands import Settlement
from vibemq.protocols.native.codec.extensions import EXTENSIONS, settle
from vibemq.protocols.native.codec.frames import HEADER_SIZE, encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

BODY = b'"' + b"x" * 1022 + b'"'
SPIN_S = 0.0002
ROOT = Path(__file__).resolve().parent.parent


@dataclass(slots=True)
class Cost:
    latencies_s: list[float]
    cpu_s: float
    switches: int
    calls: int
    """Messages."""


def main() -> None:
    given = _options()
    folders = {"this": ROOT, **({"other": given.other.resolve()} if given.other else {})}
    found: dict[tuple[str, str], list[Cost]] = {}
    with tempfile.TemporaryDirectory(dir=given.data_root) as root:
        for number in range(given.rounds):
            for name, folder in folders.items():
                data = Path(root) / f"{name}-{number}"
                with _broker(folder, data) as (pid, port):
                    for kind in ("alone", "served"):
                        cost = _measured(pid, port, given, served=kind == "served")
                        found.setdefault((kind, name), []).append(cost)
                shutil.rmtree(data)
    for (kind, name), costs in sorted(found.items()):
        print(f"{kind:7} {name:6} {_line(costs)}")


def _options() -> argparse.Namespace:
    parser = switches("single", __doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=3_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="messages a second at most; 0 = no pause")
    parser.add_argument("--plain", action="store_true", help="the frames that .NET clients send")
    parser.add_argument("--other", type=Path, help="a checkout whose broker takes turns with this one's")
    parser.add_argument("--data-root", type=Path, help="where the brokers' data goes")
    return parser.parse_args()


def _line(costs: Sequence[Cost]) -> str:
    p50 = statistics.median(_quantile(cost.latencies_s, 0.5) for cost in costs) * 1e6
    p10 = statistics.median(_quantile(cost.latencies_s, 0.1) for cost in costs) * 1e6
    p99 = statistics.median(_quantile(cost.latencies_s, 0.99) for cost in costs) * 1e6
    cpu = statistics.median(cost.cpu_s / cost.calls for cost in costs) * 1e6
    switches = statistics.median(cost.switches / cost.calls for cost in costs)
    times = f"p10 {p10:6.0f} µs  p50 {p50:6.0f} µs  p99 {p99:6.0f} µs"
    return f"{times}  broker {cpu:5.0f} µs CPU, {switches:4.1f} switches a message"


def _quantile(values: Sequence[float], part: float) -> float:
    return sorted(values)[int(part * (len(values) - 1))]


@contextmanager
def _broker(folder: Path, data: Path) -> Iterator[tuple[int, int]]:
    python = folder / ".venv" / "bin" / "python"
    port = _free_port()
    config = data.parent / f"{data.name}.toml"
    config.touch()
    command = [str(python if python.exists() else sys.executable), "-m", "vibemq", "serve", "--data-dir", str(data)]
    command += ["--port", str(port), "--no-http", "--log-level", "warning", "--config", str(config)]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as broker:
        try:
            _await_port(port, broker)
            yield broker.pid, port
        finally:
            broker.terminate()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _await_port(port: int, broker: "subprocess.Popen[bytes]") -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except OSError:
            if broker.poll() is not None:
                raise SystemExit("the broker has ended") from None
            time.sleep(0.1)
        else:
            return
    raise SystemExit("the broker does not listen")


class Peer:
    """A bare connection. `answer` returns the next frame's body."""

    def __init__(self, port: int, *, plain: bool) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._data = b""
        headers = {} if plain else {"supported-extensions": ",".join(EXTENSIONS)}
        self.ask(CommandType.CONNECT, "c", headers=headers)

    def ask(self, kind: CommandType, request_id: str, queue: str = "", headers: dict[str, str] | None = None) -> bytes:
        self.socket.sendall(encode_frame(encode_body(kind, request_id, queue, headers=headers or {})))
        return self.answer()

    def answer(self) -> bytes:
        while True:
            frame = self._next()
            if frame is not None:
                return frame
            self._data += self.socket.recv(1 << 16)

    def _next(self) -> bytes | None:
        if len(self._data) < HEADER_SIZE:
            return None
        end = HEADER_SIZE + int.from_bytes(self._data[:4], "big")
        if len(self._data) < end:
            return None
        frame, self._data = self._data[HEADER_SIZE:end], self._data[end:]
        return frame


def _published(number: int, queue: str, *, plain: bool) -> bytes:
    if plain:
        return encode_frame(encode_body(CommandType.PUBLISH, f"{number:032x}", queue, BODY))
    batch = PublishBatch(queue)
    batch.id = str(number)
    batch.offer(RowPacker().plain_row(BODY))
    return ClientProtocol(ClientSettings()).publish(batch)


def _settled(number: int, *, plain: bool) -> bytes:
    if plain:
        return encode_frame(encode_body(CommandType.ACK, f"{number:032x}"))
    return encode_frame(settle("s", Settlement.ACK, [(number + 1, number + 1)]))


def _measured(pid: int, port: int, given: argparse.Namespace, *, served: bool) -> Cost:
    plain: bool = given.plain
    publisher = Peer(port, plain=plain)
    queue = f"single-{time.time_ns()}"
    publisher.ask(CommandType.CREATE_QUEUE, "q", queue)
    consumer = Peer(port, plain=plain) if served else None
    if consumer is not None:
        consumer.ask(CommandType.SUBSCRIBE, "s", queue, headers={"prefetch": "10"})
    published = [_published(number, queue, plain=plain) for number in range(given.messages)]
    settled = [_settled(number, plain=plain) for number in range(given.messages)]
    latencies: list[float] = []
    cpu, switches = _cpu_s(pid), _switches(pid)
    began = time.perf_counter()
    for number in range(given.messages):
        if given.rate:
            _wait_until(began + number / given.rate)
        at = time.perf_counter()
        publisher.socket.sendall(published[number])
        publisher.answer()
        latencies.append(time.perf_counter() - at)
        if consumer is not None:
            consumer.answer()
            consumer.socket.sendall(settled[number])
    cost = Cost(latencies, _cpu_s(pid) - cpu, _switches(pid) - switches, given.messages)
    publisher.socket.close()
    if consumer is not None:
        consumer.socket.close()
    return cost


def _wait_until(at: float) -> None:
    left = at - time.perf_counter()
    if left > SPIN_S:
        select.select([], [], [], left - SPIN_S)
    while time.perf_counter() < at:
        pass


def _tasks(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def _cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond."""
    return sum(int((task / "schedstat").read_text().split()[0]) for task in _tasks(pid)) / 1e9


def _switches(pid: int) -> int:
    lines = [line for task in _tasks(pid) for line in (task / "status").read_text().splitlines()]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
