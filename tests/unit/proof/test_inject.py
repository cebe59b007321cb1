"""What counts as a case where shortages are played, and what is looked at behind an injected error."""

import json
from pathlib import Path

import pytest

from tests.proof import inject, worker
from tests.proof.shortage import Outcome


def test_a_run_that_is_aimed_at_shortages_has_proved_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played = [("one", "sqlite", lambda _, __: Outcome(confirmed=3)), ("other", "lmdb", lambda _, __: Outcome())]
    monkeypatch.setattr(inject, "SHORTAGES", played)
    monkeypatch.setattr(inject, "missing_for", lambda _: None)
    worker.main("inject", "3", "60", "1", str(tmp_path), "sqlite")
    result = json.loads(capsys.readouterr().out)
    assert (result["cases"], result["unit"], result["confirmed"], result["findings"]) == (1, "shortages", 3, [])


def test_a_broker_that_could_not_make_its_directory_has_left_none(tmp_path: Path) -> None:
    assert not inject.copied(tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("text")
    assert (inject.copied(tmp_path / "data") / "file").read_text() == "text"
