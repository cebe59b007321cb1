"""Which of several servers of one name is taken."""

from pathlib import Path

import pytest

from bench.common.binaries import go_built


def executable(folder: Path) -> str:
    folder.mkdir(parents=True)
    path = folder / "a-server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_what_go_has_built_comes_before_what_the_system_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("GOBIN", "GOPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "system"))
    assert go_built("a-server") == ""
    of_system = executable(tmp_path / "system")
    assert go_built("a-server") == of_system
    of_home = executable(home / "go/bin")
    assert go_built("a-server") == of_home
    monkeypatch.setenv("GOPATH", str(tmp_path / "gopath"))
    of_path = executable(tmp_path / "gopath/bin")
    assert go_built("a-server") == of_path
    monkeypatch.setenv("GOBIN", str(tmp_path / "gobin"))
    of_bin = executable(tmp_path / "gobin")
    assert go_built("a-server") == of_bin
