from pathlib import Path

import pytest

from vibemq.storage.local.disk import Disk, RealDisk, write_all
from vibemq.testing.sim_disk import SimDisk


@pytest.fixture(params=["real", "simulated"])
def disk_and_folder(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    if request.param == "real":
        return RealDisk(), f"{tmp_path}/d"
    return SimDisk(short_writes=True), "/d"


def test_the_operations_of_both_disks_agree(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    disk.mkdir(folder)
    disk.mkdir(folder)
    file = disk.open(f"{folder}/a", create=True)
    disk.fallocate(file, 2000)
    write_all(disk, file, [b"x" * 700, b"", b"y" * 700], 100)
    disk.fdatasync(file)
    disk.fsync_dir(folder)
    assert disk.size(file) == 2000
    assert disk.pread(file, 5000, 799) == b"x" + b"y" * 700 + bytes(500)
    disk.rename(f"{folder}/a", f"{folder}/b")
    assert disk.listdir(folder) == ["b"]
    disk.truncate(file, 3)
    assert disk.pread(file, 10, 0) == bytes(3)
    disk.close(file)
    disk.unlink(f"{folder}/b")
    assert disk.listdir(folder) == []
    assert disk.free_bytes(folder) > 0
    with pytest.raises(FileNotFoundError):
        disk.open(f"{folder}/b")


def test_more_buffers_than_one_call_takes(disk_and_folder: tuple[Disk, str]) -> None:
    disk, folder = disk_and_folder
    disk.mkdir(folder)
    file = disk.open(f"{folder}/a", create=True)
    write_all(disk, file, [b"ab"] * 3000, 0)
    assert disk.pread(file, 9000, 0) == b"ab" * 3000
