"""What the broker notes of what it appends: a broker runs for years, and appends for ever."""

from contextlib import closing
from copy import deepcopy
from pathlib import Path
from random import Random

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
