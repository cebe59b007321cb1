"""The laboratory: servers and load processes of one run, and the measurement of one cell with them."""

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from bench.common.accounting import cpu_seconds, disk_flushes, machine_busy_s
from bench.common.load import Job, now
from bench.common.peer import Guarantee, Peer, peer_class
from bench.common.reaper import Reaper
from bench.common.servers import Server, free_port
from bench.common.worker import Worker

DATA_ROOT = Path("/var/tmp")
"""Not /tmp, which may be memory."""


class Mode(StrEnum):
    PUBLISH = "publish"
    """One producer, nobody consumes: until the last confirm."""
    E2E = "e2e"
    """One producer and one consumer at once: until the last acknowledgement."""
    DRAIN = "drain"
    """What waits already is taken and acknowledged by one consumer."""
    LATENCY = "latency"
    """As e2e at a fixed rate, open loop: from the due instant to the confirm, and to the hand-out."""
    FAN_OUT = "fan_out"
    """One producer, `subscribers` passes in one consumer process; counts deliveries."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One figure to be measured, the same for every peer."""

    guarantee: Guarantee
    mode: Mode
    size: int
    subscribers: int = 1
    rate: float = 0.0

    @property
    def name(self) -> str:
        times = f" 1→{self.subscribers}" if self.subscribers > 1 else ""
        return f"{self.guarantee} {self.mode}{times} {self.size} B"


class Lab:
    """Starts servers and load processes when they are first needed; ends them all.

    Args:
        data_root: every server keeps its data in a new folder in it, so on the same disk.
    """

    def __init__(self, data_root: Path = DATA_ROOT) -> None:
        self._data_root = data_root
        self._ends = ExitStack()
        self._servers: dict[str, Server] = {}
        self._workers: dict[tuple[str, str], Worker] = {}

    def __enter__(self) -> Self:
        self.reaper = self._ends.enter_context(Reaper())
        self.folder = Path(tempfile.mkdtemp(prefix="vibemq-bench-", dir=self._data_root))
        # Servers that do not run as root have to get through.
        self.folder.chmod(0o755)
        self.reaper.remove_at_end(self.folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for worker in self._workers.values():
                worker.end()
            for server in self._servers.values():
                server.stop()
        finally:
            self._ends.close()

    # -- servers and loads ------------------------------------------------------------------------------------------

    def peer(self, name: str, guarantee: Guarantee) -> Peer:
        """A peer whose server runs.

        Raises:
            ServerFailed: it does not.
        """
        peer = peer_class(name)(guarantee)
        peer.name = name
        server = self._servers.get(peer.instance())
        if server is None:
            server = self._start(peer)
        peer.port = server.port
        return peer

    def server(self, peer: Peer) -> Server:
        return self._servers[peer.instance()]

    def stop(self, peer: Peer) -> None:
        self._servers.pop(peer.instance()).stop()

    def kill_and_restart(self, peer: Peer) -> float:
        """kill -9, then start on the same folder; seconds from the start until its port is open."""
        self._servers.pop(peer.instance()).kill()
        began = now()
        self._start(peer)
        return now() - began

    def _start(self, peer: Peer) -> Server:
        peer.port = free_port()
        folder = self.folder / peer.instance()
        folder.mkdir(exist_ok=True)
        server = Server(peer.instance(), peer.plan(folder), folder, peer.port, self.reaper)
        self._servers[peer.instance()] = server
        try:
            server.wait_until_open()
        except BaseException:
            self._servers.pop(peer.instance()).stop()
            raise
        return server

    def worker(self, peer: str, role: str) -> Worker:
        worker = self._workers.get((peer, role))
        if worker is None or not worker.alive:
            worker = self._workers[peer, role] = Worker(f"{peer} {role}", self.reaper)
        return worker

    def work(self, peer: Peer, role: str, job: Job) -> dict[str, Any]:
        """Have one load do its job, alone, and wait for its result.

        Raises:
            LoadFailed: it could not.
        """
        load = self._prepared(peer, role, job)
        load.go()
        return load.result()

    def _prepared(self, peer: Peer, role: str, job: Job) -> Worker:
        """A load that is connected. A peer's consumers of every kind share one process."""
        worker = self.worker(peer.name, "producer" if role == "produce" else "consumer")
        worker.prepare(peer, role, job)
        return worker

    # -- measuring --------------------------------------------------------------------------------------------------

    def measure(self, name: str, cell: Cell, job: Job) -> dict[str, Any]:
        """One run of one cell by one peer.

        Raises:
            ServerFailed, LoadFailed: it could not be measured.
        """
        peer = self.peer(name, cell.guarantee)
        peer.set_up(job)
        try:
            return {
                "peer": name,
                "guarantee": str(cell.guarantee),
                "mode": str(cell.mode),
                "size": cell.size,
                "messages": job.messages,
                **self._run(peer, cell, job),
            }
        finally:
            peer.tear_down()

    def _run(self, peer: Peer, cell: Cell, job: Job) -> dict[str, Any]:
        if cell.mode is Mode.DRAIN:
            self.work(peer, "produce", job)
        loads: list[Worker] = []
        if cell.mode is not Mode.PUBLISH:
            role = "consume_fan_out" if cell.mode is Mode.FAN_OUT else "consume"
            loads.append(self._prepared(peer, role, job))
        if cell.mode is not Mode.DRAIN:
            loads.append(self._prepared(peer, "produce", job))
        return self._observed(self.server(peer), loads)

    def _observed(self, server: Server, loads: list[Worker]) -> dict[str, Any]:
        """Let the prepared loads go, and account for everything until the last is done. The producer is last."""
        cpu_s, busy, flushes, began = cpu_seconds(server.pids), machine_busy_s(), disk_flushes(self.folder), now()
        for load in loads:
            load.go()
        results = [load.result() for load in loads]
        wall_s = now() - began
        server_cpu_s = cpu_seconds(server.pids) - cpu_s
        busy_after = machine_busy_s()
        seconds = results[0]["ended"] - results[-1]["began"]
        count = results[0]["messages"]
        own_s = server_cpu_s + sum(result["cpu_s"] for result in results)
        return {
            "rate": count / seconds,
            "seconds": seconds,
            "server_cpu_s_per_100k": server_cpu_s / count * 1e5,
            "client_cpu_s_per_100k": [result["cpu_s"] / count * 1e5 for result in results],
            "latency": results[-1]["latency"],
            "delivered_latency": results[0]["latency"],
            "flushes": disk_flushes(self.folder) - flushes,
            "foreign_cores": max(0.0, (busy_after[0] - busy[0] - own_s) / wall_s),
            "stolen_cores": (busy_after[1] - busy[1]) / wall_s,
        }
