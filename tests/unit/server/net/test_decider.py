"""What the engine decided is on its way before a fault is raised; a state that nobody can keep stops the broker."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.unit.server.fakes import FakeEngine
from vibemq.engine import Batch
from vibemq.model.commands import Command, SetFlow
from vibemq.model.effects import Outcome
from vibemq.model.options import Durability
from vibemq.model.records import Record, Settled
from vibemq.server.clock import Clock
from vibemq.server.net.decider import Decider
from vibemq.server.net.driving.works import PeerWorks
from vibemq.server.net.pacer import Pacer


class Commits:
    """Notes what a committer is told."""

    def __init__(self) -> None:
        self.submitted: list[Outcome] = []
        self.failures: list[BaseException] = []

    def submit(self, outcome: Outcome) -> None:
        self.submitted.append(outcome)

    def fail(self, error: BaseException) -> None:
        self.failures.append(error)

    generation = 7


class Settling(FakeEngine):
    """Each batch settles a message of a queue with the durability that is the session of its command."""

    def advance(self, batch: Batch, now: int) -> Outcome:
        batch.place = len(batch.commands)
        durability = batch.commands[0].session
        records: list[Record] = [Settled(1, 1, [(1, 1)])] if durability >= 0 else []
        return Outcome(records, durability=Durability(max(durability, 0)))


class FaultyHandler(FakeEngine):
    def advance(self, batch: Batch, now: int) -> Outcome:
        batch.fail(TypeError("a handler stumbled"))
        return Outcome()


class BrokenEngine(FakeEngine):
    def advance(self, batch: Batch, now: int) -> Outcome:
        raise TypeError("a step stumbled")


def decide(engine: FakeEngine, commands: Sequence[Command]) -> Commits:
    commits = Commits()

    async def main() -> None:
        decider = Decider(cast(Any, engine), cast(Any, commits), Clock(), Pacer())
        with pytest.raises(TypeError):
            decider.decide(commands)

    asyncio.run(main())
    return commits


def test_the_fault_of_a_handler_is_raised_behind_what_was_decided() -> None:
    commits = decide(FaultyHandler(), [SetFlow(1, True)])
    assert len(commits.submitted) == 1
    assert not commits.failures


def test_a_peer_hears_nothing_before_the_journal_has_what_it_has_asked_for() -> None:
    """What leaves nothing in the journal, as a reply or a settlement of a transient queue, needs no append."""

    async def main() -> list[bool]:
        decider = Decider(cast(Any, Settling()), cast(Any, Commits()), Clock(), Pacer())
        found: list[bool] = []
        for asked in ([-1], [Durability.TRANSIENT], [Durability.STRONG], [Durability.STRONG, -1]):
            works = PeerWorks(decider, cast(Any, None), fatal=pytest.fail)
            for durability in asked:
                works.decide(cast(Any, None), [SetFlow(durability, True)])
            found.append(works.are_appended)
        return found

    assert asyncio.run(main()) == [True, True, False, False]


def test_a_step_that_breaks_off_stops_the_broker() -> None:
    commits = decide(BrokenEngine(), [SetFlow(1, True)])
    assert not commits.submitted
    assert [str(error) for error in commits.failures] == ["a step stumbled"]
