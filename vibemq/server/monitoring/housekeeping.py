"""Housekeeping, about once a second: storage maintenance, watermarks, slow readers, the clock, unfinished chores."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import anyio

from vibemq.config import Limits
from vibemq.errors import StorageError, StorageFailed
from vibemq.model.commands import Command, Pressure, SetPressure
from vibemq.server.clock import Clock
from vibemq.server.monitoring.machine_memory import MachineMemory, machine_memory
from vibemq.server.monitoring.status import BrokerStatus, resident_bytes
from vibemq.storage.interface import IStorageProvider, StorageStats

log = logging.getLogger("vibemq.housekeeping")

PERIOD_S = 1.0
WATERMARKS = ((0.95, Pressure.OVERFLOWING), (0.90, Pressure.BLOCKING), (0.80, Pressure.HIGH))
CHECKPOINT_MARKS_MAX = 4096
RELIEF = 0.02
"""A level is left only when the fraction is this far below its watermark, so that it does not flap."""


def pressure_at(fraction: float, current: Pressure) -> Pressure:
    for watermark, level in WATERMARKS:
        if fraction >= watermark - (RELIEF if current >= level else 0.0):
            return level
    return Pressure.NONE


def memory_fraction(limits: Limits, memory_bytes: int) -> float:
    return memory_bytes / limits.memory_limit_bytes if limits.memory_limit_bytes else 0.0


def memory_is_short(limits: Limits, memory_bytes: int, machine: Callable[[], MachineMemory] = machine_memory) -> bool:
    """Publishes are refused when it grows on; or, where no limit is set, the system ends the broker: then the memory of
    the machine or the control group is the limit, and what others have taken of the machine's counts as well."""
    short = WATERMARKS[-1][0]
    if limits.memory_limit_bytes:
        return memory_fraction(limits, memory_bytes) >= short
    memory = machine()
    if memory.limit_bytes and memory_bytes >= short * memory.limit_bytes:
        return True
    return bool(memory.available_bytes) and memory.total_bytes - memory.available_bytes >= short * memory.total_bytes


def disk_fraction(limits: Limits, stats: StorageStats) -> float:
    """Used part of the disk; 0 while more than the reserve is left: 5 % of a big disk is plenty."""
    if stats.full:
        return 1.0
    if not stats.disk_total_bytes or stats.writable_bytes >= limits.disk_reserve_bytes:
        return 0.0
    return 1.0 - stats.writable_bytes / stats.disk_total_bytes


def journal_fraction(stats: StorageStats) -> float:
    """Used part of what the journal may grow to before a checkpoint has to follow."""
    return stats.unapplied_bytes / stats.journal_bytes_max if stats.journal_bytes_max else 0.0


class CheckpointAge:
    """How long the oldest change has waited for a checkpoint, found from what `stats` says every second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, float]] = deque()
        """(last lsn, when it was seen), both ascending; the first is the oldest that no checkpoint covers."""

    def look(self, stats: StorageStats, now_s: float) -> float:
        seen = self._seen
        while seen and seen[0][0] <= stats.applied_lsn:
            seen.popleft()
        if stats.last_lsn > stats.applied_lsn and (not seen or seen[-1][0] < stats.last_lsn):
            seen.append((stats.last_lsn, now_s))
            if len(seen) > CHECKPOINT_MARKS_MAX:
                del seen[-2]
        return now_s - seen[0][1] if seen else 0.0


class _Store(Protocol):
    @property
    def provider(self) -> IStorageProvider: ...

    async def maintain(self) -> None: ...

    async def call(self, work: Callable[[], Any]) -> Any: ...


class Housekeeping:
    """One task, until `stop`; failures of storage go to `fatal`, everything else to the log."""

    def __init__(
        self,
        *,
        store: _Store,
        sweep: Callable[[], None],
        clock: Clock,
        status: BrokerStatus,
        limits: Limits,
        decide: Callable[[Sequence[Command]], None],
        chores: Sequence[Callable[[], Awaitable[None]]],
        fatal: Callable[[BaseException], None],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`sweep` drops peers that read nothing or never introduced themselves."""
        self._store = store
        self._sweep = sweep
        self._clock = clock
        self._status = status
        self.limits = limits
        self._decide = decide
        self.chores = list(chores)
        """Done in each round."""
        self._fatal = fatal
        self._monotonic = monotonic
        self._checkpoint_age = CheckpointAge()
        self._full = ""
        """Why the store cannot grow, as told last."""
        self._told: set[str] = set()
        """Troubles that are in the log and not over."""
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with self._scope:
            while True:
                try:
                    await self.round()
                except Exception:
                    # The broker goes on without this round, as it does without an answer to one connection.
                    log.exception("housekeeping failed")
                due = loop.time() + PERIOD_S
                await anyio.sleep(PERIOD_S)
                self._status.loop_lag_s = max(0.0, loop.time() - due)

    def stop(self) -> None:
        """Ask nothing more of storage; what is asked already runs to its end in the storage thread."""
        self._scope.cancel()

    async def round(self) -> None:
        self._watch_the_clock()
        self._sweep()
        try:
            await self._store.maintain()
            self._status.storage = await self._store.call(self._store.provider.stats)
            self._status.memory_bytes = resident_bytes()
        except StorageFailed as error:
            self._fatal(error)
            return
        except StorageError as error:
            log.error("storage maintenance: %s", error)
        except OSError as error:
            # No file descriptors left, say. Whoever is connected is served on, and the next round may have some.
            log.error("housekeeping: %s", error)
        self._watch_the_checkpoints()
        self._watch_the_marks()
        for chore in self.chores:
            try:
                await chore()
            except StorageFailed as error:
                self._fatal(error)
                return
            except (StorageError, OSError) as error:
                log.error("housekeeping: %s", error)
            except Exception:
                # The others, and the next round, have nothing to do with it.
                log.exception("housekeeping: %s failed", getattr(chore, "__qualname__", chore))

    def _watch_the_clock(self) -> None:
        self._clock.follow_wall()
        self._status.clock_ahead_ms = self._clock.ahead_ms()
        self._tell("clock", self._status.clock_trouble())

    def _watch_the_checkpoints(self) -> None:
        stats = self._status.storage
        if stats is not None:
            self._status.checkpoint_age_s = self._checkpoint_age.look(stats, self._monotonic())
            self._tell("checkpoint", self._status.checkpoint_trouble())

    def _tell(self, what: str, trouble: str) -> None:
        """Into the log when it begins and when it is over."""
        if trouble and what not in self._told:
            self._told.add(what)
            log.warning("%s", trouble, extra={"event": f"trouble.{what}"})
        elif not trouble and what in self._told:
            self._told.discard(what)
            log.info("%s: all is well again", what, extra={"event": f"trouble.{what}.over"})

    def _watch_the_marks(self) -> None:
        status, limits = self._status, self.limits
        used = {"memory": memory_fraction(limits, status.memory_bytes)}
        if status.storage is not None:
            used["disk"] = disk_fraction(limits, status.storage)
            used["journal"] = journal_fraction(status.storage)
        what = max(used, key=lambda name: used[name])
        level = pressure_at(used[what], status.pressure)
        full = status.storage.full if what == "disk" and status.storage is not None else ""
        if level is status.pressure and full == self._full:
            return
        self._full = full
        why = full or f"{what} is {used[what]:.0%} full" if level is not Pressure.NONE else ""
        log.log(logging.WARNING if level else logging.INFO, "pressure %s: %s", level.name.lower(), why or "all is well")
        status.pressure, status.pressure_why = level, why
        self._decide([SetPressure(level, why)])
