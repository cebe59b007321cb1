"""Housekeeping, about once a second: storage maintenance, watermarks, slow readers, the clock, unfinished chores."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

import anyio

from vibemq.config import Limits
from vibemq.errors import StorageError, StorageFailed
from vibemq.model.commands import Command, Pressure, SetPressure
from vibemq.server.clock import Clock
from vibemq.server.health import Condition, resident_bytes
from vibemq.server.roster import Roster
from vibemq.server.store import Store
from vibemq.storage.interface import StorageStats

log = logging.getLogger("vibemq.keeper")

PERIOD_S = 1.0
WATERMARKS = ((0.95, Pressure.OVERFLOWING), (0.90, Pressure.BLOCKING), (0.80, Pressure.HIGH))
RELIEF = 0.02
"""A level is left only when the fraction is this far below its watermark, so that it does not flap."""


def pressure_at(fraction: float, current: Pressure) -> Pressure:
    for watermark, level in WATERMARKS:
        if fraction >= watermark - (RELIEF if current >= level else 0.0):
            return level
    return Pressure.NONE


def memory_fraction(limits: Limits, memory_bytes: int) -> float:
    return memory_bytes / limits.memory_limit_bytes if limits.memory_limit_bytes else 0.0


def disk_fraction(limits: Limits, stats: StorageStats) -> float:
    """Used part of the disk; 0 while more than the reserve is left: 5 % of a big disk is plenty."""
    if stats.full:
        return 1.0
    if not stats.disk_total_bytes or stats.writable_bytes >= limits.disk_reserve_bytes:
        return 0.0
    return 1.0 - stats.writable_bytes / stats.disk_total_bytes


class Keeper:
    """One task, until `stop`; failures of storage go to `fatal`, everything else to the log."""

    def __init__(
        self,
        *,
        store: Store,
        roster: Roster,
        clock: Clock,
        condition: Condition,
        limits: Limits,
        decide: Callable[[Sequence[Command]], None],
        chores: Callable[[], Awaitable[None]],
        fatal: Callable[[BaseException], None],
    ) -> None:
        self._store = store
        self._roster = roster
        self._clock = clock
        self._condition = condition
        self._limits = limits
        self._decide = decide
        self._chores = chores
        self._fatal = fatal
        self._scope = anyio.CancelScope()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        with self._scope:
            while True:
                await self.round()
                due = loop.time() + PERIOD_S
                await anyio.sleep(PERIOD_S)
                self._condition.loop_lag_s = max(0.0, loop.time() - due)

    def stop(self) -> None:
        """Ask nothing more of storage; what is asked already runs to its end in the storage thread."""
        self._scope.cancel()

    async def round(self) -> None:
        self._clock.follow_wall()
        self._roster.sweep()
        try:
            await self._store.maintain()
            self._condition.storage = await self._store.call(self._store.provider.stats)
            self._condition.memory_bytes = resident_bytes()
            await self._chores()
        except StorageFailed as error:
            self._fatal(error)
            return
        except StorageError as error:
            log.error("storage maintenance: %s", error)
        except OSError as error:
            # No file descriptors left, say. Whoever is connected is served on, and the next round may have some.
            log.error("housekeeping: %s", error)
        self._watch_the_marks()

    def _watch_the_marks(self) -> None:
        condition, limits = self._condition, self._limits
        memory = memory_fraction(limits, condition.memory_bytes)
        disk = disk_fraction(limits, condition.storage) if condition.storage is not None else 0.0
        level = pressure_at(max(memory, disk), condition.pressure)
        if level is condition.pressure:
            return
        what = "memory" if memory >= disk else "disk"
        why = f"{what} is {max(memory, disk):.0%} full" if level is not Pressure.NONE else ""
        log.log(logging.WARNING if level else logging.INFO, "pressure %s: %s", level.name.lower(), why or "all is well")
        condition.pressure, condition.pressure_why = level, why
        self._decide([SetPressure(level, why)])
