"""What goes wrong on real machines, made to go wrong on purpose."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tests.crash.forked_command import ForkedCommand
from tests.crash.ledger import BrokerProcess
from vibemq.errors import VibeMQError

COMMAND_TIMEOUT_S = 60
WAIT_S = 60
BIN = Path(sys.executable).parent

LMDB_SMALL = """
segment_bytes = 65536
ballast_bytes = 1048576
checkpoint_lag_bytes = 1048576
checkpoint_ms = 1000
"""
SQLITE_SMALL = "wal_bytes = 1048576"
"""Provider settings that meet on a small disk what the defaults meet on a big one."""


def small_settings(provider: str) -> str:
    return f"[storage.settings]\n{LMDB_SMALL if provider == 'lmdb' else SQLITE_SMALL}\n"


def broker_on(data_dir: Path, folder: Path, *, provider: str = "lmdb", toml: str = "") -> BrokerProcess:
    """A broker, not yet started, with settings from a file in `folder`."""
    config = folder / "vibemq.toml"
    config.write_text(toml)
    return BrokerProcess(data_dir, provider=provider, arguments=("--config", str(config)))


@contextmanager
def running(broker: BrokerProcess, *, prefix: tuple[str, ...] = ()) -> Iterator[BrokerProcess]:
    try:
        broker.start(prefix=prefix)
        yield broker
    finally:
        if broker.is_alive:
            broker.kill()
        broker.wait()


# -- commands that are expected to say something ------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The one error line. What comes before it are log lines; a traceback is a bug wherever it is."""
        assert "Traceback" not in self.err, self.err
        lines = [line for line in self.err.splitlines() if line.startswith("error ")]
        assert len(lines) == 1, self.err
        assert self.err.rstrip().endswith(lines[0]), self.err
        return lines[0]


def run(*words: object) -> Said:
    """`words`: the program and its arguments. It runs in a process of its own, and reads no input."""
    with tempfile.TemporaryDirectory() as folder:
        errors = Path(folder, "errors")
        command = ForkedCommand([*map(str, words)], errors)
        overdue = Timer(COMMAND_TIMEOUT_S, command.send_signal, [signal.SIGKILL])
        overdue.start()
        try:
            assert command.stdout is not None
            with command.stdout:
                printed = command.stdout.read()
            return Said(command.wait(), printed, errors.read_text())
        finally:
            overdue.cancel()


def serve(data_dir: Path, *words: object) -> Said:
    """`vibemq serve` where it cannot."""
    return run("vibemq", "serve", "--data-dir", data_dir, "--port", 0, "--http-port", 0, *words)


def check(data_dir: Path, *words: object) -> Said:
    """`vibemq-admin check`."""
    return run("vibemq-admin", "check", "--data-dir", data_dir, *words)


# -- disks ----------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A file system of its own, gone afterwards."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("a small disk cannot be mounted here; run as root, with the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write to the file until not one byte is free."""
    write_until_full(path)
    assert shutil.disk_usage(path.parent).free == 0


def write_until_full(path: Path) -> None:
    with path.open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 16, 4096, 1):
            try:
                while file.write(b"z" * size) == size:
                    pass
            except OSError:
                continue


@contextmanager
def failing(pid: int, call: str, error: str, *, nth: int = 1) -> Iterator[None]:
    """Have the kernel refuse the process's nth and every later `call` with `error`."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (apt-get install strace)")
    inject = f"inject={call}:error={error}:when={nth}+"
    tracer = subprocess.Popen(
        ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject, "-p", str(pid)],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert tracer.stderr is not None
    line = tracer.stderr.readline()
    assert "attached" in line, line
    try:
        yield
    finally:
        tracer.terminate()
        tracer.communicate(timeout=60)


# -- damage ---------------------------------------------------------------------------------------------------------


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        old = file.read(1)[0]
        file.seek(at)
        file.write(bytes((old ^ 0xFF,)))


def zero(path: Path, at: int, size: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(size))


def place_of(folder: Path, marker: bytes) -> tuple[Path, int]:
    """The one file below the folder, and the offset, that hold the marker last."""
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        at = path.read_bytes().rfind(marker)
        if at >= 0:
            return path, at
    raise AssertionError(f"{marker!r} is nowhere in {folder}")


# -- counting -------------------------------------------------------------------------------------------------------


@dataclass
class Book:
    """What was confirmed, refused and received, by the number in the body."""

    confirmed: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    refusals: dict[str, str] = field(default_factory=dict)
    """Code -> one sentence."""
    next: int = 0

    async def publish(self, mq: Any, queue: str, count: int, size: int = 100) -> int:
        """Publish; how many were accepted."""
        numbers = range(self.next, self.next + count)
        self.next += count
        bodies = ({"n": n, "fill": "x" * size} for n in numbers)
        report = await mq.publish_many(queue, bodies, return_refused=True)
        self.confirmed.update(n for index, n in enumerate(numbers) if index not in report.refused)
        for error in report.refused.values():
            self.refusals[error.code] = str(error)
        return int(report.accepted)

    async def drain(self, mq: Any, queue: str) -> None:
        """Receive and settle until the queue says that it is empty."""
        deadline = time.monotonic() + 3 * WAIT_S
        while (info := await mq.queue_info(queue)).ready or info.in_flight:
            assert time.monotonic() < deadline, f"not drained: {info}"
            for message in await mq.fetch(queue, max=1000, timeout=0.5):
                self.received.add(message.json()["n"])
                message.ack()

    @property
    def lost(self) -> set[int]:
        return self.confirmed - self.received


async def until(happened: Callable[[], Any], sleep: Callable[[float], Any], *, timeout: float = WAIT_S) -> None:
    """Wait for a condition, given as a plain or an async function."""
    deadline = time.monotonic() + timeout
    while True:
        result = happened()
        if hasattr(result, "__await__"):
            result = await result
        if result:
            return
        assert time.monotonic() < deadline, f"{happened} did not come true within {timeout} s"
        await sleep(0.05)


async def take(mq: Any, queue: str, count: int, **options: Any) -> list[Any]:
    """Fetch exactly so many messages, however slow the machine is."""
    messages: list[Any] = []
    deadline = time.monotonic() + WAIT_S
    while len(messages) < count:
        messages += await mq.fetch(queue, max=count - len(messages), timeout=1, **options)
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came within {WAIT_S} s"
    return messages


async def accepts(mq: Any, queue: str, body: object) -> bool:
    try:
        await mq.publish(queue, body)
    except VibeMQError:
        return False
    return True


async def creates(mq: Any, queue: str) -> bool:
    """Once it does, everything that was decided before is written, on a full disk as well."""
    try:
        await mq.create_queue(queue)
    except VibeMQError:
        return False
    return True


def resident_mib(pid: int) -> int:
    """Private memory of a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) >> 10
    raise AssertionError("the kernel tells no RssAnon")


def store_json(data_dir: Path, **changes: object) -> None:
    path = data_dir / "store.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
