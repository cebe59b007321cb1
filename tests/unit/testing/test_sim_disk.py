import errno
import random

import pytest

from vibemq.testing.sim_disk import SECTOR, PowerCut, SimDisk


def a_file(disk: SimDisk, content: bytes = b"") -> int:
    file = disk.open("/f", create=True)
    if content:
        disk.pwritev(file, [content], 0)
    disk.fsync(file)
    disk.fsync_dir("/")
    return file


def images(disk: SimDisk, count: int = 200) -> set[bytes]:
    found = set()
    for seed in range(count):
        after = disk.crash(random.Random(seed))
        if after.listdir("/") == ["f"]:
            found.add(after.content("/f"))
    return found


def test_synced_bytes_survive_and_unsynced_ones_may_not() -> None:
    disk = SimDisk()
    file = a_file(disk, b"a" * SECTOR)
    disk.pwritev(file, [b"b" * SECTOR], 0)
    assert images(disk) == {b"a" * SECTOR, b"b" * SECTOR}
    disk.fdatasync(file)
    assert images(disk) == {b"b" * SECTOR}


def test_sectors_survive_in_any_combination() -> None:
    disk = SimDisk()
    file = a_file(disk, b"a" * 2 * SECTOR)
    disk.pwritev(file, [b"b" * 2 * SECTOR], 0)
    a, b = b"a" * SECTOR, b"b" * SECTOR
    assert images(disk) == {a + a, a + b, b + a, b + b}


def test_every_version_of_a_sector_may_be_the_one() -> None:
    disk = SimDisk()
    file = a_file(disk, b"0" * SECTOR)
    for digit in b"12":
        disk.pwritev(file, [bytes([digit]) * SECTOR], 0)
    assert {image[:1] for image in images(disk)} == {b"0", b"1", b"2"}


def test_folder_entries_need_their_own_flush() -> None:
    disk = SimDisk()
    file = disk.open("/f", create=True)
    disk.fsync(file)
    lists = {tuple(disk.crash(random.Random(seed)).listdir("/")) for seed in range(50)}
    assert lists == {(), ("f",)}
    disk.fsync_dir("/")
    disk.rename("/f", "/g")
    lists = {tuple(disk.crash(random.Random(seed)).listdir("/")) for seed in range(50)}
    assert lists == {("f",), ("g",)}


def test_a_failed_flush_is_not_repaired_by_the_next_one() -> None:
    disk = SimDisk(seed=1)
    file = a_file(disk, b"a" * 8 * SECTOR)
    disk.pwritev(file, [b"b" * 8 * SECTOR], 0)
    disk.errors[disk.ops + 1] = errno.EIO
    with pytest.raises(OSError):
        disk.fdatasync(file)
    disk.fdatasync(file)
    assert disk.pread(file, 8 * SECTOR, 0) == b"b" * 8 * SECTOR
    (image,) = images(disk)
    assert b"a" in image


def test_the_power_goes_at_the_chosen_operation_and_stays_away() -> None:
    disk = SimDisk(crash_at=3)
    file = disk.open("/f", create=True)
    disk.pwritev(file, [b"a"], 0)
    for _ in range(2):
        with pytest.raises(PowerCut):
            disk.fsync(file)
    assert disk.ops == 3


def test_capacity() -> None:
    disk = SimDisk(capacity=1000)
    file = disk.open("/f", create=True)
    disk.fallocate(file, 900)
    assert disk.pwritev(file, [b"x" * 200], 900) == 100
    with pytest.raises(OSError) as error:
        disk.pwritev(file, [b"x"], 1000)
    assert error.value.errno == errno.ENOSPC
    assert disk.free_bytes("/") == 0


def test_a_seed_repeats() -> None:
    disk = SimDisk()
    file = a_file(disk, bytes(64 * SECTOR))
    disk.pwritev(file, [b"x" * 64 * SECTOR], 0)
    assert disk.crash(random.Random(7)).content("/f") == disk.crash(random.Random(7)).content("/f")
