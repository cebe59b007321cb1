"""A method that does nothing must not look like one that finds nothing."""

import json
from pathlib import Path

import pytest

from tests.proof import worker
from tests.proof.__main__ import parsed
from tests.proof.contract import Budget, Method, Result, Size
from tests.proof.table import Row

SIZE = Size(5, 1.0)


def row_of(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Row:
    """Of the table, for a method whose run comes to this."""

    def run(budget: Budget) -> Result:
        return result

    method = Method("silent", "A silent method", run, SIZE, SIZE, SIZE)
    monkeypatch.setattr(worker, "find", lambda name: method)
    worker.main("silent", "5", "1.0", "7", str(tmp_path))
    output = capsys.readouterr().out
    assert json.loads(output.strip().splitlines()[-1])["cases"] == result.cases
    return Row(method, 5, 1.0, parsed(output, 0, []))


def test_a_run_of_no_cases_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = row_of(Result(unit="kills"), tmp_path, monkeypatch, capsys)
    assert not row.is_good
    assert row.result is not None
    assert row.result.findings[0].what == "silent ran none of its kills, so it has proved nothing"


def test_a_run_of_cases_without_findings_is_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert row_of(Result(cases=1), tmp_path, monkeypatch, capsys).is_good
