"""What the engine decided is on its way before a fault is raised; a state that nobody can keep stops the broker."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.unit.server.fakes import FakeEngine
from vibemq.engine import Batch
from vibemq.model.commands import Command, SetFlow
from vibemq.model.effects import Outcome
from vibemq.server.clock import Clock
from vibemq.server.net.decider import Decider
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


def test_a_step_that_breaks_off_stops_the_broker() -> None:
    commits = decide(BrokenEngine(), [SetFlow(1, True)])
    assert not commits.submitted
    assert [str(error) for error in commits.failures] == ["a step stumbled"]
