"""Ten thousand connections that do nothing: what they cost, and whether somebody who does something notices.

Two variants, one broker each: logged in only, and logged in with a subscription each (to one of a hundred queues).
While they stand, one more connection pings, and memory and processor time of the broker come from /proc.

How much a machine does in a second changes from hour to hour, and what other programs do on it delays the answers. So
the broker is compared with a process that does nothing but echo, in the same seconds. Between the pings it is asked the
same way, and the broker may take so much longer. While nobody pings the broker, the echo gets as many messages as all
those clients send to keep their connections, as evenly, and the broker may take so many times its processor time.
How often the broker wakes up does not depend on the machine at all: beside the clients' messages it is a small number,
whatever the number of connections.
"""

import asyncio
import json
import multiprocessing
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from tests.crash.ledger import BrokerProcess
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.idle_clients import PING_EVERY_S
from tests.proof.slow_peers import cpu_seconds
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType, encode_body

RSS_MAX_MIB = 400
PING_P99_MAX_MS = 100.0
"""Beyond that of the echo."""
CPU_MAX_ECHOES = 8.5
"""The broker's processor time in multiples of the echo's. On two shared cores it was 2.8 to 7.0 in half an hour,
while the percentage of a core was 4 to 18. A timer of a second for each connection made the greater of the two
variants 9.7 and 15.5. The echo has little memory, so what makes memory slow does not slow it as much."""
SILENCES = 3
"""What is too much is measured again, and the best counts: a burst of other work passes, a regression stays."""
WAKEUPS_OWN_MAX = 300.0
"""A second, beside those by which messages of the clients come."""
WAKEUPS_ALONE = 20.0
"""A second, of a broker with hardly any connection."""
HELPERS = 4
PING_PAUSE_S = 0.01
SETTLE_S = 4.0
"""After the last connection and the last ping, before processor time is measured."""
FILES_SPARE = 500
PING = encode_frame(encode_body(CommandType.PING, "p"))
SETTINGS = """
[limits]
max_connections = 0
max_unauthenticated = 2000
"""


def echoes_per_s(connections: int) -> float:
    """As many messages as the clients of so many connections send, or as often as a broker without any wakes up."""
    return max(messages_per_s(connections), WAKEUPS_ALONE)


def messages_per_s(connections: int) -> float:
    return connections / PING_EVERY_S


def wakeups_allowed(connections: int) -> float:
    """A second; each message of a client may wake the broker once."""
    return messages_per_s(connections) + WAKEUPS_OWN_MAX


@dataclass(frozen=True, slots=True)
class Silence:
    """What was spent in some seconds in which the idle connections did nothing but keep themselves alive."""

    seconds: float
    cpu_s: float
    wakeups: int
    echo_cpu_s: float
    """Of a process that echoed meanwhile what `echoes_per_s` says."""

    @property
    def percent(self) -> float:
        return 100 * self.cpu_s / self.seconds

    @property
    def echoes(self) -> float:
        return self.cpu_s / self.echo_cpu_s

    @property
    def wakeups_per_s(self) -> float:
        return self.wakeups / self.seconds

    def is_too_much(self, connections: int) -> bool:
        return self.echoes > CPU_MAX_ECHOES or self.wakeups_per_s > wakeups_allowed(connections)


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
    silence: "Silence"
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
            with echoing() as echo:
                pings, echoes = watch(broker.port, echo.port, seconds)
                silence = least_silence(lambda: be_silent(broker.pid, echo, 2 * seconds, connections), connections)
            rss, anonymous = memory(broker.pid)
            left = sum(hang_up(helper) for helper in helpers)
    finally:
        broker.kill()
    p99, echo_p99 = (statistics.quantiles(trips, n=100)[98] for trips in (pings, echoes))
    return Cost(connections, open_s, rss, anonymous, before, p99, echo_p99, silence, left)


def memory(pid: int) -> tuple[float, float]:
    """(resident, of that private) in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    found = {name: value for name, _, value in (line.partition(":") for line in lines)}
    return int(found["VmRSS"].split()[0]) / 1024, int(found["RssAnon"].split()[0]) / 1024


def wakeups(pid: int) -> int:
    """How often its threads went to sleep of their own accord, since they began; of those that have ended, nothing."""
    count = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            count += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return count


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


class _Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


async def _serve_echo(told: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(_Echo, "127.0.0.1", 0)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _echo_main(told: Connection) -> None:
    asyncio.run(_serve_echo(told))


class Echo(NamedTuple):
    port: int
    pid: int


@contextmanager
def echoing() -> Iterator[Echo]:
    """A process with a loop like the broker's, which sends back what it is sent."""
    spawned = multiprocessing.get_context("spawn")
    told, child_told = spawned.Pipe()
    process = spawned.Process(target=_echo_main, args=(child_told,), daemon=True)
    process.start()
    assert process.pid is not None
    try:
        yield Echo(int(told.recv()), process.pid)
    finally:
        process.kill()
        process.join()


def watch(broker_port: int, echo_port: int, seconds: float) -> tuple[list[float], list[float]]:
    """Round trips in ms: of pings to the broker, and of the same to the echo, in turns."""
    pings: list[float] = []
    echoes: list[float] = []
    with _connected(broker_port) as peer, _connected(echo_port) as echo:
        peer.sendall(encode_frame(encode_body(CommandType.CONNECT, "c")))
        _frame(peer)
        end = time.monotonic() + seconds
        while time.monotonic() < end or len(pings) < 100:
            for one, trips in ((peer, pings), (echo, echoes)):
                start = time.perf_counter()
                one.sendall(PING)
                _frame(one)
                trips.append((time.perf_counter() - start) * 1000)
                time.sleep(PING_PAUSE_S / 2)
    return pings, echoes


def least_silence(listen: Callable[[], Silence], connections: int) -> Silence:
    """The first that is not too much, or the best of some."""
    heard: list[Silence] = []
    while len(heard) < SILENCES:
        heard.append(listen())
        if not heard[-1].is_too_much(connections):
            return heard[-1]
    return min(heard, key=lambda silence: silence.echoes)


def be_silent(broker_pid: int, echo: Echo, seconds: float, connections: int) -> Silence:
    echoes = echoes_per_s(connections)
    time.sleep(SETTLE_S)
    with _connected(echo.port) as peer:
        start = time.monotonic()
        before = cpu_seconds(broker_pid), wakeups(broker_pid), cpu_seconds(echo.pid)
        sent = 0
        while (passed := time.monotonic() - start) < seconds:
            peer.sendall(PING)
            _frame(peer)
            sent += 1
            time.sleep(max(0.0, sent / echoes - passed))
        cpu, woken, echo_cpu = before
        return Silence(
            passed, cpu_seconds(broker_pid) - cpu, wakeups(broker_pid) - woken, cpu_seconds(echo.pid) - echo_cpu
        )


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
    seconds = max(1.0, min(20.0, budget.seconds / 12))
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
            f"{name}: CPU % of a core": round(cost.silence.percent, 1),
            f"{name}: CPU by that of an echo": round(cost.silence.echoes, 1),
            f"{name}: wake-ups a second": round(cost.silence.wakeups_per_s),
            f"{name}: seconds to open": round(cost.open_s, 1),
        }
        result.findings += judge(cost, name)
    return result


def judge(cost: Cost, name: str) -> list[Finding]:
    count = cost.connections
    told: list[str] = []
    # Fewer connections may only cost their share; the broker itself takes some 60 MiB.
    allowed = 80 + (RSS_MAX_MIB - 80) * min(1.0, count / 10_000)
    if cost.rss_mib > allowed:
        told.append(f"{count} connections ({name}) take {cost.rss_mib:.0f} MiB; allowed are {allowed:.0f}")
    if cost.ping_p99_ms > PING_P99_MAX_MS + cost.echo_p99_ms:
        told.append(
            f"beside {count} connections ({name}) the PING p99 is {cost.ping_p99_ms:.0f} ms, "
            f"that of an echo {cost.echo_p99_ms:.0f} ms"
        )
    silence = cost.silence
    if silence.echoes > CPU_MAX_ECHOES:
        told.append(
            f"{count} connections ({name}) that do nothing take {silence.echoes:.1f} times the processor time "
            f"({silence.percent:.1f} % of a core) that an echo of what they send takes; allowed is {CPU_MAX_ECHOES:g}"
        )
    if silence.wakeups_per_s > wakeups_allowed(count):
        told.append(
            f"{count} connections ({name}) that do nothing wake the broker {silence.wakeups_per_s:.0f} times a second; "
            f"allowed is {wakeups_allowed(count):.0f}"
        )
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
    least_s=30,
)

if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        shown = run(Budget(2 * int(sys.argv[1]), 60, 1, Path(folder)))
        print(json.dumps(shown.figures, indent=1), *(finding.what for finding in shown.findings), sep="\n")
