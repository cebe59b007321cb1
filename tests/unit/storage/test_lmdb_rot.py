"""What a power cut during the first start, and rot in LMDB's own pages, leave behind."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.storage.test_lmdb_provider import SMALL, a_queue, dead, messages, sequences
from vibemq.errors import StorageDamaged
from vibemq.model.jobs.job import JobKind, JobPlan, JobState, StoredJob
from vibemq.model.jobs.job_records import JobAdvanced, JobStarted
from vibemq.model.records import DeadRemoved
from vibemq.storage.lmdb.environment import pages
from vibemq.storage.lmdb.environment.env import flush_again, open_writer, remove_unborn
from vibemq.storage.lmdb.environment.free_pages import UnusedPages, unused_pages
from vibemq.storage.lmdb.environment.pairs import read_pairs
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.repair import repair
from vibemq.storage.local.disk import RealDisk

pytestmark = pytest.mark.usefixtures("quick_checkpointers")

PAGE = os.sysconf("SC_PAGE_SIZE")


def checkpointed(folder: Path, count: int, *, queues: int = 1) -> Path:
    """A closed store whose messages are all in LMDB; the second is a dead letter."""
    provider = LmdbProvider(folder, SMALL)
    provider.open()
    for queue_id in range(2, queues + 1):
        provider.append(a_queue(queue_id))
    provider.append([*a_queue(), messages(1, count)])
    provider.append([dead(1, 2)])
    provider.checkpoint()
    provider.close()
    return folder / "store" / "data.mdb"


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


def blank(path: Path) -> None:
    path.write_bytes(bytes(2 * PAGE))


def half_blank(path: Path) -> None:
    open_writer(path.parent).close()
    overwrite(path, PAGE, bytes(PAGE))


@pytest.mark.parametrize("leave", [blank, half_blank, Path.touch])
def test_a_first_start_cut_short_is_begun_again(tmp_path: Path, leave: object) -> None:
    (tmp_path / "store").mkdir()
    leave(tmp_path / "store" / "data.mdb")  # type: ignore[operator]
    provider = LmdbProvider(tmp_path, SMALL)
    assert provider.open().queues == {}
    provider.close()


@pytest.mark.parametrize("lost", [(), (0,), (1,), (0, 1)])
def test_a_store_cut_before_its_first_commit_was_flushed_is_made_anew(tmp_path: Path, lost: tuple[int, ...]) -> None:
    """The commit's pages are there, in a file that has grown, but no header knows them, and header pages are lost."""
    path = tmp_path / "store" / "data.mdb"
    path.parent.mkdir()
    with open_writer(path.parent):
        header = path.read_bytes()[: 2 * PAGE]
    pages = [header[:PAGE], header[PAGE:]]
    for page in lost:
        pages[page] = bytes(PAGE)
    path.write_bytes(b"".join(pages) + b"page of the first commit".ljust(3 * PAGE, b"."))
    remove_unborn(path.parent, has_journal=False)
    assert not path.exists()


def test_a_store_that_was_born_is_never_taken_for_unborn(tmp_path: Path) -> None:
    path = checkpointed(tmp_path, 10)
    size = path.stat().st_size
    (tmp_path / "store.json").unlink()
    overwrite(path, 0, bytes(2 * PAGE))
    with pytest.raises(StorageDamaged, match="header"):
        LmdbProvider(tmp_path, SMALL).open()
    assert path.stat().st_size == size


@pytest.mark.parametrize("page", [0, 1])
def test_a_broken_header_page_is_healed_from_the_other_one(tmp_path: Path, page: int) -> None:
    path = checkpointed(tmp_path / "data", 50)
    overwrite(path, page * PAGE, bytes(PAGE))
    with pytest.raises(StorageDamaged):
        LmdbProvider(tmp_path / "data", SMALL).open()
    problems = repair(tmp_path / "data", SMALL)
    assert any("header" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    assert list(provider.check()) == []
    # The older header may stand for the state before the last checkpoint, and that one is then listed as lost.
    assert sequences(provider) == list(range(1, 51)) or any("lost" in problem.what for problem in problems)
    provider.close()


@pytest.mark.slow
def test_repair_survives_pages_that_make_lmdb_abort(tmp_path: Path) -> None:
    # Enough keys for several leaves below one branch.
    whole = checkpointed(tmp_path / "whole", 20, queues=80)
    died = 0
    # From the end, where the root of the tree is; the proof's bit-rot tries them all.
    for page in reversed(range(2, whole.stat().st_size // PAGE)):
        if died == 2:
            break
        data = tmp_path / "data"
        shutil.rmtree(data, ignore_errors=True)
        shutil.copytree(tmp_path / "whole", data)
        overwrite(data / "store" / "data.mdb", page * PAGE, bytes(PAGE))
        try:
            list(read_pairs(data / "store", backward=False))
        except StorageDamaged as error:
            died += "code -" in str(error)
        problems = repair(data, SMALL)
        provider = LmdbProvider(data, SMALL)
        provider.open()
        assert list(provider.check()) == []
        assert 1 not in provider._store.state.queues or sequences(provider) == list(range(1, 21)) or problems
        provider.close()
    assert died, "no page made LMDB abort; the test proves nothing"


def test_a_dead_letter_goes_with_its_lost_message(tmp_path: Path) -> None:
    path = checkpointed(tmp_path / "data", 50)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    # The journal has the move into the DLQ, the store has the message, in a block that rots.
    provider.append([dead(2, 40)])
    provider.abandon()
    content = path.read_bytes()
    at = content.index(b"2020")
    overwrite(path, at, bytes([content[at] ^ 1]))
    problems = repair(tmp_path / "data", SMALL)
    assert any("dead letter 2" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    assert provider.open().dead_count == 0
    assert provider.dead_letters() == []
    assert list(provider.check()) == []
    provider.close()


def lose_the_place(path: Path) -> None:
    """Of the journal up to which it is applied. In all pages that say it: which of them counts is LMDB's affair."""
    content = path.read_bytes()
    for found in re.finditer(b"mstate", content):
        overwrite(path, found.end() + 8, bytes([content[found.end() + 8] ^ 1]))


def test_a_lost_place_in_the_journal_doubles_nothing(tmp_path: Path) -> None:
    path = checkpointed(tmp_path / "data", 20)
    lose_the_place(path)
    problems = repair(tmp_path / "data", SMALL)
    assert any("how far the journal was applied" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    assert provider.open().dead_count == 1
    assert sequences(provider) == list(range(1, 21))
    assert list(provider.check()) == []
    provider.close()


def test_an_id_named_ahead_does_not_stand_for_its_letter(tmp_path: Path) -> None:
    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, 20), DeadRemoved([1_000])])
    provider.checkpoint()
    # Behind the place that is lost: only the journal has it.
    provider.append([dead(1, 2)])
    provider.abandon()
    path = tmp_path / "data" / "store" / "data.mdb"
    lose_the_place(path)
    problems = repair(tmp_path / "data", SMALL)
    assert any("how far the journal was applied" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    assert provider.open().dead_count == 1
    assert list(provider.check()) == []
    provider.close()


def test_a_lost_place_in_the_journal_counts_no_page_of_a_job_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def started(job_id: int) -> JobStarted:
        plan = JobPlan(kind=JobKind.PURGE_DEAD, filter={}, last_id=30 + job_id)
        return JobStarted(StoredJob(job_id=job_id, plan=plan, created_at=job_id, state=JobState.RUNNING))

    provider = LmdbProvider(tmp_path / "data", SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, 20), started(1), dead(1, 2)])
    # What comes last says nothing of messages.
    provider.append([DeadRemoved([1]), JobAdvanced(1, 10, cursor=1, examined=1, done=1, skipped=0, damaged=0)])
    with monkeypatch.context() as patched:
        # As by a kill right behind the checkpoint: the segment that was applied still stands there.
        patched.setattr(Journal, "release", lambda journal, applied_lsn: None)
        provider.checkpoint()
        # Behind the place that is lost: only the journal has it.
        provider.append([JobAdvanced(1, 11, cursor=2, examined=1, done=1, skipped=0, damaged=0), started(2)])
        provider.append([JobAdvanced(2, 12, cursor=1, examined=1, done=1, skipped=0, damaged=0)])
        provider.abandon()
    path = tmp_path / "data" / "store" / "data.mdb"
    lose_the_place(path)
    problems = repair(tmp_path / "data", SMALL)
    assert any("up to record 2" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path / "data", SMALL)
    jobs = provider.open().jobs
    assert [(jobs[number].done, jobs[number].cursor) for number in (1, 2)] == [(2, 2), (1, 1)]
    assert list(provider.check()) == []
    provider.close()


def last_record(folder: Path, count: int) -> Path:
    """A killed broker's store; its last record, of the messages from `count` on, was flushed and nothing follows it."""
    provider = LmdbProvider(folder, SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, count - 1)])
    provider.sync()
    provider.append([messages(count, 1)])
    provider.sync()
    provider.abandon()
    (path,) = [path for path in (folder / "journal").iterdir() if b"m%d" % count in path.read_bytes()]
    return path


@pytest.mark.parametrize("gone", [False, True])
def test_rot_in_the_last_record_is_no_torn_tail(tmp_path: Path, gone: bool) -> None:
    """It was confirmed: `check` names it, and the broker refuses to go on as if it had never been there."""
    path = last_record(tmp_path, 8)
    if gone:
        path.unlink()
    else:
        at = path.read_bytes().rindex(b"m8")
        overwrite(path, at, b"X")
    for _ in range(2):
        with pytest.raises(StorageDamaged, match="broken although it was durable"):
            LmdbProvider(tmp_path, SMALL).open()
    problems = repair(tmp_path, SMALL)
    assert any("journal records" in problem.what and "lost" in problem.what for problem in problems)
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    if not gone:
        assert sequences(provider) == [1, 2, 3, 4, 5, 6, 7]
        provider.append([messages(8, 2)])
        provider.sync()
    provider.close()


def test_a_record_that_was_never_flushed_may_be_torn(tmp_path: Path) -> None:
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    provider.append([*a_queue(), messages(1, 7)])
    provider.sync()
    provider.append([messages(8, 1)])
    provider.abandon()
    (path,) = [path for path in (tmp_path / "journal").iterdir() if b"m8" in path.read_bytes()]
    overwrite(path, path.read_bytes().rindex(b"m8"), b"X")
    provider = LmdbProvider(tmp_path, SMALL)
    provider.open()
    assert sequences(provider) == [1, 2, 3, 4, 5, 6, 7]
    assert provider.stats().torn_tail_bytes
    provider.close()


@pytest.fixture
def carried_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made until now comes to a system whose pages are four times as big."""
    monkeypatch.setattr(os, "sysconf", lambda _: 4 * PAGE)
    monkeypatch.setattr(pages, "PAGE_BYTES", 4 * PAGE)


@pytest.fixture
def made_here(tmp_path: Path) -> Path:
    return checkpointed(tmp_path, 400)


def test_a_store_of_a_system_with_other_pages_is_opened(made_here: Path, carried_elsewhere: None) -> None:
    provider = LmdbProvider(made_here.parent.parent, SMALL)
    provider.open()
    assert sequences(provider) == list(range(1, 401))
    assert list(provider.check()) == []
    provider.close()


def test_a_store_of_a_system_with_other_pages_keeps_all_when_it_is_repaired(
    made_here: Path, carried_elsewhere: None
) -> None:
    folder = made_here.parent.parent
    assert repair(folder, SMALL) == []
    provider = LmdbProvider(folder, SMALL)
    provider.open()
    assert sequences(provider) == list(range(1, 401))
    provider.close()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_header_is_healed_in_a_store_of_a_system_with_other_pages(
    made_here: Path, carried_elsewhere: None, lost: int
) -> None:
    overwrite(made_here, lost * PAGE, bytes(PAGE))
    assert [problem.what for problem in repair(made_here.parent.parent, SMALL)][:1] == [
        "one of the two header pages was broken; the other was used"
    ]


def test_free_pages_of_a_system_with_other_pages_are_counted_as_big_as_they_are(
    made_here: Path, carried_elsewhere: None
) -> None:
    found = unused_pages(made_here)
    assert found.page_bytes == PAGE
    assert UnusedPages(((1, 8),), 0, PAGE).for_values(PAGE // 2) == 8 * PAGE


def test_a_header_that_the_disk_may_have_refused_is_written_again_before_it_is_built_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system shows it, counts it as written and flushes it no more; the journal is released upon it."""
    path = checkpointed(tmp_path, 10)
    content, calls = path.read_bytes(), list[tuple[str, int]]()
    disk = RealDisk()
    monkeypatch.setattr(disk, "fdatasync", lambda file: calls.append(("flush", 0)))
    write = disk.pwritev

    def watched(file: int, buffers: Sequence[bytes], offset: int) -> int:
        assert content[offset:].startswith(b"".join(buffers))
        calls.append(("write", sum(map(len, buffers))))
        return write(file, buffers, offset)

    monkeypatch.setattr(disk, "pwritev", watched)
    flush_again(disk, path.parent)
    assert calls == [("flush", 0), ("write", 2 * PAGE), ("flush", 0)]
    assert path.read_bytes() == content
