"""What `vibemq serve` says at its start."""

from pathlib import Path

import pytest

from vibemq.config import Settings, StorageChoice
from vibemq.server.app import warn_of_passing_place
from vibemq.storage.local.mounts import FileSystem


@pytest.mark.parametrize(
    ("kind", "provider", "told"),
    [
        ("tmpfs", "lmdb", "is in memory (tmpfs): a restart of the machine loses it; use a disk"),
        ("overlay", "sqlite", "is in a container's own layer: it goes with the container; use a volume"),
        ("ext4", "lmdb", ""),
        ("tmpfs", "memory", ""),
    ],
)
def test_who_serves_from_a_place_that_does_not_last_is_warned(
    kind: str, provider: str, told: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("vibemq.server.app.file_system_of", lambda path: FileSystem(kind, "/"))
    warn_of_passing_place(Settings(data_dir=Path("/data"), storage=StorageChoice(provider=provider)))
    assert len(caplog.records) == bool(told)
    assert told in caplog.text
