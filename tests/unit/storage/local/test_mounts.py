"""The file system of a data directory is found in the table of mounts."""

from pathlib import Path

import pytest

from vibemq.errors import ConfigInvalid
from vibemq.storage.local.mounts import file_system_of, is_mount_point, refuse_remote

MOUNTS = b"""\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:40 / /mnt/net\\040share rw - nfs4 server:/x rw
31 21 0:41 / /mnt rw - xfs /dev/sdb rw
32 21 0:42 / /mnt/fuse rw - fuse.sshfs host:/ rw
33 21 0:43 / /run rw - tmpfs tmpfs rw
34 21 0:44 / /twice rw - ext4 /dev/a rw
35 21 0:45 / /twice rw - cifs //host/b rw
36 21 0:46 / /layer rw - overlay overlay rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind", "remote", "volatile"),
    [
        ("/data", "ext4", False, False),
        ("/mnt/disk/x", "xfs", False, False),
        ("/mnt/net share/x", "nfs4", True, False),
        ("/mnt/fuse/deep/er", "fuse.sshfs", True, False),
        ("/run/x", "tmpfs", False, True),
        ("/twice/x", "cifs", True, False),
        ("/mntx", "ext4", False, False),
    ],
)
def test_file_systems_are_found_by_the_deepest_mount(path: str, kind: str, remote: bool, volatile: bool) -> None:
    found = file_system_of(Path(path), MOUNTS)
    assert (found.type, found.remote, found.volatile) == (kind, remote, volatile)


@pytest.mark.parametrize(
    ("path", "passing"),
    [
        ("/run/x", ("in memory (tmpfs): a restart of the machine loses it", "use a disk")),
        ("/layer/x", ("in a container's own layer: it goes with the container", "use a volume")),
        ("/data", None),
    ],
)
def test_what_does_not_last_is_known(path: str, passing: tuple[str, str] | None) -> None:
    assert file_system_of(Path(path), MOUNTS).passing == passing


def test_remote_file_systems_are_refused_unless_allowed() -> None:
    with pytest.raises(ConfigInvalid, match="nfs4"):
        refuse_remote(Path("/mnt/net share/x"), allow=False, mountinfo=MOUNTS)
    assert refuse_remote(Path("/mnt/net share/x"), allow=True, mountinfo=MOUNTS).remote
    assert refuse_remote(Path("/data"), allow=False, mountinfo=MOUNTS).type == "ext4"


def test_the_running_kernel_is_asked_by_default(tmp_path: Path) -> None:
    assert file_system_of(tmp_path).type


def test_a_mount_point_is_one_also_where_it_is_a_part_of_the_same_file_system(tmp_path: Path) -> None:
    folder = tmp_path / "with space"
    (folder / "inner").mkdir(parents=True)
    table = b"31 21 8:1 /data " + bytes(folder).replace(b" ", b"\\040") + b" rw - ext4 /dev/sda1 rw\n"
    assert is_mount_point(folder, table)
    assert not is_mount_point(folder / "inner", table)
    assert is_mount_point(Path("/"), b"")


def test_a_table_that_cannot_be_read_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vibemq.storage.local.mounts._TABLE", tmp_path / "missing")
    assert file_system_of(tmp_path).type == ""
    assert not is_mount_point(tmp_path)
