"""A power cut while a compacted copy takes the store's place, on a simulated disk."""

import random
from collections.abc import Iterator

import pytest

from tests.proof.sim_files import Machine, path_on, seams
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import Book
from tests.proof.sim_world import DATA_DIR, Sizes, World, new_provider
from vibemq.model.records import HandedOut, Settled
from vibemq.testing.sim_disk import SimDisk
from vibemq.testing.storage_conformance import ALL, NO_LIMIT, added, queue, sequences

STORE = f"{DATA_DIR}/store"
RENAMED = f"rename of {STORE}/compacting/data.mdb"
IMAGES = 40


@pytest.fixture
def world() -> Iterator[World]:
    machine, disk = Machine(), SimDisk()
    disk.mkdir(DATA_DIR)
    disk.fsync_dir("/")
    with seams(machine):
        world = World(disk, Book(), Ledger(), machine, seed="1", now_s=0.0, sizes=Sizes())
        with world.inside():
            yield world


def recovered(world: World, image: SimDisk) -> list[int]:
    """The messages that a start from the image finds in queue 1, for its group."""
    with world.machinery.machine.at(image):
        provider = new_provider(path_on(image, world.book, DATA_DIR), world.sizes, world.wall_ms)
        head = provider.open().queues[1].groups[0].head
        found = sequences(provider.read(1, head, ALL, NO_LIMIT))
        provider.abandon()
    return found


def test_a_power_cut_between_the_rename_of_a_compacted_store_and_its_flush_loses_nothing(world: World) -> None:
    disk = world.disk
    provider = new_provider(world.data_dir, world.sizes, world.wall_ms)
    provider.open()
    provider.append([*queue(), added(1, 20, size=500)])
    provider.append([HandedOut(1, 0, [(1, 12)]), Settled(1, 0, [(1, 12)])])
    images: list[SimDisk] = []
    kept: set[bool] = set()

    def look(operation: str) -> None:
        if operation != "fsync_dir" or f"rename {STORE}/compacting/data.mdb {STORE}/data.mdb" not in disk.log:
            return
        disk.watch = None
        assert not provider._store.large_lock.locked(), "others do not wait for this flush"
        provider.append([added(21, 3)])
        provider.sync()
        for seed in range(IMAGES):
            fate = disk.draw(random.Random(seed))
            images.append(disk.after(fate))
            kept.add(not any(loss.startswith(f"folder change {RENAMED}") for loss in disk.losses(fate)))

    disk.watch = look
    provider.compact()
    assert len(images) == IMAGES
    assert kept == {False, True}, "the old file is found, and the new one"
    for image in images:
        assert recovered(world, image) == list(range(13, 24))
    provider.append([added(24, 1)])
    provider.checkpoint()
    for seed in range(IMAGES):
        found = recovered(world, disk.crash(random.Random(seed)))
        assert found == list(range(13, 25)), "the next checkpoint came behind it"
    provider.close()
