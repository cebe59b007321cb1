from pathlib import Path

import pytest

from tests.proof.methods import MODULES
from tests.proof.mutant_list import MUTANTS, Mutant
from tests.proof.mutants import CONTROL, Unfit, check_copy_wins, choose, make_copy

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mutant_fits_the_source_and_is_still_python(mutant: Mutant) -> None:
    text = (ROOT / "vibemq" / mutant.file).read_text()
    assert text.count(mutant.old) == 1
    compile(text.replace(mutant.old, mutant.new), mutant.file, "exec")
    assert mutant.new != mutant.old
    assert set(mutant.methods) <= MODULES.keys()


def test_names_tell_mutants_apart() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_a_mutant_that_does_not_fit_is_no_proof(tmp_path: Path) -> None:
    with pytest.raises(Unfit, match="0 times"):
        make_copy(tmp_path, Mutant("x", "errors.py", "no such text", ""))


@pytest.mark.slow
def test_the_copy_is_what_runs(tmp_path: Path) -> None:
    make_copy(tmp_path, CONTROL)
    check_copy_wins(tmp_path)
    with pytest.raises(Unfit, match="does not win"):
        check_copy_wins(tmp_path / "vibemq")


def test_the_short_form_takes_turns() -> None:
    seen = {mutant.name for seed in range(60) for mutant in choose(MUTANTS, 2, seed)}
    assert seen == {mutant.name for mutant in MUTANTS if mutant.quick}
    assert choose(MUTANTS, 1_000, 5) == list(MUTANTS)
