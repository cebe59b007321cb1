"""Any provider against the pure reducer: the same random work, restarts, upkeep, and the same state and rows."""

import shutil
import tempfile
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from vibemq.model.stored import Slice, StoredState
from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider
from vibemq.testing.storage_workload import DurableModel, Workload

ALL = 2**63 - 1
PROVIDERS = [name for name in ("memory", "sqlite", "lmdb") if find_spec(f"vibemq.storage.{name}.provider")]


def contents(parts: list[Slice]) -> dict[int, tuple[bytes, int]]:
    return {p.first_sequence + i: (row, p.published_at) for p in parts for i, row in enumerate(p.rows)}


class ProviderMachine(RuleBasedStateMachine):
    provider = ""

    @initialize(random=st.randoms(use_true_random=False))
    def start(self, random: Random) -> None:
        self.random = random
        self.folder = Path(tempfile.mkdtemp(prefix="vibemq-property-"))
        self.model = DurableModel()
        self.workload = Workload(random)
        self.storage, state = self.open()
        assert state == StoredState()

    def open(self) -> tuple[IStorageProvider, StoredState]:
        plugin = find("storage", self.provider)
        storage = plugin.create(self.folder, plugin.settings())
        return storage, storage.open()

    @rule(count=st.integers(1, 8))
    def work(self, count: int) -> None:
        for _ in range(count):
            batch = self.workload.batch(self.model.live)
            self.storage.append(batch)
            self.model.apply(batch)

    @rule()
    def sync(self) -> None:
        self.storage.sync()
        stats = self.storage.stats()
        assert stats.durable_lsn == stats.last_lsn

    @rule()
    def maintain(self) -> None:
        self.storage.maintain()

    @rule()
    def compact(self) -> None:
        self.storage.compact()

    @rule()
    def reopen(self) -> None:
        if self.provider != "memory":
            self.storage.close()
            self.storage, state = self.open()
            self.model.restart(state)

    @rule()
    def check(self) -> None:
        assert list(self.storage.check()) == []

    @rule(size=st.sampled_from((1, 300, 5_000)))
    def read_in_steps(self, size: int) -> None:
        for queue_id in self.model.live.state.queues:
            wanted, got, first = self.model.live.alive(queue_id), dict[int, tuple[bytes, int]](), 1
            while parts := self.storage.read(queue_id, first, ALL, size):
                step = contents(parts)
                assert sum(len(row) for row, _ in step.values()) <= size or len(step) == 1
                assert list(step) == sorted(step)
                assert min(step) >= first
                got |= step
                first = max(step) + 1
            assert {s: got.get(s) for s in wanted} == wanted

    @invariant()
    def every_living_message_is_readable(self) -> None:
        live = self.model.live
        for queue_id in live.state.queues:
            got = contents(self.storage.read(queue_id, 1, ALL, 1 << 40))
            wanted = live.alive(queue_id)
            assert {s: got.get(s) for s in wanted} == wanted
            assert all(live.rows[queue_id, s] == value for s, value in got.items())

    @invariant()
    def dead_letters_agree(self) -> None:
        live = self.model.live
        found = self.storage.dead_letters(limit=1_000)
        assert [letter.facts for letter in found] == [entry.facts for entry in live.dead.after(0)]
        for letter in found:
            assert letter.row == live.rows[letter.queue_id, letter.facts.sequence][0]

    def teardown(self) -> None:
        if hasattr(self, "storage"):
            self.storage.close()
            shutil.rmtree(self.folder)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_provider_agrees_with_the_reducer(provider: str) -> None:
    machine = type(f"{provider.title()}Machine", (ProviderMachine,), {"provider": provider})
    examples = 6 if provider == "lmdb" else 15
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=15, deadline=None))
