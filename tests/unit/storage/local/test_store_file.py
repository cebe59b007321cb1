"""The folder of a store: made for its owner, durably, and not in the place of a file."""

from pathlib import Path

import pytest

from vibemq.storage.local import store_file
from vibemq.storage.local.store_file import make_folder


def test_the_names_of_all_folders_that_were_missing_are_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[Path] = []
    monkeypatch.setattr(store_file, "fsync_folder", flushed.append)
    make_folder(tmp_path / "a" / "b" / "c")
    assert flushed == [tmp_path, tmp_path / "a", tmp_path / "a" / "b"]
    flushed.clear()
    make_folder(tmp_path / "a" / "b" / "c")
    assert flushed == []
    assert (tmp_path / "a" / "b" / "c").stat().st_mode & 0o777 == 0o700


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError) as refused:
        make_folder(tmp_path / "file")
    assert refused.value.filename == str(tmp_path / "file")
