"""What is checked: one provider over one data directory."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from vibemq.model.records import (
    Record,
)
from vibemq.model.stored import StoredState
from vibemq.storage.interface import IStorageProvider, Problem, StoreLocation
from vibemq.testing.storage_conformance.records import ALL, NO_LIMIT
from vibemq.testing.storage_workload import DurableModel


@dataclass(frozen=True)
class Subject:
    """One provider over one data directory.

    Args:
        data_dir: empty before the check.
        make: a provider for a directory, not yet opened.
        damage: flip one byte in the stored body of every message; the store is closed.
        repair: the plug-in's repair over a directory.
        connect: the plug-in's own; None for a store that is in no place.
        take_over: become the owner of a store that is open, as another machine could; None where a lock rules it out.
    """

    name: str
    data_dir: Path
    make: Callable[[Path], IStorageProvider]
    durable: bool = True
    damage: Callable[[Path], None] | None = None
    repair: Callable[[Path], list[Problem]] | None = None
    take_over: Callable[[Path], None] | None = None
    connect: Callable[[StoreLocation], IStorageProvider] | None = None

    @contextmanager
    def opened(self, data_dir: Path | None = None) -> Iterator[tuple[IStorageProvider, StoredState]]:
        """An open store and its state; closed at the end."""
        storage = self.make(data_dir or self.data_dir)
        try:
            yield storage, storage.open()
        finally:
            storage.close()


Check = Callable[[Subject], None]


def durable(check: Check) -> Check:
    """The check is about what survives a restart."""

    def run(subject: Subject) -> None:
        if not subject.durable:
            pytest.skip("keeps nothing over a restart")
        check(subject)

    run.__name__ = check.__name__
    return run


def restart(subject: Subject, batches: Sequence[Sequence[Record]]) -> tuple[DurableModel, StoredState]:
    """Write the batches, close, open again; the model is what must have come back."""
    model = DurableModel()
    with subject.opened() as (storage, _):
        for batch in batches:
            storage.append(batch)
            model.apply(list(batch))
    with subject.opened() as (storage, state):
        model.restart(state)
        for queue_id in model.live.state.queues:
            wanted = model.live.alive(queue_id)
            got = {
                part.first_sequence + index: (row, part.published_at)
                for part in storage.read(queue_id, 1, ALL, NO_LIMIT)
                for index, row in enumerate(part.rows)
            }
            assert {s: got.get(s) for s in wanted} == wanted
        assert list(storage.check()) == []
    return model, state
