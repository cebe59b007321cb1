"""`vibemq serve`: one broker, one process, its signals and its words on stdout."""

import asyncio
import importlib.util
import logging
import os
import resource
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import anyio
import orjson

from vibemq.config import Settings
from vibemq.errors import ConfigInvalid, StorageFenced
from vibemq.server.broker import Broker
from vibemq.server.collector import Collector, collector_at_rest
from vibemq.server.heap import tune_heap
from vibemq.server.logs import ProcessLog
from vibemq.server.logs.line_writer import write_some
from vibemq.server.monitoring.housekeeping import memory_is_short
from vibemq.server.reload.reloader import SettingsSource
from vibemq.settings import Loaded
from vibemq.storage.local.mounts import file_system_of

log = logging.getLogger("vibemq.app")

EXIT_STORAGE_FAILED = 70
EXIT_STORAGE_FENCED = 71
COLLECTOR_PERIOD_S = 10.0
SWITCH_INTERVAL_S = 0.0005
"""A flush thread gets the interpreter back this soon beside a busy event loop; Python's own 5 ms make it a convoy."""


def serve(loaded: Loaded, read_again: Callable[[], Loaded], taken: Callable[[tuple[Path, ...]], None]) -> int:
    """Run until SIGTERM or SIGINT, drain, and return the exit code. SIGHUP reloads the settings.

    Prints one JSON line per listener on stdout, then `{"event": "ready"}`; logs go to stderr. A second signal ends at
    once. Ends the process with code 70 when a write failed with an unknown outcome, with 71 when another broker has
    taken the store over.

    Args:
        loaded: the settings, and where they came from.
        read_again: reads and checks the settings, for a reload.
        taken: hears of the files that settings in use were read from, after each reload that is not refused.

    Raises:
        ConfigInvalid, StorageError: nothing was served.
    """
    # Until the broker can drain, and reload anything: a hang-up is no end.
    signal.signal(signal.SIGTERM, _end_at_once)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process_log = ProcessLog()
    process_log.start(loaded.settings.log)
    source = SettingsSource(read_again, process_log.set_up, dict(loaded.origins), taken)
    # Every connection is an open file, and the soft limit is often as low as 1024.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    tune_heap()
    options = {"use_uvloop": importlib.util.find_spec("uvloop") is not None}
    try:
        return anyio.run(_serve, loaded, source, process_log, backend="asyncio", backend_options=options)
    finally:
        # The sentence about what has ended it is written behind them.
        process_log.flush()


async def _serve(loaded: Loaded, source: SettingsSource, process_log: ProcessLog) -> int:
    hung_up = asyncio.Event()
    broker = Broker(
        settings=loaded.settings,
        on_fatal=_end_now,
        # Until then a signal ends the process at once: nobody is served, and a recovery may be long.
        on_recovered=lambda: _obey_signals(broker, hung_up),
        source=source,
    )
    async with AsyncExitStack() as stack:
        with collector_at_rest():
            await stack.enter_async_context(broker)
        warn_of_passing_place(loaded.settings)
        said = [
            _line("listening", protocol=listening.protocol, host=listening.host, port=listening.port)
            for listening in broker.listening
        ]
        if broker.http_address is not None:
            host, port = broker.http_address
            refused = broker.console_refusal
            console = {} if broker.console_url is None or refused else {"console": broker.console_url}
            said.append(_line("listening", protocol="http", host=host, port=port, **console))
            if console:
                log.info("the console is at %s", broker.console_url)
            elif refused:
                log.warning("the console answers 403: %s", refused)
        _say([*said, _line("ready")])
        await stack.enter_async_context(_reloading(broker, hung_up))
        await stack.enter_async_context(_collecting(broker))
        await broker.run()
    return 0


def warn_of_passing_place(settings: Settings) -> None:
    """No queue's durability holds there."""
    passing = file_system_of(settings.data_dir).passing
    if passing is not None and settings.storage.provider != "memory":
        log.warning("the data directory %s is %s; %s", settings.data_dir, *passing)


@asynccontextmanager
async def _collecting(broker: Broker) -> AsyncIterator[None]:
    """Cycles are looked for as `vibemq.server.collector` says."""
    collector = Collector(
        asyncio.get_running_loop().call_soon_threadsafe,
        alone=lambda: broker.connection_count + broker.http_connection_count == 0,
        short=lambda: memory_is_short(broker.settings.limits, broker.status.memory_bytes),
    )

    async def now_and_then() -> None:
        while True:
            await anyio.sleep(COLLECTOR_PERIOD_S)
            collector.look_at_all_if_worth_it()

    collector.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(now_and_then)
        try:
            yield
        finally:
            collector.stop()
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def _reloading(broker: Broker, hung_up: asyncio.Event) -> AsyncIterator[None]:
    """The settings are reloaded after every SIGHUP."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_reload_when_told, broker, hung_up)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _reload_when_told(broker: Broker, hung_up: asyncio.Event) -> None:
    """A signal that comes during a reload has another one follow it; several have one follow."""
    while True:
        await hung_up.wait()
        hung_up.clear()
        if broker.status.draining:
            continue
        try:
            await broker.reload(by="SIGHUP")
        except ConfigInvalid:
            # The log has it. Nothing has changed, and the next signal is another chance.
            continue
        except Exception:
            log.exception("the settings could not be reloaded")


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """By the signal itself, which supervisors tell from a failure. Process 1 of a container gets no signal that it has
    no handler for, so it ends with the code."""
    signal.signal(number, signal.SIG_DFL)
    signal.raise_signal(number)
    os._exit(128 + number)


def _obey_signals(broker: Broker, hung_up: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    seen: list[int] = []

    def obey(number: int) -> None:
        if seen:
            log.warning("second signal: ending at once")
            _flush_streams()
            os._exit(128 + number)
        seen.append(number)
        log.info("%s: draining", signal.Signals(number).name, extra={"event": "broker.draining"})
        broker.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, obey, number)
    # By default a process ends with SIGHUP, at once. Logs go to stderr: whoever rotates them owns that end.
    loop.add_signal_handler(signal.SIGHUP, hung_up.set)


def _end_now(error: BaseException) -> None:
    """Nobody knows what is on disk, or it has another owner: no goodbye, no flush, no further call of storage."""
    _flush_streams()
    os._exit(EXIT_STORAGE_FENCED if isinstance(error, StorageFenced) else EXIT_STORAGE_FAILED)


def _flush_streams() -> None:
    """As far as somebody reads them, and their disk takes it: the process ends now all the same."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()


def _line(event: str, **fields: Any) -> bytes:
    return orjson.dumps({"event": event, **fields}) + b"\n"


def _say(lines: Sequence[bytes]) -> None:
    """In a thread: whoever reads them may stand still, and the broker serves all the same."""
    said = b"".join(lines)
    try:
        descriptor = sys.stdout.fileno()
    except OSError:
        # A program's own, in memory.
        sys.stdout.write(said.decode())
        return
    threading.Thread(target=_write, args=(descriptor, said), name="vibemq-stdout", daemon=True).start()


def _write(descriptor: int, data: bytes) -> None:
    """Nobody has to hear it: whoever reads the first lines may leave, or a file of them be on a full disk."""
    left = memoryview(data)
    try:
        while left:
            left = left[write_some(descriptor, left) :]
    except OSError as error:
        log.warning("what is said on stdout cannot be written: %s; the broker serves all the same", error.strerror)
