"""The proof of the proof: mutants fit, the copy is what runs, and only the harm that a mutant does catches it."""

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import mutants
from tests.proof.contract import Budget
from tests.proof.methods import MODULES
from tests.proof.mutant_list import MUTANTS, Catcher, Mutant
from tests.proof.mutants import (
    CONTROL,
    Check,
    NoVerdict,
    Unfit,
    check_copy_wins,
    choose,
    environment,
    make_copy,
    remove,
)

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source_and_is_still_python(mutant: Mutant) -> None:
    for file, old, new in mutant.replacements:
        text = (ROOT / "vibemq" / file).read_text()
        assert text.count(old) == 1
        compile(text.replace(old, new), file, "exec")
        assert new != old
    assert {catcher.method for catcher in mutant.by} <= MODULES.keys()
    assert mutant.sign
    re.compile(mutant.sign)


def test_names_tell_mutants_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_that_does_not_fit_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="0 times"):
        make_copy(tmp_path, Mutant("x", "errors.py", "no such text", "", "harm"))


@pytest.mark.slow
def test_the_copy_is_what_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_copy(tmp_path, CONTROL)
    check_copy_wins(tmp_path)
    with pytest.raises(Unfit, match="does not win"):
        check_copy_wins(tmp_path / "vibemq")
    # Brokers of the methods start in the checkout, which must not come before the copy.
    unsafe = {name: value for name, value in environment(tmp_path).items() if name != "PYTHONSAFEPATH"}
    monkeypatch.setattr(mutants, "environment", lambda folder: unsafe)
    with pytest.raises(Unfit, match="does not win"):
        check_copy_wins(tmp_path)


def told(folder: Path, **changes: str) -> str:
    """What becomes of a mutant that a second of the engine's method is enough for."""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "a new owner does not fence the old one"]
    check = Check(Budget(1, 60.0, 1, folder))
    check._one(0, replace(mutant, by=(Catcher("engine-sim", cases=1_500, seconds=20.0),), **changes))
    return "".join([*check.told.values(), *(finding.what for finding in check.result.findings)])


@pytest.mark.slow
@pytest.mark.long(covered_by="tests/unit/proof/test_mutants.py::test_a_mutant_that_nobody_notices_lives")
def test_a_mutant_is_caught_by_the_harm_it_does_and_by_nothing_else(tmp_path: Path) -> None:
    assert "not fenced" in told(tmp_path)
    assert "tripped over something else" in told(tmp_path, sign="messages are lost")
    assert "tripped over something else" in told(tmp_path, new="        end_consumers(no_such_name)\n")


@pytest.mark.slow
def test_a_mutant_that_nobody_notices_lives(tmp_path: Path) -> None:
    harmless = (
        "        end_consumers(step, queue, group.name, _fenced(queue, group), but_session=command.session)  # once\n"
    )
    assert "the mutant lives" in told(tmp_path, new=harmless)


ANY = Mutant("any", "errors.py", "old", "new", "harm")


@pytest.fixture
def without_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("make_copy", "check_copy_wins", "remove"):
        monkeypatch.setattr(mutants, name, lambda *words: None)


def lives(seconds: float, folder: Path) -> Check:
    """A run of a minute over a mutant that nobody finds in so many seconds."""
    check = Check(Budget(1, 60.0, 1, folder))
    check.run([replace(ANY, by=(Catcher("sim-disk", seconds=seconds),))])
    return check


@pytest.mark.usefixtures("without_copies")
def test_a_mutant_that_had_too_little_time_is_not_decided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "first_finding", lambda *words: None)
    result = lives(1_000.0, tmp_path).result
    assert (result.cases, result.findings, result.complete) == (0, [], False)
    assert "sim-disk had" in str(result.figures["not decided"])
    [finding] = lives(20.0, tmp_path).result.findings
    assert "the mutant lives" in finding.what


@pytest.mark.usefixtures("without_copies")
@pytest.mark.parametrize("where", ["control", "mutant-0"])
def test_a_method_that_says_nothing_is_a_finding_unless_the_time_has_ended(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check = Check(Budget(1, 60.0, 1, tmp_path))
    deadline = check._deadline

    def silent(folder: Path, catcher: Catcher, seconds: float) -> str | None:
        if folder.name == where:
            check._deadline = deadline
            raise NoVerdict("it did not end within 60 s")
        return None if folder.name == "control" else "harm"

    monkeypatch.setattr(mutants, "first_finding", silent)
    check.run([ANY])
    [finding] = check.result.findings
    assert "did not end" in finding.what
    check = Check(Budget(1, 60.0, 1, tmp_path))
    deadline = 0.0
    check.run([ANY])
    assert check.result.is_empty
    assert not check.result.complete


@pytest.mark.usefixtures("without_copies")
def test_without_time_no_method_is_begun(tmp_path: Path) -> None:
    check = Check(Budget(1, 1.0, 1, tmp_path))
    check.run([ANY])
    assert check.result.is_empty
    assert not check.result.complete


def test_the_short_form_takes_turns() -> None:
    seen = {mutant.name for seed in range(60) for mutant in choose(MUTANTS, 2, seed)}
    assert seen == {mutant.name for mutant in MUTANTS if mutant.quick}
    assert choose(MUTANTS, 1_000, 0) == list(MUTANTS)
    assert choose(MUTANTS, 1_000, 5) == [*MUTANTS[5:], *MUTANTS[:5]]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_what_is_still_mounted_in_a_folder_is_removed_with_it(tmp_path: Path) -> None:
    mounted = tmp_path / "mutant" / "work" / "small"
    mounted.mkdir(parents=True)
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mounted)], capture_output=True)
    if made.returncode:
        pytest.skip("nothing can be mounted here")
    (mounted / "data").write_bytes(b"x")
    remove(tmp_path / "mutant")
    assert not (tmp_path / "mutant").exists()
