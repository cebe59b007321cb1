"""Ten thousand connections that do nothing: what they cost, and whether somebody who does something notices.

Two variants, one broker each: logged in only, and logged in with a subscription each (to one of a hundred queues).
While they stand, one more connection pings; memory and processor time of the broker come from /proc. What other
programs do on the machine delays the answers, too: between the pings a process that does nothing but echo is asked the
same way, and the broker may take so much longer than it.
"""

import json
import multiprocessing
import os
import resource
import socket
import socketserver
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from tests.crash.ledger import BrokerProcess
from tests.proof.contract import Budget, Finding, Method, Result, Size
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

RSS_MAX_MIB = 400
PING_P99_MAX_MS = 100.0
"""Beyond that of the echo."""
CPU_MAX_PERCENT = 10.0
HELPERS = 4
PING_PAUSE_S = 0.01
FILES_SPARE = 500
SETTINGS = """
[limits]
max_connections = 0
max_unauthenticated = 2000
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one broker, with its connections standing."""

    connections: int
    open_s: float
    rss_mib: float
    anonymous_mib: float
    before_mib: float
    ping_p99_ms: float
    echo_p99_ms: float
    cpu_percent: float
    left: int
    """Connections that were still open at the end."""

    @property
    def bytes_each(self) -> int:
        return int((self.anonymous_mib - self.before_mib) * 2**20 / self.connections)


def measure(connections: int, seconds: float, work: Path, *, subscribed: bool) -> Cost:
    work.mkdir(parents=True, exist_ok=True)
    config = work / "idle.toml"
    config.write_text(SETTINGS)
    broker = BrokerProcess(work / "data", arguments=("--config", str(config)))
    broker.start()
    try:
        before = memory(broker.pid)[1]
        start = time.monotonic()
        with idling(broker.port, connections, subscribed=subscribed) as helpers:
            open_s = time.monotonic() - start
            with echoing() as echo_port:
                pings, echoes, cpu_percent = watch(broker, echo_port, seconds)
            rss, anonymous = memory(broker.pid)
            left = sum(hang_up(helper) for helper in helpers)
    finally:
        broker.kill()
    p99, echo_p99 = (statistics.quantiles(trips, n=100)[98] for trips in (pings, echoes))
    return Cost(connections, open_s, rss, anonymous, before, p99, echo_p99, cpu_percent, left)


def memory(pid: int) -> tuple[float, float]:
    """(resident, of that private) in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return int(found["VmRSS"].split()[0]) / 1024, int(found["RssAnon"].split()[0]) / 1024


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def idling(port: int, connections: int, *, subscribed: bool) -> Iterator[list["subprocess.Popen[str]"]]:
    helpers: list[subprocess.Popen[str]] = []
    share = -(-connections // HELPERS)
    try:
        for first in range(0, connections, share):
            command = [sys.executable, "-m", "tests.proof.idle_clients", str(port), str(first)]
            command += [str(min(share, connections - first)), *(["--subscribed"] if subscribed else [])]
            helpers.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        opened = sum(json.loads(_line(helper))["open"] for helper in helpers)
        if opened != connections:
            raise AssertionError(f"{opened} of {connections} connections were let in")
        yield helpers
    finally:
        for helper in helpers:
            helper.kill()
            helper.wait()
            for stream in (helper.stdin, helper.stdout):
                if stream is not None:
                    stream.close()


def _line(helper: "subprocess.Popen[str]") -> str:
    assert helper.stdout is not None
    line = helper.stdout.readline()
    if not line:
        raise AssertionError("a helper could not open its connections; its message stands above")
    return line


def hang_up(helper: "subprocess.Popen[str]") -> int:
    """How many of its connections the broker had kept."""
    assert helper.stdin is not None
    helper.stdin.close()
    helper.stdin = None
    return int(json.loads(_line(helper))["still_open"])


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1024):
            self.request.sendall(data)


def _serve_echo(told: Connection) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Echo) as server:
        told.send(server.server_address[1])
        server.handle_request()


@contextmanager
def echoing() -> Iterator[int]:
    """A process that sends back what one connection sends; its port."""
    spawned = multiprocessing.get_context("spawn")
    told, child_told = spawned.Pipe()
    process = spawned.Process(target=_serve_echo, args=(child_told,), daemon=True)
    process.start()
    try:
        yield int(told.recv())
    finally:
        process.kill()
        process.join()


def watch(broker: BrokerProcess, echo_port: int, seconds: float) -> tuple[list[float], list[float], float]:
    """Ping for some time, then be silent as long: (round trips in ms, those to the echo, percent of a core while nobody
    pings)."""
    pings: list[float] = []
    echoes: list[float] = []
    ping = encode_frame(encode_body(CommandType.PING, "p"))
    with _connected(broker.port) as peer, _connected(echo_port) as echo:
        peer.sendall(encode_frame(encode_body(CommandType.CONNECT, "c")))
        _frame(peer)
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(pings) < 100:
            for one, trips in ((peer, pings), (echo, echoes)):
                start = time.perf_counter()
                one.sendall(ping)
                _frame(one)
                trips.append((time.perf_counter() - start) * 1000)
                time.sleep(PING_PAUSE_S / 2)
    before, start = cpu_seconds(broker.pid), time.monotonic()
    time.sleep(seconds)
    return pings, echoes, 100 * (cpu_seconds(broker.pid) - before) / (time.monotonic() - start)


def _connected(port: int) -> socket.socket:
    peer = socket.create_connection(("127.0.0.1", port), timeout=30)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


def _frame(peer: socket.socket) -> None:
    head = peer.recv(5, socket.MSG_WAITALL)
    peer.recv(int.from_bytes(head[:4], "big"), socket.MSG_WAITALL)


# -- the method ---------------------------------------------------------------------------------------------------


def run(budget: Budget) -> Result:
    result = Result(unit="connections")
    seconds = max(1.0, min(20.0, budget.seconds / 8))
    for subscribed in (False, True):
        name = "subscribed" if subscribed else "silent"
        cost = measure(budget.cases // 2, seconds, budget.work / name, subscribed=subscribed)
        result.cases += cost.connections
        result.figures |= {
            f"{name}: RSS MiB": round(cost.rss_mib, 1),
            f"{name}: private MiB": round(cost.anonymous_mib, 1),
            f"{name}: bytes per connection": cost.bytes_each,
            f"{name}: PING p99 ms": round(cost.ping_p99_ms, 1),
            f"{name}: p99 ms of an echo beside it": round(cost.echo_p99_ms, 1),
            f"{name}: CPU % of a core": round(cost.cpu_percent, 1),
            f"{name}: seconds to open": round(cost.open_s, 1),
        }
        result.findings += judge(cost, name)
    return result


def judge(cost: Cost, name: str) -> list[Finding]:
    count = cost.connections
    told: list[str] = []
    # Fewer connections may only cost their share; the broker itself takes some 40 MiB.
    allowed = 60 + (RSS_MAX_MIB - 60) * min(1.0, count / 10_000)
    if cost.rss_mib > allowed:
        told.append(f"{count} connections ({name}) take {cost.rss_mib:.0f} MiB; allowed are {allowed:.0f}")
    if cost.ping_p99_ms > PING_P99_MAX_MS + cost.echo_p99_ms:
        told.append(
            f"beside {count} connections ({name}) the PING p99 is {cost.ping_p99_ms:.0f} ms, "
            f"that of an echo {cost.echo_p99_ms:.0f} ms"
        )
    if cost.cpu_percent > CPU_MAX_PERCENT:
        told.append(f"{count} connections ({name}) that do nothing take {cost.cpu_percent:.1f} % of a core")
    if cost.left != count:
        told.append(f"{count - cost.left} of {count} connections ({name}) were lost")
    return [Finding(what, f"python -m tests.proof.idle {count}") for what in told]


def missing() -> str | None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    need = METHOD.torture.cases // 2 + FILES_SPARE
    if hard != resource.RLIM_INFINITY and hard < need:
        return f"a process may have {hard} open files here, {need} are needed (ulimit -Hn)"
    if soft != resource.RLIM_INFINITY and soft < need:
        # Brokers and helpers inherit it.
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    return None


METHOD = Method(
    name="idle",
    title="10,000 idle connections: memory, PING beside them",
    run=run,
    short=Size(100, 4),
    crash=Size(cases=20_000, seconds=40),
    torture=Size(cases=20_000, seconds=90),
    missing=missing,
    alone=True,
)

if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        shown = run(Budget(2 * int(sys.argv[1]), 60, 1, Path(folder)))
        print(json.dumps(shown.figures, indent=1), *(finding.what for finding in shown.findings), sep="\n")
