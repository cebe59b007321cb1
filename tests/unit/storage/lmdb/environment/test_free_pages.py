"""What free pages are good for, in files that LMDB wrote."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lmdb
import pytest

from vibemq.storage.lmdb.compaction import store_size
from vibemq.storage.lmdb.environment.env import DATA_FILE, open_writer
from vibemq.storage.lmdb.environment.free_pages import HEAD_BYTES, UnusedPages, unused_pages
from vibemq.storage.lmdb.environment.pages import PAGE_BYTES

ONE_PAGE = PAGE_BYTES - HEAD_BYTES
BIG = 16 * PAGE_BYTES - HEAD_BYTES


@pytest.fixture
def env(tmp_path: Path) -> Iterator[lmdb.Environment]:
    with closing(open_writer(tmp_path / "store")) as env:
        yield env


def put(env: lmdb.Environment, numbers: range, size: int = BIG) -> None:
    with env.begin(write=True) as transaction:
        for number in numbers:
            transaction.put(b"%06d" % number, bytes(size))


def delete(env: lmdb.Environment, numbers: range) -> None:
    with env.begin(write=True) as transaction:
        for number in numbers:
            transaction.delete(b"%06d" % number)


def unused(env: lmdb.Environment) -> UnusedPages:
    return unused_pages(Path(env.path()) / DATA_FILE)


def test_a_new_store_has_none(env: lmdb.Environment) -> None:
    put(env, range(10))
    assert unused(env).for_values(ONE_PAGE) <= 4 * PAGE_BYTES


def test_every_free_page_is_found_but_those_of_their_own_list(env: lmdb.Environment) -> None:
    """However long the list: one of more than a page is a value of its own."""
    put(env, range(200))
    delete(env, range(150))
    _, reclaimable = store_size(env)
    assert 150 * 16 * PAGE_BYTES <= unused(env).for_values(ONE_PAGE) <= reclaimable


def test_pages_here_and_there_are_no_room_for_big_values(env: lmdb.Environment) -> None:
    put(env, range(100))
    delete(env, range(0, 100, 2))
    found = unused(env)
    assert found.for_values(BIG) >= 50 * 16 * PAGE_BYTES
    assert found.for_values(BIG + 1) < 4 * 16 * PAGE_BYTES
    delete(env, range(1, 100, 2))
    assert unused(env).for_values(2 * BIG) >= 96 * 16 * PAGE_BYTES


def test_what_was_counted_is_written_to(env: lmdb.Environment) -> None:
    """One transaction later: LMDB keeps for one more what the last one has freed."""
    put(env, range(100))
    delete(env, range(10, 60))
    put(env, range(1000, 1001), 10)
    room = unused(env).for_values(BIG)
    size, _ = store_size(env)
    put(env, range(2000, 2000 + room // (16 * PAGE_BYTES)))
    assert store_size(env)[0] <= size + 4 * PAGE_BYTES


def test_pages_that_were_never_written_have_no_place_on_the_disk(env: lmdb.Environment) -> None:
    put(env, range(10))
    with env.begin(write=True) as transaction:
        for number in range(100, 300):
            transaction.put(b"%06d" % number, bytes(BIG))
        for number in range(100, 299):
            transaction.delete(b"%06d" % number)
    path = Path(env.path()) / DATA_FILE
    written = path.stat().st_blocks * 512
    size, reclaimable = store_size(env)
    assert unused(env).for_values(ONE_PAGE) <= max(0, written - (size - reclaimable)) + PAGE_BYTES
