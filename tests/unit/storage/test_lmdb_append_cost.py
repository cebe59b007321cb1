"""What an append costs the event loop, in instructions: a record may name very many runs, a store have many queues."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bench.guard.counting import instructions
from tests.unit.storage.test_lmdb_provider import a_queue, messages
from vibemq.model.records import GroupCreated, HandedOut, Settled
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.state.changes import Dirty
from vibemq.storage.state.reducer import apply

SETTINGS = LmdbSettings(ballast_bytes=0, checkpoint_ms=3_600_000)
RUNS = 10_000
PER_RUN = 100
"""A few loops over them; to settle each for itself takes three times as many."""


@pytest.fixture
def provider(tmp_path: Path) -> Iterator[LmdbProvider]:
    with closing(LmdbProvider(tmp_path / "data", SETTINGS)) as provider:
        provider.open()
        yield provider


def cost(work: Callable[[], object]) -> int:
    return instructions(work).total()


def test_a_group_that_begins_behind_very_many_holes_is_appended_in_little_time(provider: LmdbProvider) -> None:
    provider.append([*a_queue(), messages(1, 2 * RUNS, size=1)])
    holes = [(sequence, sequence) for sequence in range(2, 2 * RUNS, 2)]
    begun = [GroupCreated(1, 1, "behind", True, 1), Settled(1, 1, holes)]
    assert cost(lambda: provider.append(begun)) < PER_RUN * RUNS


def test_what_was_settled_before_costs_nothing_later(provider: LmdbProvider) -> None:
    def settle(queue_id: int) -> int:
        provider.append([*a_queue(queue_id), messages(1, 10, queue_id=queue_id)])
        return cost(lambda: provider.append([HandedOut(queue_id, 0, [(1, 5)]), Settled(queue_id, 0, [(1, 5)])]))

    first = settle(1)
    for queue_id in range(2, 200):
        last = settle(queue_id)
    assert last < 1.2 * first


@pytest.mark.parametrize("head", [1, 2, 30])
@pytest.mark.parametrize("step", [1, 2, 5_000])
def test_runs_that_are_settled_at_once_leave_what_they_leave_one_by_one(
    provider: LmdbProvider, head: int, step: int
) -> None:
    runs = [(sequence, sequence) for sequence in range(2, 20 * step, step)]
    found = []
    for records in ([Settled(1, 1, runs)], [Settled(1, 1, [run]) for run in runs]):
        provider.append([*a_queue(), messages(1, 20 * step + 1, size=1), GroupCreated(1, 1, "g", True, head)])
        state, dirty = provider._store.state, Dirty()
        for record in records:
            apply(state, record, provider._dead, dirty)
        group = state.queues[1].groups[1]
        found.append((group.head, group.taken.runs(), dirty.run_pages, dirty.groups, dirty.left[1].runs()))
    assert found[0] == found[1]
