import pytest

from vibemq.config import Limits
from vibemq.model.commands import Pressure
from vibemq.server.monitoring.housekeeping import disk_fraction, memory_fraction, pressure_at
from vibemq.storage.interface import StorageStats


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


def test_a_big_disk_that_is_nearly_full_has_room_enough() -> None:
    limits = Limits(disk_reserve_bytes=1000)
    assert disk_fraction(limits, stats(free=1000, total=1_000_000)) == 0.0
    assert disk_fraction(limits, stats(free=500, total=10_000)) == 0.95
    assert disk_fraction(limits, stats(free=0, total=0)) == 0.0
