"""How the time of a whole run is shared: in proportion, what is left over included, and never beyond its end."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import __main__ as proof
from tests.proof.contract import Budget, Method, Result, Size
from tests.proof.fuzz import COST_US
from tests.proof.fuzz_targets import TARGETS
from tests.proof.methods import MODULES, find
from tests.proof.shares import Lane, alone, lanes
from tests.proof.table import Row, cells_of


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
    busy, waiting = lanes(METHODS, SIZES, jobs=2, deadline=100.0)
    assert (busy.width, busy.order, waiting.width, waiting.order) == (2, ["busy"], 1, ["waits"])
    assert alone(METHODS, SIZES, jobs=2, seconds=100.0) == {"fast": 10.0}
    assert busy.take("busy", 10.0) == 90.0
    [only] = lanes(METHODS, SIZES, jobs=1, deadline=100.0)
    assert sorted(only.order) == ["busy", "waits"]


def test_where_time_is_short_the_lonely_ones_get_less_too() -> None:
    # One second that it needs, and its part of the others.
    assert alone(METHODS, SIZES, jobs=2, seconds=30.0) == {"fast": pytest.approx(1 + 29 * 9 / 59)}
    needy = [replace(each, least_s=8) for each in METHODS]
    assert alone(needy, SIZES, jobs=2, seconds=30.0) == {"fast": pytest.approx(5.0)}


@pytest.mark.parametrize("jobs", [1, 2, 4])
@pytest.mark.parametrize("level", ["crash", "torture"])
def test_a_run_of_its_full_time_leaves_out_no_lonely_one(level: str, jobs: int) -> None:
    methods = [find(name) for name in MODULES]
    # As many that are busy again as there are.
    more = [replace(each, name=f"{each.name} again") for each in methods if not each.alone]
    for some in (methods, methods + more):
        seconds = proof.LEVEL_SECONDS[level]
        given = alone(some, {method.name: getattr(method, level) for method in some}, jobs, seconds)
        assert len(given) >= 2
        for name, given_s in given.items():
            assert given_s >= find(name).least_s, (name, given_s)


def test_a_lonely_one_that_is_named_gets_what_it_needs() -> None:
    needy = [replace(each, least_s=30) for each in METHODS]
    assert alone(needy, SIZES, jobs=2, seconds=100.0) == {"fast": 30.0}
    for name in ("slow-peers", "idle"):
        named = find(name)
        assert alone([named], {name: named.short}, 2, proof.LEVEL_SECONDS["short"])[name] >= named.least_s


def test_the_lonely_ones_run_first_and_nothing_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = {method.name: method for method in [*METHODS, method("faster", 5, is_alone=True)]}
    caller, before = threading.get_ident(), set(threading.enumerate())
    meeting = threading.Barrier(2)
    order: list[str] = []

    def run(method: Method, size: Size, seconds: float, seed: int, folder: Path, aim: str) -> Row:
        if method.alone:
            # Whoever could begin another one waits for this one to end.
            assert threading.get_ident() == caller
            assert set(threading.enumerate()) <= before
        else:
            meeting.wait(60)
        order.append(method.name)
        return Row(method, size.cases, 0.0, Result(cases=1))

    monkeypatch.setattr(proof, "find", found.__getitem__)
    monkeypatch.setattr(proof, "run_in_child", run)
    rows = proof.run_all(list(found), "torture", 1, tmp_path, jobs=2, seconds=1_000.0)
    assert [row.method.name for row in rows] == list(found)
    assert order[:2] == ["fast", "faster"]
    assert sorted(order[2:]) == ["busy", "waits"]


def test_a_method_without_the_time_that_it_needs_is_not_run(tmp_path: Path) -> None:
    needy = replace(method("needy", 90), least_s=30)
    row = proof.run_in_child(needy, needy.torture, 6.0, 1, tmp_path)
    assert row.is_good
    assert cells_of(row)[-1] == "not run: the run has 6 s for it, it needs 30"


@pytest.mark.parametrize("level", ["crash", "torture"])
def test_a_whole_run_gives_every_method_what_it_needs(level: str) -> None:
    methods = [find(name) for name in MODULES]
    sizes: dict[str, Size] = {method.name: getattr(method, level) for method in methods}
    seconds = proof.LEVEL_SECONDS[level]
    given = alone(methods, sizes, 2, seconds)
    for each in lanes(methods, sizes, 2, seconds - sum(given.values())):
        given |= {name: each.take(name, 0.0) for name in each.order}
    assert given.keys() == MODULES.keys()
    for each_method in methods:
        assert given[each_method.name] >= each_method.least_s


@pytest.mark.parametrize("level", ["crash", "torture"])
def test_all_methods_fit_into_their_time(level: str) -> None:
    """What they want on two quiet cores: the busy ones two at a time, beside one that works a third of its time."""
    methods = [find(name) for name in MODULES]
    seconds = proof.LEVEL_SECONDS[level]
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
