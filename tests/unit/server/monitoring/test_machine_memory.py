"""What the files of the system say about memory."""

import pytest

from vibemq.config import Limits
from vibemq.server.monitoring.housekeeping import memory_is_short
from vibemq.server.monitoring.machine_memory import MachineMemory, machine_memory

GIB = 1 << 30
MEMINFO = f"MemTotal: {8 * GIB // 1024} kB\nMemFree: 5 kB\nMemAvailable: {3 * GIB // 1024} kB\nHugePages_Total: 0\n"
ROOT = "/sys/fs/cgroup"


def told_by(**files: str) -> MachineMemory:
    """`files`: by the last part of the path, or by all of it."""

    def read(path: str) -> str:
        if path not in files:
            raise FileNotFoundError(path)
        return files[path]

    return machine_memory(read)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, 8 * GIB),
        ({"/proc/self/cgroup": "0::/\n", f"{ROOT}/memory.max": f"{2 * GIB}\n"}, 2 * GIB),
        ({"/proc/self/cgroup": "0::/a/b\n", f"{ROOT}/a/b/memory.max": "max\n"}, 8 * GIB),
        (
            {"/proc/self/cgroup": "0::/a/b\n", f"{ROOT}/a/b/memory.max": f"{GIB}", f"{ROOT}/a/memory.max": "7"},
            7,
        ),
        (
            {"/proc/self/cgroup": "5:cpu:/x\n4:memory:/x\n0::/\n", f"{ROOT}/memory/memory.limit_in_bytes": f"{GIB}"},
            GIB,
        ),
        ({"/proc/self/cgroup": "4:memory:/\n", f"{ROOT}/memory/memory.limit_in_bytes": f"{1 << 62}"}, 8 * GIB),
    ],
)
def test_the_smallest_limit_counts(files: dict[str, str], limit: int) -> None:
    assert told_by(**{"/proc/meminfo": MEMINFO}, **files) == MachineMemory(limit, 8 * GIB, 3 * GIB)


def test_a_system_that_tells_nothing_has_no_limit() -> None:
    assert told_by() == MachineMemory()
    assert not memory_is_short(Limits(), 1 << 50, MachineMemory)


def test_this_machine_tells_something() -> None:
    memory = machine_memory()
    assert 0 < memory.limit_bytes <= memory.total_bytes
    assert 0 < memory.available_bytes <= memory.total_bytes


@pytest.mark.parametrize(
    ("used", "available", "short"), [(79, 50, False), (80, 50, True), (10, 21, False), (10, 20, True)]
)
def test_without_a_limit_memory_is_short_when_the_system_has_little_left(
    used: int, available: int, short: bool
) -> None:
    """For this process, or for all together."""
    assert memory_is_short(Limits(), used, lambda: MachineMemory(100, 100, available)) is short
    assert memory_is_short(Limits(), used, lambda: MachineMemory(100, 1_000, available * 10)) is short


def test_with_a_limit_nothing_else_counts() -> None:
    none_left = MachineMemory(100, 100, 1)
    assert not memory_is_short(Limits(memory_limit_bytes=200), 159, lambda: none_left)
    assert memory_is_short(Limits(memory_limit_bytes=200), 160, MachineMemory)
