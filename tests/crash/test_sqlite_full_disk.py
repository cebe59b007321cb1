"""A small disk filled up by a sqlite store: nothing but the kernel says what fits."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from tests.integration.conditions import small_disk, write_until_full
from tests.proof.forked import in_fork
from tests.unit.storage.full_store import FullStore
from vibemq.model.options import QueueOptions
from vibemq.model.records import QueueCreated
from vibemq.storage.local.ballast import BALLAST_FILE
from vibemq.storage.sqlite.provider import SqliteStorage
from vibemq.storage.sqlite.settings import SqliteSettings

pytestmark = pytest.mark.slow

BODIES = [200, 4_000, 20_000, 200_000]
CASES = [(8, 32_000), (24, 250_000), (48, 1_000_000)]
MORE_CASES = [(8, 250_000), (8, 1_000_000), (12, 1_000_000), (24, 1_000_000)]


def minutes() -> Iterator[float]:
    now = 0.0
    while True:
        now += 60.0
        yield now


def storage_on(data_dir: Path) -> SqliteStorage:
    """No round of housekeeping is too early for anything."""
    return SqliteStorage(data_dir, SqliteSettings(), monotonic=minutes().__next__)


@pytest.mark.parametrize("part", [1.0, pytest.param(0.5, marks=pytest.mark.long)], ids=["drained", "half drained"])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("mebibytes", "batch"), [*CASES, *(pytest.param(*case, marks=pytest.mark.long) for case in MORE_CASES)]
)
@pytest.mark.long_where(mebibytes=8, body=[4_000, 20_000])
@pytest.mark.long_where(mebibytes=24, body=[200, 20_000, 200_000])
@pytest.mark.long_where(mebibytes=48, body=[200, 4_000, 200_000])
def test_a_drained_store_takes_messages_again(
    tmp_path: Path, mebibytes: int, batch: int, body: int, part: float
) -> None:
    with small_disk(tmp_path / "disk", mebibytes) as disk, closing(storage_on(disk / "data")) as storage:
        FullStore(storage, body, batch).assert_takes_messages_again(part)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("mebibytes", [8, 24, 48])
@pytest.mark.long_where(mebibytes=8, body=[4_000, 20_000])
@pytest.mark.long_where(mebibytes=24, body=[200, 20_000, 200_000])
@pytest.mark.long_where(mebibytes=48, body=[200, 4_000, 200_000])
def test_a_store_is_drained_although_others_have_the_rest_of_the_disk(
    tmp_path: Path, mebibytes: int, body: int
) -> None:
    with small_disk(tmp_path / "disk", mebibytes) as disk, closing(storage_on(disk / "data")) as storage:
        store = FullStore(storage, body, 300_000)
        store.publish_again((mebibytes << 19) // body)
        write_until_full(disk / "others")
        store.fill()
        write_until_full(disk / "others")
        store.settle()
        (disk / "others").unlink()
        store.publish_again(2)
        store.assert_nothing_lost()
        assert list(storage.check()) == []


@pytest.mark.parametrize("how", ["killed", "closed"])
@pytest.mark.parametrize(
    "part", [1.0, pytest.param(0.9, marks=pytest.mark.long), pytest.param(0.3, marks=pytest.mark.long)]
)
def test_a_store_that_was_drained_on_a_full_disk_opens_on_one(tmp_path: Path, how: str, part: float) -> None:
    """The ballast went into the drain, and others have taken every byte since, also each time before it opens again."""
    with small_disk(tmp_path / "disk", 24) as disk:

        def life() -> tuple[int, int]:
            storage = storage_on(disk / "data")
            store = FullStore(storage, 300, 100_000)
            store.fill()
            write_until_full(disk / "others")
            store.settle(part)
            if how == "closed":
                storage.close()
            return store.head, store.next

        def another(number: int) -> None:
            storage = storage_on(disk / "data")
            state = storage.open()
            assert state.queues[1].next_sequence == end
            parts = storage.read(1, head, end, 1 << 40)
            assert sum(part.rows.count for part in parts) == end - head
            storage.append([QueueCreated(1 + number, f"q{number}", QueueOptions(), 0, "a" * 32)])
            storage.sync()
            if how == "closed":
                storage.close()

        head, end = in_fork(life)
        assert not (disk / "data" / BALLAST_FILE).exists(), "the drain has taken it"
        for number in range(1, 4):
            write_until_full(disk / "others")
            in_fork(partial(another, number))
