"""What counts as a case where shortages are played, and what is looked at behind an injected error."""

import errno
import json
from pathlib import Path

import pytest

from tests.proof import inject, worker
from tests.proof.account import Account
from tests.proof.shim import Fault, Kind, Manner, Role
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


@pytest.mark.parametrize(
    ("path", "ends"),
    [
        ("data/journal/1.journal", True),
        ("data/journal", True),
        ("data/audit/1.jsonl", False),
        ("data/audit", False),
        ("data/ballast", False),
    ],
)
def test_a_broker_ends_with_what_something_confirmed_is_in(path: str, ends: bool) -> None:
    fault = Fault(Role.BROKER, Kind.SYNC, 1, errno.EIO, Manner.AFTER)
    ran = inject.Run(Account(), {}, True, 0, True, 1, f"/somewhere/{path}", "")
    assert inject._must_end(inject.Case(inject.Scene("lmdb", True), fault), ran) is ends
