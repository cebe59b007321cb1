"""The disks that a power cut may leave, in calls small enough to think through."""

from collections.abc import Iterable
from random import Random

import pytest

from tests.proof.shim import DSYNC, FOLDER, Kind, Note
from tests.proof.syscall_images import MANNERS, SECTOR, Disk, Image, Manner, timeline

ROOT = "/r"
ROUNDS = 200


class Script:
    """Calls one after another, or at given instants."""

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._now = 0

    def call(
        self,
        kind: Kind,
        path: str,
        *,
        inode: int = 1,
        data: bytes = b"",
        offset: int = 0,
        size: int = 0,
        path2: str = "",
        flags: int = 0,
        at: tuple[int, int] | None = None,
    ) -> "Script":
        before, after = at or (self._now + 1, self._now + 2)
        self._now = max(self._now, after)
        path2 = path2 and f"{ROOT}/{path2}"
        path = f"{ROOT}/{path}" if path else ROOT
        self.notes.append(Note(kind, flags, before, after, inode, offset, size or len(data), path, path2, data))
        return self

    def new_file(self, path: str = "f", inode: int = 1) -> "Script":
        return self.call(Kind.CREATE, path, inode=inode).call(Kind.SYNC, "", flags=FOLDER, inode=99)

    def disk(self) -> Disk:
        disk = Disk(ROOT)
        for _ in timeline(self.notes, disk, self._now):
            pass
        return disk


def images(disk: Disk, manners: Iterable[Manner] = MANNERS) -> list[Image]:
    rng = Random(1)
    return [disk.image(rng, manner) for manner in manners for _ in range(ROUNDS)]


def contents(disk: Disk, path: str = "f") -> set[bytes | None]:
    return {image.get(f"{ROOT}/{path}") for image in images(disk)}


def test_what_was_flushed_is_in_every_image() -> None:
    disk = Script().new_file().call(Kind.WRITE, "f", data=b"abc").call(Kind.SYNC, "f").disk()
    assert contents(disk) == {b"abc"}
    assert disk.unflushed == 0


def test_what_was_not_flushed_may_be_there_or_not_or_be_zeros() -> None:
    disk = Script().new_file().call(Kind.WRITE, "f", data=b"abc").disk()
    assert contents(disk) == {b"", b"abc", b"\0\0\0"}


def test_sectors_are_kept_one_by_one_and_in_any_version() -> None:
    script = Script().new_file().call(Kind.WRITE, "f", data=b"0" * 2 * SECTOR).call(Kind.SYNC, "f")
    for letter in (b"1", b"2"):
        script.call(Kind.WRITE, "f", data=letter * 2 * SECTOR)
    found = {(image[0:1], image[SECTOR : SECTOR + 1]) for image in contents(script.disk()) if image}
    assert found == {(a, b) for a in (b"0", b"1", b"2") for b in (b"0", b"1", b"2")}
    assert all(image is not None and len(set(image[:SECTOR])) == 1 for image in contents(script.disk()))


def test_a_sector_grows_write_by_write() -> None:
    """A later append to the same sector is never there without the one before it."""
    script = Script().new_file().call(Kind.WRITE, "f", data=b"aa").call(Kind.WRITE, "f", data=b"bb", offset=2)
    assert contents(script.disk()) <= {b"", b"aa", b"aabb", b"\0\0", b"aa\0\0", b"\0\0\0\0"}
    assert b"aabb" in contents(script.disk())


def test_a_flush_covers_only_what_was_done_when_it_began() -> None:
    script = Script().new_file()
    script.call(Kind.WRITE, "f", data=b"in time", at=(10, 11))
    script.call(Kind.WRITE, "f", data=b"too late", offset=SECTOR, at=(12, 20))
    script.call(Kind.SYNC, "f", at=(15, 30))
    found = contents(script.disk())
    assert all(image is not None and image.startswith(b"in time") for image in found)
    assert b"in time" in found


def test_a_flush_that_has_not_returned_has_done_nothing_yet() -> None:
    script = Script().new_file().call(Kind.WRITE, "f", data=b"abc", at=(10, 11)).call(Kind.SYNC, "f", at=(12, 20))
    disk = Disk(ROOT)
    for last in timeline(script.notes, disk, 30):
        if last == 19:
            assert b"" in contents(disk)
    assert contents(disk) == {b"abc"}


def test_a_synchronous_write_is_durable_when_it_returns_and_nothing_else_is() -> None:
    script = Script().new_file().call(Kind.WRITE, "f", data=b"x" * SECTOR, offset=SECTOR)
    disk = script.call(Kind.WRITE, "f", data=b"meta", flags=DSYNC).disk()
    found = contents(disk)
    assert all(image is not None and image.startswith(b"meta") for image in found)
    assert b"meta" in found


def test_a_name_needs_a_flush_of_its_folder() -> None:
    script = Script().call(Kind.CREATE, "f").call(Kind.WRITE, "f", data=b"abc").call(Kind.SYNC, "f")
    assert contents(script.disk()) == {None, b"abc"}
    assert contents(script.call(Kind.SYNC, "", flags=FOLDER).disk()) == {b"abc"}


def test_a_renamed_file_has_one_name_the_old_or_the_new() -> None:
    script = Script().new_file("old").call(Kind.WRITE, "old", data=b"abc").call(Kind.SYNC, "old")
    script.call(Kind.RENAME, "old", path2="new")
    names = {tuple(sorted(image.keys() - {ROOT})) for image in images(script.disk())}
    assert names == {(f"{ROOT}/old",), (f"{ROOT}/new",)}


def test_renaming_over_a_file_leaves_one_of_the_two() -> None:
    script = Script().new_file("f", 1).call(Kind.WRITE, "f", data=b"old", inode=1).call(Kind.SYNC, "f", inode=1)
    script.call(Kind.CREATE, "f.new", inode=2).call(Kind.WRITE, "f.new", data=b"new", inode=2)
    script.call(Kind.SYNC, "f.new", inode=2).call(Kind.RENAME, "f.new", path2="f")
    assert contents(script.disk()) == {b"old", b"new"}


def test_without_its_truncation_a_file_has_not_what_was_written_behind_it() -> None:
    script = Script().new_file().call(Kind.WRITE, "f", data=b"0" * SECTOR).call(Kind.SYNC, "f")
    script.call(Kind.TRUNCATE, "f", size=0).notes[-1].size = 0
    script.call(Kind.WRITE, "f", data=b"1" * SECTOR)
    found = contents(script.disk())
    assert {b"0" * SECTOR, b"1" * SECTOR, b""} <= found
    assert all(image is not None and set(image) in ({48}, {49}, {0}, set()) for image in found)


def test_a_number_that_is_used_again_is_another_file() -> None:
    script = Script().new_file("a", 7).call(Kind.WRITE, "a", data=b"a", inode=7).call(Kind.SYNC, "a", inode=7)
    script.call(Kind.UNLINK, "a").call(Kind.CREATE, "b", inode=7).call(Kind.WRITE, "b", data=b"b", inode=7)
    for image in images(script.disk()):
        assert image.get(f"{ROOT}/a") in (None, b"a")
        assert image.get(f"{ROOT}/b") in (None, b"", b"b", b"\0")


def test_what_is_in_a_folder_without_a_name_is_out_of_reach() -> None:
    script = Script().call(Kind.MKDIR, "d").call(Kind.CREATE, "d/f").call(Kind.WRITE, "d/f", data=b"abc")
    script.call(Kind.SYNC, "d/f").call(Kind.SYNC, "d", flags=FOLDER)
    found = {tuple(sorted(image)) for image in images(script.disk())}
    assert found == {(ROOT,), (ROOT, f"{ROOT}/d", f"{ROOT}/d/f")}


@pytest.mark.parametrize("name", ["all", "none"])
def test_the_two_ends_are_what_they_say(name: str) -> None:
    script = Script().new_file().call(Kind.WRITE, "f", data=b"0" * 4).call(Kind.SYNC, "f")
    script.call(Kind.ALLOC, "f", size=8).call(Kind.WRITE, "f", data=b"1", offset=6)
    wanted = b"0000\0\x001\0" if name == "all" else b"0000"
    assert {image[f"{ROOT}/f"] for image in images(script.disk(), [Manner(name)])} == {wanted}
