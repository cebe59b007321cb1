"""A checkpointer that cannot be started."""

import errno
import os
import subprocess
import threading
from pathlib import Path
from typing import Any, NoReturn

import pytest

from vibemq.storage.lmdb.checkpoint import checkpointer_process
from vibemq.storage.lmdb.checkpoint.checkpointer_process import CheckpointerLink


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link(clock: Clock, tmp_path: Path) -> CheckpointerLink:
    return CheckpointerLink([str(tmp_path)], monotonic=clock, on_answer=lambda: None)


def no_process(*arguments: Any, **options: Any) -> NoReturn:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def no_thread(thread: threading.Thread) -> NoReturn:
    raise RuntimeError("can't start new thread")


def test_it_is_tried_again_after_pauses_that_grow(
    link: CheckpointerLink, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", no_process)
    tried: list[float] = []
    for tenths in range(400):
        clock.now = tenths / 10
        try:
            assert not link.ensure_running()
        except OSError:
            tried.append(clock.now)
    assert tried == [0.0, 0.5, 2.5, 12.5, 22.5, 32.5]
    assert not link.running
    assert link.restarts == 0, "it has not ended: there was none"
    assert "cannot be started" in link.last_error


def test_one_whose_answers_nobody_would_hear_is_ended(
    link: CheckpointerLink, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[subprocess.Popen[str]] = []

    class Popen(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            begun.append(self)

    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Popen)
        patched.setattr(threading.Thread, "start", no_thread)
        with pytest.raises(OSError, match="no thread for its answers"):
            link.ensure_running()
    assert not link.running
    assert [process.returncode for process in begun] == [-9]
    clock.now = 1.0
    assert link.ensure_running(), "there is a thread again"
    link.kill()
    link.stop()


def test_tests_of_the_store_have_real_ones() -> None:
    assert checkpointer_process.subprocess is subprocess
