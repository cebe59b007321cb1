"""A checkpointer at work says so all the time: whoever waits kills one that is silent."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.records import ALL_GROUPS, DeadLettered, DeadRemoved, Record
from vibemq.storage.kvstore.encoding import encode_batch
from vibemq.storage.lmdb.checkpoint import checkpoint as checkpoint_module
from vibemq.storage.lmdb.checkpoint.checkpoint import Checkpoint
from vibemq.storage.lmdb.environment.env import open_writer
from vibemq.storage.lmdb.environment.tables import LmdbKV
from vibemq.storage.lmdb.journal.segment import JournalRecord
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.prepare import prepare
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
