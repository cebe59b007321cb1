"""Damage that hides, repeats or moves keys in LMDB's pages, where no value's checksum can show it."""

import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from tests.unit.storage.lmdb_pages import PAGE, PageEditor
from tests.unit.storage.test_lmdb_provider import SMALL, a_queue, dead, messages, sequences
from tests.unit.storage.test_lmdb_rot import checkpointed
from vibemq.errors import StorageDamaged
from vibemq.model.records import HandedOut, Settled
from vibemq.storage.interface import Problem
from vibemq.storage.kvstore import keys
from vibemq.storage.lmdb.environment.pages import check_pages
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.repair import repair

pytestmark = pytest.mark.usefixtures("quick_checkpointers")

COUNT = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "data"
    checkpointed(folder, COUNT)
    return folder


@pytest.fixture
def pages(tmp_path: Path, whole: Path) -> PageEditor:
    """A store with messages 1 to 40 of one queue in LMDB, the second a dead letter."""
    shutil.copytree(whole, tmp_path / "data", ignore=shutil.ignore_patterns("lock.mdb"))
    return PageEditor(tmp_path / "data" / "store" / "data.mdb")


def opened(tmp_path: Path) -> LmdbProvider:
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    return provider


def found_by_check(tmp_path: Path) -> list[str]:
    provider = opened(tmp_path)
    try:
        return [problem.what for problem in provider.check()]
    finally:
        provider.close()


def repaired(tmp_path: Path) -> tuple[list[Problem], list[int], list[int]]:
    """What the repair lists, and the messages and dead letters that are there afterwards."""
    problems = repair(tmp_path / "data", SMALL)
    provider = opened(tmp_path)
    try:
        assert list(provider.check()) == []
        letters = [letter.facts.sequence for letter in provider.dead_letters()]
        return problems, sequences(provider), letters
    finally:
        provider.close()


# -- keys that LMDB does not show, and whose absence it does not know ---------------------------------------------


def test_the_editor_does_nothing_by_itself(pages: PageEditor, tmp_path: Path) -> None:
    pages.save()
    assert found_by_check(tmp_path) == []


@pytest.mark.parametrize(
    ("key", "table"),
    [
        (keys.queue_key(1), "queues"),
        (keys.group_key(1, 0), "groups"),
        (keys.sequence_key(keys.CHUNK, 1, 1), "chunks"),
        (keys.STATE_META, "store-wide facts"),
        (keys.RUN_PAGE, "pages of runs"),
    ],
)
def test_a_hidden_value_of_the_state_is_refused_at_the_start(
    pages: PageEditor, tmp_path: Path, key: bytes, table: str
) -> None:
    pages.hide(key)
    pages.save()
    with pytest.raises(StorageDamaged, match=rf"{table}|cannot be read"):
        opened(tmp_path)
    problems, messages_left, letters = repaired(tmp_path)
    assert any(table in problem.what for problem in problems)
    assert messages_left == list(range(1, COUNT + 1))
    assert letters == [2]


def test_a_hidden_tally_is_refused(pages: PageEditor, tmp_path: Path) -> None:
    pages.hide(keys.TALLY)
    pages.save()
    with pytest.raises(StorageDamaged, match="tally"):
        opened(tmp_path)
    problems, messages_left, letters = repaired(tmp_path)
    assert any("tally" in problem.what for problem in problems)
    assert (messages_left, letters) == (list(range(1, COUNT + 1)), [2])


def test_a_block_that_is_hidden_whole_is_missed_by_whoever_reads_it(pages: PageEditor, tmp_path: Path) -> None:
    pages.hide(keys.sequence_key(keys.BLOCK_INFO, 1, 1))
    pages.save()
    provider = opened(tmp_path)
    with pytest.raises(StorageDamaged, match="messages 5 to 9 of queue q1 are missing"):
        provider.read(1, 5, 9, 1 << 20)
    with pytest.raises(StorageDamaged, match="messages 1 to 40 of queue q1 are missing"):
        provider.read(1, 1, 10**9, 1 << 20)
    assert provider.read(1, COUNT + 1, 10**9, 1 << 20) == []
    found = [problem.what for problem in provider.check()]
    assert "messages 1 to 1 of queue q1 are missing" in found
    assert "messages 3 to 40 of queue q1 are missing" in found
    assert "0 block infos are found, 1 were written" in found
    provider.close()
    # The block itself is there, so nothing is lost.
    problems, messages_left, letters = repaired(tmp_path)
    assert any("block infos" in problem.what for problem in problems)
    assert (messages_left, letters) == (list(range(1, COUNT + 1)), [2])


def test_a_hidden_block_is_named_and_listed_as_lost(pages: PageEditor, tmp_path: Path) -> None:
    page, index = pages.find(keys.sequence_key(keys.BLOCK, 1, 1))
    node = pages.nodes(page)[index]
    # Another key, as after a flipped bit in it: out of its place, but in order.
    pages.content[node + 8 + 5] ^= 0x80
    pages.save()
    provider = opened(tmp_path)
    with pytest.raises(StorageDamaged, match="messages 1 to 40 of queue q1 cannot be read"):
        provider.read(1, 1, 10**9, 1 << 20)
    assert any("messages 1 to 40 of queue q1" in problem.what for problem in provider.check())
    provider.close()
    problems, messages_left, letters = repaired(tmp_path)
    assert {"messages 1 to 1 of queue q1 are lost", "messages 3 to 40 of queue q1 are lost"} <= {
        problem.what for problem in problems
    }
    assert (messages_left, letters) == ([], [])


@pytest.mark.parametrize("key", [keys.DEAD, keys.DEAD_BY_MESSAGE])
def test_a_hidden_dead_letter_is_named_and_made_up(pages: PageEditor, tmp_path: Path, key: bytes) -> None:
    pages.hide(key)
    pages.save()
    assert any("0 dead letters" in what for what in found_by_check(tmp_path))
    problems, messages_left, letters = repaired(tmp_path)
    assert any("dead letters" in problem.what for problem in problems)
    assert (messages_left, letters) == (list(range(1, COUNT + 1)), [2])


def test_a_made_up_dead_letter_takes_no_number_from_the_journal(pages: PageEditor, tmp_path: Path) -> None:
    provider = opened(tmp_path)
    provider.append([dead(2, 7)])
    provider.abandon()
    pages.hide(keys.DEAD)
    pages.hide(keys.DEAD_BY_MESSAGE)
    pages.save()
    _, _, letters = repaired(tmp_path)
    assert sorted(letters) == [2, 7]


def test_groups_begin_again_when_some_page_of_runs_is_hidden(tmp_path: Path) -> None:
    """Which one is not known, and without it messages that were handed out would count as settled."""
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, COUNT), HandedOut(1, 0, [(1, 30)]), Settled(1, 0, [(1, 3)])])
    provider.checkpoint()
    provider.close()
    pages = PageEditor(tmp_path / "data" / "store" / "data.mdb")
    pages.hide(keys.RUN_PAGE)
    pages.save()
    with pytest.raises(StorageDamaged, match="pages of runs"):
        opened(tmp_path)
    repair(tmp_path / "data", SMALL)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    assert provider.open().queues[1].groups[0].head == 4, "the oldest that is stored"
    provider.close()


# -- keys that are there twice, in another place, or out of date ----------------------------------------------------


def twice(pages: PageEditor, page: int) -> None:
    pages.copy_pointer(page, 0, 1)


def moved(pages: PageEditor, page: int) -> None:
    pages.swap_pointers(page, 0, 1)


def hidden(pages: PageEditor, page: int) -> None:
    pages.drop_node(page, 1)


def wild_size(pages: PageEditor, page: int) -> None:
    pages.put_u16(pages.nodes(page)[0] + 2, 0x4000)


def wild_key(pages: PageEditor, page: int) -> None:
    pages.put_u16(pages.nodes(page)[0] + 6, 0x4000)


def wild_pointer(pages: PageEditor, page: int) -> None:
    pages.put_u16(page * PAGE + 16, 0x4000)


def another_kind(pages: PageEditor, page: int) -> None:
    pages.put_u16(page * PAGE + 10, 0x10 | 2)


def shorter(pages: PageEditor, page: int) -> None:
    pages.put_u16(page * PAGE + 12, 16)


@pytest.mark.parametrize("damage", [twice, moved, hidden, wild_size, wild_key, wild_pointer, another_kind, shorter])
def test_a_damaged_leaf_is_refused_before_lmdb_reads_it(
    pages: PageEditor, tmp_path: Path, damage: Callable[[PageEditor, int], None]
) -> None:
    damage(pages, pages.leaves()[0])
    pages.save()
    with pytest.raises(StorageDamaged, match="LMDB page") as caught:
        opened(tmp_path)
    assert caught.value.offset is not None
    problems, messages_left, letters = repaired(tmp_path)
    assert set(messages_left) <= set(range(1, COUNT + 1))
    assert problems or (len(messages_left), letters) == (COUNT, [2])


def test_damage_of_pages_that_comes_later_is_named_by_check(pages: PageEditor, tmp_path: Path) -> None:
    provider = opened(tmp_path)
    twice(pages, pages.leaves()[0])
    # In place, as rot comes: the file stays mapped.
    with (tmp_path / "data" / "store" / "data.mdb").open("r+b") as file:
        file.write(pages.content)
    assert any("LMDB page" in problem.what for problem in provider.check())
    provider.abandon()


def raw(tmp_path: Path) -> lmdb.Environment:
    return lmdb.open(str(tmp_path / "data" / "store"), map_size=1 << 30, lib_version=0)


def test_an_older_block_under_the_same_key_is_refused(pages: PageEditor, tmp_path: Path) -> None:
    key = keys.sequence_key(keys.BLOCK, 1, 1)
    with raw(tmp_path) as env, env.begin() as transaction:
        old = bytes(transaction.get(key, b""))
    provider = opened(tmp_path)
    provider.append([messages(COUNT + 1, 5)])
    provider.checkpoint()
    provider.close()
    with raw(tmp_path) as env, env.begin(write=True) as transaction:
        assert transaction.get(key) != old, "the block did not grow; the test proves nothing"
        transaction.put(key, old)
    provider = opened(tmp_path)
    with pytest.raises(StorageDamaged, match="does not match the checksum in its info"):
        provider.read(1, 1, 10, 1 << 20)
    provider.close()


def test_an_older_value_of_the_state_is_refused(pages: PageEditor, tmp_path: Path) -> None:
    key = keys.group_key(1, 0)
    with raw(tmp_path) as env, env.begin() as transaction:
        old = bytes(transaction.get(key, b""))
    provider = opened(tmp_path)
    provider.append([HandedOut(1, 0, [(1, 9)]), Settled(1, 0, [(1, 9)])])
    provider.checkpoint()
    provider.close()
    with raw(tmp_path) as env, env.begin(write=True) as transaction:
        assert transaction.get(key) != old
        transaction.put(key, old)
    with pytest.raises(StorageDamaged, match="the 1 groups are not all as they were written last"):
        opened(tmp_path)


# -- trees, headers and free pages ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lost_subtree_is_refused_and_the_rest_is_saved(tmp_path: Path) -> None:
    path = checkpointed(tmp_path / "data", 20, queues=80)
    pages = PageEditor(path)
    assert pages.is_branch(pages.root), "too few keys for a branch; the test proves nothing"
    lost = pages.child(pages.nodes(pages.root)[-1])
    count = len(pages.nodes(lost))
    pages.drop_node(pages.root, len(pages.nodes(pages.root)) - 1)
    with_wrong_counts = bytes(pages.content)
    # Even when LMDB's own counts agree that it was never there.
    pages.add_to_count(3, -count)
    pages.add_to_count(1, -1)
    for content in (with_wrong_counts, bytes(pages.content)):
        path.write_bytes(content)
        with pytest.raises(StorageDamaged, match=r"not whole|neither used nor free"):
            opened(tmp_path)
    problems, *_ = repaired_many(tmp_path)
    assert any("were written" in problem.what for problem in problems)


def repaired_many(tmp_path: Path) -> tuple[list[Problem], int]:
    problems = repair(tmp_path / "data", SMALL)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    state = provider.open()
    assert list(provider.check()) == []
    provider.close()
    return problems, len(state.queues)


def test_a_live_page_among_the_free_ones_is_refused(pages: PageEditor, tmp_path: Path) -> None:
    with raw(tmp_path) as env:
        for number in range(6):
            with env.begin(write=True) as transaction:
                transaction.put(b"zz%d" % number, bytes(3000))
    path = tmp_path / "data" / "store" / "data.mdb"
    assert check_pages(path)
    fresh = PageEditor(path)
    header = fresh._header
    free_root = int.from_bytes(fresh.content[header + 24 + 40 : header + 24 + 48], "little")
    node = fresh.nodes(free_root)[0]
    first_number = node + 8 + 8 + 8
    fresh.content[first_number : first_number + 8] = fresh.root.to_bytes(8, "little")
    fresh.save()
    with pytest.raises(StorageDamaged, match=f"it calls page {fresh.root} free"):
        check_pages(path)


@pytest.mark.parametrize(
    ("offset", "bit"), [(20, 1), (142, 6), (16 + 128, 3), (16 + 24, 4), (44, 2), (44, 3), (92, 2), (92, 3)]
)
def test_a_wild_header_is_refused(pages: PageEditor, tmp_path: Path, offset: int, bit: int) -> None:
    """Version, last page, transaction, size of pages, kinds of the free and the main tree; in the newer header."""
    at = pages._header - 16 + offset
    pages.content[at] ^= 1 << bit
    size = len(pages.content)
    pages.save()
    with pytest.raises(StorageDamaged):
        opened(tmp_path)
    assert (tmp_path / "data" / "store" / "data.mdb").stat().st_size == size


def test_whole_files_are_walked_without_a_word(tmp_path: Path) -> None:
    path = checkpointed(tmp_path / "data", 300, queues=40)
    assert check_pages(path)
    copy = tmp_path / "copy"
    copy.mkdir()
    with raw(tmp_path) as env, env.begin() as transaction:
        assert check_pages(path, transaction.id())
        assert not check_pages(path, transaction.id() + 7)
        env.copy(str(copy), compact=True)
    assert check_pages(copy / "data.mdb")
    shutil.rmtree(copy)
