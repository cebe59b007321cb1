"""How the time of a whole run is shared: in proportion, what is left over included, and never beyond its end."""

from pathlib import Path

import pytest

from tests.proof.contract import Budget, Method, Result, Size
from tests.proof.fuzz import COST_US
from tests.proof.fuzz_targets import TARGETS
from tests.proof.methods import MODULES, find
from tests.proof.shares import Lane, alone, lanes


def lane(width: int = 1, deadline: float = 100.0, **seconds: float) -> Lane:
    return Lane({name: Size(1, wanted) for name, wanted in seconds.items()}, width, deadline)


def method(name: str, seconds: float, *, waits: bool = False, is_alone: bool = False) -> Method:
    size = Size(1, seconds)
    return Method(name, name, lambda budget: Result(), size, size, size, waits=waits, alone=is_alone)


def test_the_short_ones_come_first() -> None:
    assert lane(a=30, b=10, c=20).order == ["b", "c", "a"]


def test_time_is_shared_in_proportion() -> None:
    shared = lane(a=10, b=30)
    assert shared.take("a", 0.0) == 25.0
    shared.done("a")
    assert shared.take("b", 25.0) == 75.0


def test_who_ends_early_leaves_its_time_to_the_others() -> None:
    shared = lane(a=10, b=30)
    shared.take("a", 0.0)
    shared.done("a")
    assert shared.take("b", 1.0) == 99.0


def test_what_runs_still_keeps_its_share() -> None:
    shared = lane(width=2, a=10, b=10, c=20)
    assert shared.take("a", 0.0) == 50.0
    assert shared.take("b", 0.0) == 50.0
    shared.done("a")
    # b runs for 45 s more; of the 190 s of both places 145 are left, and the run ends after 95.
    assert shared.take("c", 5.0) == 95.0


def test_nothing_runs_beyond_the_end() -> None:
    shared = lane(a=10, b=10)
    assert shared.take("a", 99.0) == 0.5
    assert shared.take("b", 101.0) == 0.0


METHODS = [method("busy", 60), method("waits", 40, waits=True), method("fast", 10, is_alone=True)]
SIZES = {method.name: method.torture for method in METHODS}


def test_those_that_wait_have_a_lane_of_their_own_and_the_lonely_ones_their_time() -> None:
    busy, waiting = lanes(METHODS, SIZES, jobs=2, begin=0.0, seconds=100.0)
    assert (busy.width, busy.order, waiting.width, waiting.order) == (2, ["busy"], 1, ["waits"])
    assert alone(METHODS, SIZES, jobs=2, seconds=100.0) == {"fast": 10.0}
    assert busy.take("busy", 0.0) == 90.0
    [only] = lanes(METHODS, SIZES, jobs=1, begin=0.0, seconds=100.0)
    assert sorted(only.order) == ["busy", "waits"]


def test_where_time_is_short_the_lonely_ones_get_less_too() -> None:
    assert alone(METHODS, SIZES, jobs=2, seconds=30.0) == {"fast": pytest.approx(5.0)}


@pytest.mark.parametrize("level", ["crash", "torture"])
def test_all_methods_fit_into_their_time(level: str) -> None:
    """What they want on two quiet cores: the busy ones two at a time, beside one that works a third of its time."""
    methods = [find(name) for name in MODULES]
    seconds = {"crash": 600.0, "torture": 3600.0}[level]
    wanted = {method.name: getattr(method, level).seconds for method in methods}
    lonely = sum(wanted[method.name] for method in methods if method.alone)
    waiting = sum(wanted[method.name] for method in methods if method.waits)
    busy = sum(wanted[method.name] for method in methods if not method.waits and not method.alone)
    assert lonely + waiting <= seconds
    assert lonely + (busy + waiting / 3) / 2 <= seconds


def test_every_fuzz_target_has_its_cost() -> None:
    assert COST_US.keys() == TARGETS.keys()


def test_a_budget_aims_at_everything() -> None:
    assert not Budget(1, 1.0, 1, Path()).aim
