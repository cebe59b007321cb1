"""Copies of the examples for Spark."""

from pathlib import Path

import pytest

from vibemq.demos.spark.example import EXAMPLES, names, run


def test_every_example_is_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert names() == ["backfill", "dead_letters", "rejects", "route", "windows"]
    for name in names():
        assert run([name, "--into", str(tmp_path)]) == 0
        assert capsys.readouterr().out == f"{tmp_path / name}.py\n"
        assert (tmp_path / f"{name}.py").read_text() == (EXAMPLES / f"{name}.py").read_text()


def test_a_file_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "route.py").write_text("mine")
    assert run(["route", "--into", str(tmp_path)]) == 1
    assert "exists already; remove it or name another folder with --into" in capsys.readouterr().err
    assert (tmp_path / "route.py").read_text() == "mine"
    assert run(["route", "--into", str(tmp_path / "none")]) == 1
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
