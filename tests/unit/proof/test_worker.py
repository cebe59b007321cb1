"""A method that does nothing must not look like one that finds nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.proof import worker
from tests.proof.__main__ import parsed, row_of
from tests.proof.contract import Method, Result, Size
from tests.proof.table import Row, cells_of, is_proof
from tests.proof.worker import repeated

SIZE = Size(5, 10.0)


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Row]:
    """Of the table, for a method whose run comes to this."""

    def make(result: Result, seconds: float = SIZE.seconds) -> Row:
        method = Method("silent", "A silent method", lambda budget: result, SIZE, SIZE, SIZE)
        monkeypatch.setattr(worker, "find", lambda name: method)
        worker.main("silent", "5", str(seconds), "7", str(tmp_path))
        output = capsys.readouterr().out
        assert json.loads(output.strip().splitlines()[-1])["cases"] == result.cases
        return row_of(method, SIZE, seconds, 1.0, parsed(output, 0, ""), repeated("silent", "5", "10", "7", ""))

    return make


@pytest.mark.parametrize(
    ("result", "seconds"),
    [
        (Result(unit="kills"), SIZE.seconds),
        (Result(unit="kills"), 1.0),
        (Result(unit="kills", complete=False), SIZE.seconds),
    ],
)
def test_a_run_of_no_cases_fails(row: Callable[..., Row], result: Result, seconds: float) -> None:
    made = row(result, seconds)
    assert not made.is_good
    assert made.result is not None
    [finding] = made.result.findings
    assert finding.what == "silent ran none of its kills, so it has proved nothing"
    assert finding.repeat == "python -m tests.proof.worker silent 5 10 7 FOLDER ''"


def test_a_run_that_was_cut_before_its_first_case_is_not_run(row: Callable[..., Row]) -> None:
    made = row(Result(unit="kills", complete=False), 1.0)
    assert made.is_good
    assert cells_of(made)[-1] == "not run: its 1 s ended before the first of its kills"


def test_a_run_in_which_nothing_ran_or_not_all_that_was_named_proves_nothing(row: Callable[..., Row]) -> None:
    cut, found = row(Result(complete=False), 1.0), row(Result(cases=1, lost=1))
    ran = replace(row(Result(cases=1)), method=replace(cut.method, name="other"))
    assert not is_proof([], [])
    assert not is_proof([cut], [])
    assert is_proof([cut, ran], [])
    assert is_proof([ran], ["other"])
    assert not is_proof([cut, ran], ["silent", "other"])
    assert not is_proof([ran, found], [])


def test_a_run_of_cases_without_findings_is_good(row: Callable[..., Row]) -> None:
    assert row(Result(cases=1)).is_good
