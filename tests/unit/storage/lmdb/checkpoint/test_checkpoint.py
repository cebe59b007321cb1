"""A checkpointer at work says so all the time: whoever waits kills one that is silent. What a transaction holds."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.records import ALL_GROUPS, DeadLettered, DeadRemoved, Record, Settled
from vibemq.storage.kvstore.blocks import block_infos
from vibemq.storage.kvstore.encoding import encode_batch
from vibemq.storage.lmdb.checkpoint import checkpoint as checkpoint_module
from vibemq.storage.lmdb.checkpoint.checkpoint import Checkpoint, SegmentToApply
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import LmdbKV, reading
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.segment import JournalRecord
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.prepare import prepare
from vibemq.testing.sim_disk import SimDisk
from vibemq.testing.storage_conformance import added, letter, queue

QUEUES, LETTERS = 300, 500
STRETCH_MAX = 40
"""Calls to LMDB between two words."""


class Watched:
    """A checkpoint that counts its words, and the calls to LMDB between two of them."""

    def __init__(self, layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
        self.words = self.calls = self.most = self.transactions = 0
        prepare(layout, now=1_000)
        self._env = open_writer(layout.store)
        self.checkpoint = Checkpoint(self._env, self._said)
        self._lsn = 0
        for name in ("get", "put", "delete"):
            self._count(name, monkeypatch)
        writing = checkpoint_module.writing

        @contextmanager
        def counted(*arguments: object, **named: object) -> Iterator[object]:
            self.transactions += 1
            with writing(*arguments, **named) as kv:  # type: ignore[arg-type]
                yield kv

        monkeypatch.setattr(checkpoint_module, "writing", counted)

    def _count(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        work = getattr(LmdbKV, name)

        def counted(kv: LmdbKV, *arguments: bytes) -> object:
            self.calls += 1
            self.most = max(self.most, self.calls)
            found: object = work(kv, *arguments)
            return found

        monkeypatch.setattr(LmdbKV, name, counted)

    def _said(self) -> None:
        self.words, self.calls = self.words + 1, 0

    def apply(self, *batches: list[Record]) -> None:
        first = self._lsn + 1
        self._lsn += len(batches)
        bodies = [b"".join(encode_batch(batch)) for batch in batches]
        records = [("", JournalRecord(lsn, 0, body, 0, 0, 0)) for lsn, body in enumerate(bodies, start=first)]
        self.checkpoint.apply_records(records, up_to_lsn=self._lsn)

    def close(self) -> None:
        self._env.close()


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    with closing(Watched(Layout(tmp_path), monkeypatch)) as watched:
        yield watched


def test_the_one_record_that_makes_many_queues_is_no_silence(watched: Watched) -> None:
    watched.apply([fact for queue_id in range(1, QUEUES) for fact in queue(queue_id, QueueOptions())])
    assert watched.words > QUEUES
    assert watched.most <= STRETCH_MAX


def test_many_letters_that_come_and_go_are_no_silence(watched: Watched) -> None:
    watched.apply([*queue(), added(1, LETTERS)])
    for facts in (DeadLettered(1, ALL_GROUPS, [letter(n, n) for n in range(1, LETTERS + 1)]), DeadRemoved([*range(9)])):
        watched.words = 0
        watched.apply([facts])
        assert watched.words > 2 * (LETTERS if isinstance(facts, DeadLettered) else 9)
    assert watched.most <= STRETCH_MAX


def test_a_transaction_has_a_bounded_number_of_letters(watched: Watched) -> None:
    """Also of those whose messages were stored before, and take no room in it."""
    watched.checkpoint._transaction_letters = 50
    watched.apply([*queue(), added(1, LETTERS)])
    watched.transactions = 0
    watched.apply(*([DeadLettered(1, ALL_GROUPS, [letter(n, n)])] for n in range(1, LETTERS + 1)))
    assert LETTERS // 50 <= watched.transactions <= LETTERS // 50 + 1
    watched.transactions = 0
    watched.apply(*([DeadRemoved([n])] for n in range(1, LETTERS + 1)))
    assert LETTERS // 50 <= watched.transactions <= LETTERS // 50 + 1


LARGE_BYTES = 5_000


class Segments:
    """A journal whose sealed segments a checkpoint applies; rows of `LARGE_BYTES` fill a transaction."""

    def __init__(self, watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(checkpoint_module, "TRANSACTION_BYTES", LARGE_BYTES)
        self._watched = watched
        self._disk = SimDisk()
        self._journal, _ = Journal.open(self._disk, "/j", segment_bytes=1 << 20)
        self._append(*queue())
        self._end_segment()

    def add(self, *batches: Sequence[Record]) -> None:
        for batch in batches:
            self._append(*batch)
        self._end_segment()

    def _append(self, *batch: Record) -> None:
        self._journal.append(encode_batch(batch))

    def _end_segment(self) -> None:
        self._journal.sync()
        self._journal.seal()

    def apply(self) -> int:
        """How many transactions it took."""
        segments = [SegmentToApply(s.path, s.first_lsn, s.last_lsn) for s in self._journal.sealed_segments()]
        self._watched.transactions = 0
        self._watched.checkpoint.apply_segments(self._disk, segments, up_to_lsn=segments[-1].last_lsn)
        return self._watched.transactions

    def stored(self) -> list[int]:
        """The sequences that have rows in the store."""
        with reading(self._watched._env, "") as kv:
            return [row for info in block_infos(kv, 1, 1, 99) for row in range(info.first, info.first + info.rows)]


@pytest.fixture
def segments(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> Segments:
    return Segments(watched, monkeypatch)


def large(sequence: int) -> list[Record]:
    return [added(sequence, 1, size=LARGE_BYTES)]


def settled(sequence: int) -> list[Record]:
    return [Settled(1, 0, [(sequence, sequence)])]


def test_a_large_message_that_is_settled_in_its_segment_is_not_written(segments: Segments) -> None:
    """Not even for a moment: it would fill a transaction of its own, and the flush of it keeps others waiting."""
    segments.add(large(1), [added(2, 1)], settled(1))
    segments.add(large(3), settled(3))
    assert segments.apply() == 1
    assert segments.stored() == [2]


def test_large_messages_that_stay_are_written_segment_by_segment(segments: Segments) -> None:
    segments.add(large(1), [added(2, 1)])
    segments.add(large(3))
    segments.add([added(4, 1)])
    assert segments.apply() == 3
    assert segments.stored() == [1, 2, 3, 4]


def test_of_several_large_messages_in_a_segment_one_waits_for_its_end(segments: Segments) -> None:
    segments.add(large(1), large(2), settled(1), large(3), settled(2), settled(3))
    assert segments.apply() == 2
    assert segments.stored() == []
