"""What the broker notes of what it appends: a broker runs for years, and appends for ever."""

from contextlib import closing
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from vibemq.model.options import QueueOptions
from vibemq.model.records import GroupCreated, MessagesAdded, QueueCreated
from vibemq.model.rows import Rows, pack_row
from vibemq.storage.lmdb.journal.journal import Journal, JournalPosition
from vibemq.storage.lmdb.journal.recent import LeftOnly
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import DeadTable, apply
from vibemq.testing.storage_workload import Model, Workload

NOTES = set(Dirty.__slots__)


def test_what_is_noted_is_what_may_have_left_and_nothing_else() -> None:
    workload, model = Workload(Random(1)), Model()
    state, dead, left, all_of_it = model.state, DeadTable(), LeftOnly(), Dirty()
    for _ in range(120):
        for record in workload.batch(Model.of(state, dead)):
            # Twice, so that the second sees the same: what is noted does not depend on what was noted before.
            apply(deepcopy(state), record, deepcopy(dead), all_of_it)
            apply(state, record, dead, left)
    assert {name for name in NOTES if getattr(left, name)} == {"left"}
    assert {"chunks", "queues", "groups", "run_pages"} <= {n for n in NOTES if getattr(all_of_it, n)}


def test_a_provider_that_appends_keeps_no_notes(tmp_path: Path) -> None:
    workload, model = Workload(Random(2)), Model()
    state, dead = model.state, DeadTable()
    with closing(LmdbProvider(tmp_path / "data", LmdbSettings(ballast_bytes=0))) as provider:
        provider.open()
        for _ in range(40):
            records = workload.batch(Model.of(state, dead))
            for record in records:
                apply(state, record, dead)
            provider.append(records)
        assert not any(getattr(provider._left, name) for name in NOTES)


@pytest.mark.parametrize("stretches", [1, 12])
def test_a_record_whose_rows_are_read_in_pieces_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stretches: int
) -> None:
    """However many stretches it has, also when it is larger than a row may be that travels with others."""
    rows = Rows.of([pack_row(f"{number:04}", b"x" * 100_000) for number in range(36 // stretches)])
    reads: list[int] = []
    read = Journal.read

    def counted(journal: Journal, position: JournalPosition) -> bytes:
        reads.append(position.lsn)
        return read(journal, position)

    monkeypatch.setattr(Journal, "read", counted)
    with closing(LmdbProvider(tmp_path / "data", LmdbSettings(ballast_bytes=0, buffer_bytes=0))) as provider:
        provider.open()
        provider.append([QueueCreated(1, "q", QueueOptions(), 1, "aa"), GroupCreated(1, 0, "", True, 1)])
        provider.append([MessagesAdded(1, 1 + n * rows.count, 1_000, rows) for n in range(stretches)])
        at = 1
        while at <= 36:
            for part in provider.read(1, at, 36, 256 << 10):
                at += part.rows.count
        assert len(reads) == 1
