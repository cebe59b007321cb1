"""What `vibemq serve` says at its start, and how it ends when storage has failed."""

import errno
import io
import logging
import os
import sys
from pathlib import Path

import pytest

from vibemq.config import Settings, StorageChoice
from vibemq.errors import StorageFailed, StorageFenced
from vibemq.server import app
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


class Unread(io.StringIO):
    """A stream whose reader has gone."""

    def flush(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def test_a_broker_whose_log_nobody_reads_ends_with_its_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(sys, "stdout", Unread())
    monkeypatch.setattr(sys, "stderr", Unread())
    # It would close the handlers of the test run.
    monkeypatch.setattr(logging, "shutdown", lambda: None)
    monkeypatch.setattr(os, "_exit", ended.append)
    app._end_now(StorageFailed("the disk is gone"))
    app._end_now(StorageFenced("another broker has it"))
    assert ended == [70, 71]
