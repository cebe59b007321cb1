"""The guard of the hot path: nobody adds work per message without noticing."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.guard.budgets import BUDGETS
from bench.guard.check import complaints, counted, reference_loops
from bench.guard.frozen import reference
from bench.guard.hot_path import MESSAGES, Scenario, scenarios
from bench.guard.lone_messages import lone_scenarios
from bench.guard.single_messages import single_scenarios
from vibemq.model.rows import Rows

SCENARIOS = scenarios() | lone_scenarios() | single_scenarios()
WITHOUT_PER_MESSAGE_WORK = ("broker takes a batch", "broker hands out a batch", "broker settles a batch")
BATCHES = (
    *WITHOUT_PER_MESSAGE_WORK,
    "client packs a batch",
    "client packs many bodies",
    "client takes a batch",
)


@pytest.fixture(autouse=True)
def nobody_else_counts() -> None:
    """A debugger or a coverage tool would be counted too."""
    if sys.gettrace() is not None or sys.getprofile() is not None:
        pytest.skip("another tool traces this process")


def test_every_scenario_has_a_budget() -> None:
    assert BUDGETS.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_work_per_message_is_within_its_budget(name: str) -> None:
    assert complaints(counted(SCENARIOS[name]), BUDGETS[name]) == []


@pytest.mark.parametrize("name", BATCHES)
def test_the_time_in_frozen_loops_is_within_its_budget(name: str) -> None:
    assert reference_loops(SCENARIOS[name]) <= BUDGETS[name].reference_loops


@pytest.mark.parametrize("name", [*BATCHES, "blocking client publishes one by one"])
def test_one_more_call_per_message_breaks_the_budget(name: str) -> None:
    make = SCENARIOS[name]

    def slower(folder: Path) -> Scenario:
        scenario = make(folder)
        return replace(scenario, work=lambda: (scenario.work(), [len(b"") for _ in range(MESSAGES)]))

    cost = counted(slower)
    assert any("calls per message" in complaint for complaint in complaints(cost, BUDGETS[name]))


@pytest.mark.parametrize("name", WITHOUT_PER_MESSAGE_WORK)
def test_an_empty_loop_over_the_messages_breaks_the_budget_of_a_batch(name: str) -> None:
    make = SCENARIOS[name]

    def work(scenario: Scenario) -> None:
        scenario.work()
        for _ in range(MESSAGES):
            pass

    cost = counted(lambda folder: (lambda made: replace(made, work=lambda: work(made)))(make(folder)))
    assert any("instructions per message" in complaint for complaint in complaints(cost, BUDGETS[name]))


def test_work_per_message_in_the_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with the work where somebody would really add it: in the rows that every batch is made of."""
    real = Rows.__init__

    def slower(self: Rows, *arguments: Any) -> None:
        real(self, *arguments)
        for length in self.row_lengths():
            int(length)

    monkeypatch.setattr(Rows, "__init__", slower)
    assert complaints(counted(SCENARIOS["broker takes a batch"]), BUDGETS["broker takes a batch"]) != []


def test_the_frozen_loop_is_frozen() -> None:
    assert reference(100) == 100 * (32 + 128)
