"""Watermarks, checkpoints and clocks as housekeeping sees them, round by round."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from vibemq.config import Limits
from vibemq.errors import StorageFailed
from vibemq.model.commands import Command, Pressure, SetPressure
from vibemq.server.clock import Clock
from vibemq.server.monitoring.broker_figures import BrokerFigures
from vibemq.server.monitoring.health import Report
from vibemq.server.monitoring.housekeeping import (
    CheckpointAge,
    Housekeeping,
    disk_fraction,
    journal_fraction,
    memory_fraction,
    memory_is_short,
    pressure_at,
)
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.monitoring.status import BrokerStatus
from vibemq.server.monitoring.trail import Trail
from vibemq.storage.interface import StorageStats
from vibemq.storage.memory.provider import MemoryStorage


@pytest.mark.parametrize(
    ("fraction", "level"),
    [
        (0.0, Pressure.NONE),
        (0.799, Pressure.NONE),
        (0.80, Pressure.HIGH),
        (0.90, Pressure.BLOCKING),
        (0.95, Pressure.OVERFLOWING),
        (1.2, Pressure.OVERFLOWING),
    ],
)
def test_watermarks(fraction: float, level: Pressure) -> None:
    assert pressure_at(fraction, Pressure.NONE) is level


def test_a_level_is_left_only_well_below_its_mark() -> None:
    assert pressure_at(0.89, Pressure.BLOCKING) is Pressure.BLOCKING
    assert pressure_at(0.87, Pressure.BLOCKING) is Pressure.HIGH
    assert pressure_at(0.89, Pressure.HIGH) is Pressure.HIGH
    assert pressure_at(0.70, Pressure.OVERFLOWING) is Pressure.NONE


def stats(free: int, total: int) -> StorageStats:
    return StorageStats("fake", 0, 0, 0, 0, 0, 0, 0, free, total)


def test_memory_counts_only_when_it_is_limited() -> None:
    assert memory_fraction(Limits(), 10**12) == 0.0
    assert memory_fraction(Limits(memory_limit_bytes=200), 100) == 0.5


def test_memory_is_short_from_the_first_watermark_on() -> None:
    assert not memory_is_short(Limits(memory_limit_bytes=200), 159)
    assert memory_is_short(Limits(memory_limit_bytes=200), 160)


def test_a_big_disk_that_is_nearly_full_has_room_enough() -> None:
    limits = Limits(disk_reserve_bytes=1000)
    assert disk_fraction(limits, stats(free=1000, total=1_000_000)) == 0.0
    assert disk_fraction(limits, stats(free=500, total=10_000)) == 0.95
    assert disk_fraction(limits, stats(free=0, total=0)) == 0.0


def test_a_journal_that_nears_its_bound_is_pressure_like_a_full_disk() -> None:
    nearly = replace(stats(free=10**12, total=10**13), unapplied_bytes=92, journal_bytes_max=100)
    assert journal_fraction(nearly) == 0.92
    assert journal_fraction(stats(free=1, total=2)) == 0.0


# -- checkpoints that do not get through ------------------------------------------------------------------------------


def lsns(last: int, applied: int) -> StorageStats:
    return StorageStats("fake", last, last, applied, 0, 0, 0, 0, 10**12, 10**13, unapplied_bytes=5 << 20)


def test_the_oldest_change_that_waits_tells_the_age() -> None:
    age = CheckpointAge()
    assert age.look(lsns(5, 5), 0.0) == 0.0
    assert age.look(lsns(9, 5), 1.0) == 0.0
    assert age.look(lsns(12, 5), 2.0) == 1.0
    assert age.look(lsns(12, 5), 10.0) == 9.0
    assert age.look(lsns(12, 9), 11.0) == 9.0
    assert age.look(lsns(12, 12), 12.0) == 0.0


def test_a_checkpointer_that_stands_still_for_days_costs_no_memory() -> None:
    age = CheckpointAge()
    for second in range(20_000):
        assert age.look(lsns(second + 1, 0), float(second)) == second
    assert len(age._seen) <= 4096
    assert age.look(lsns(20_001, 20_000), 20_000.0) <= 1.0


class Store:
    """What housekeeping asks of storage; `stats` are the test's."""

    def __init__(self) -> None:
        self.provider = MemoryStorage()
        self.stats = lsns(5, 5)

    async def maintain(self) -> None:
        pass

    async def call(self, work: Callable[[], Any]) -> Any:
        return self.stats


class Case:
    """A broker's housekeeping with clocks set by hand, in seconds."""

    def __init__(self) -> None:
        self.wall = 1_000_000.0
        self.monotonic = 50.0
        self.store = Store()
        self.status = BrokerStatus(started=True)
        self.report = Report(self.status, Metrics(), wall=lambda: self.wall, running=lambda: self.monotonic)
        self.decided: list[Command] = []
        self.failures: list[BaseException] = []
        self.housekeeping = Housekeeping(
            store=self.store,
            sweep=lambda: None,
            clock=Clock(wall=lambda: self.wall, monotonic=lambda: self.monotonic),
            status=self.status,
            limits=Limits(),
            decide=self.decided.extend,
            chores=(),
            fatal=self.failures.append,
            monotonic=lambda: self.monotonic,
        )

    async def pass_s(self, seconds: int) -> None:
        for _ in range(seconds):
            self.wall += 1
            self.monotonic += 1
            await self.housekeeping.round()

    def health(self) -> dict[str, Any]:
        return self.report.health(self.report.snapshots.at_once())


@pytest.mark.anyio
async def test_a_checkpointer_that_stands_still_is_told_everywhere(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    await case.pass_s(5)
    assert case.health()["status"] == "healthy"
    case.store.stats = replace(lsns(50, 5), checkpoint_interval_s=10.0)
    await case.pass_s(30)
    assert case.report.alarms() == []
    await case.pass_s(2)
    [alarm] = case.report.alarms()
    assert "no checkpoint has got through for 31 s and 5 MiB of journal" in alarm
    assert case.health()["status"] == "degraded"
    assert case.health()["is_healthy"]
    await case.pass_s(60)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [alarm]
    case.store.stats = lsns(50, 50)
    await case.pass_s(1)
    assert case.health()["status"] == "healthy"


@pytest.mark.anyio
async def test_a_slow_interval_is_no_alarm() -> None:
    case = Case()
    case.store.stats = replace(lsns(50, 5), checkpoint_interval_s=300.0)
    await case.pass_s(301)
    assert case.report.alarms() == []


@pytest.mark.anyio
async def test_a_journal_at_its_bound_stops_publishers() -> None:
    case = Case()
    case.store.stats = replace(lsns(50, 5), journal_bytes_max=5 << 20)
    await case.pass_s(1)
    assert case.decided == [SetPressure(Pressure.OVERFLOWING, "journal is 100% full")]
    assert not case.report.is_ready()


@pytest.mark.anyio
async def test_a_chore_that_fails_keeps_nothing_else_from_being_done(caplog: pytest.LogCaptureFixture) -> None:
    case = Case()
    done: list[int] = []

    async def fails() -> None:
        raise LookupError("no such thing")

    async def works() -> None:
        done.append(1)

    case.housekeeping.chores = [fails, works]
    case.store.stats = replace(lsns(50, 5), journal_bytes_max=5 << 20)
    await case.pass_s(2)
    assert case.decided == [SetPressure(Pressure.OVERFLOWING, "journal is 100% full")]
    assert done == [1, 1]
    assert sum("fails failed" in record.message for record in caplog.records) == 2


@pytest.mark.anyio
async def test_a_chore_that_finds_storage_failed_ends_the_broker() -> None:
    case = Case()

    async def fails() -> None:
        raise StorageFailed("the disk is gone")

    case.housekeeping.chores = [fails]
    await case.pass_s(1)
    assert [str(error) for error in case.failures] == ["the disk is gone"]


@pytest.mark.anyio
async def test_a_store_that_is_full_is_told_with_its_reason() -> None:
    case = Case()
    case.store.stats = replace(lsns(5, 5), full="a file may have 7 bytes, raise that limit")
    await case.pass_s(2)
    case.store.stats = replace(lsns(5, 5), full="the disk of /data is full: free 2 MiB or more")
    await case.pass_s(2)
    case.store.stats = lsns(5, 5)
    await case.pass_s(2)
    assert case.decided == [
        SetPressure(Pressure.OVERFLOWING, "a file may have 7 bytes, raise that limit"),
        SetPressure(Pressure.OVERFLOWING, "the disk of /data is full: free 2 MiB or more"),
        SetPressure(Pressure.NONE, ""),
    ]


# -- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
@pytest.mark.parametrize(("jump", "said"), [(3_600, "behind it"), (-3_600, "ahead of it")])
async def test_a_wall_clock_that_is_set_is_told(caplog: pytest.LogCaptureFixture, jump: int, said: str) -> None:
    case = Case()
    await case.pass_s(5)
    assert case.report.alarms() == []
    case.wall += jump
    await case.pass_s(2)
    [alarm] = case.report.alarms()
    assert "3,600 s" in alarm
    assert said in alarm
    assert sum("3,600 s" in record.message for record in caplog.records) == 1
    case.wall -= jump
    await case.pass_s(3)
    assert case.report.alarms() == []


@pytest.mark.anyio
async def test_a_small_step_of_the_wall_clock_is_nothing_to_talk_about() -> None:
    case = Case()
    case.wall += 4
    await case.pass_s(1)
    assert case.report.alarms() == []


@pytest.mark.anyio
async def test_a_clock_behind_the_store_is_an_alarm_for_an_hour() -> None:
    case = Case()
    case.status.store_ahead_ms = 365 * 86_400_000
    await case.pass_s(1)
    [alarm] = case.report.alarms()
    assert "31,536,000 s behind the latest instant in the store" in alarm
    figures = BrokerFigures(case.report, cast(Trail, None), limits=Limits, jobs_running=lambda: 0, now=lambda: 0)
    [told] = figures.sentences()
    assert (told["level"], told["remedy"][:17]) == ("warning", "correct the clock")
    case.monotonic += 3_600
    case.wall += 3_600
    await case.pass_s(1)
    assert case.report.alarms() == []
