"""The broker's end of the checkpointer: spawn it, ask it, notice when it dies.

The checkpointer is the module `vibemq.storage.lmdb.checkpoint.checkpointer`. Both sides write one JSON object per line:

    broker → checkpointer (stdin)     {"apply": lsn, "segments": [[path, first_lsn, last_lsn] ...], "at_once": bool,
                                       "short": bool, "count": bool}
                                                                 apply these sealed segments, up to and including lsn;
                                                                 short: use all unused pages; count: and count them
                                      {"backup": path}           copy the store, compacted, into the folder
                                      {"compact": true}          write a compacted copy beside the store, and no more
    checkpointer → broker (stdout)    {"ready": lsn}             after opening; the lsn the store has applied
                                      {"applied": lsn}           committed and synced
                                      {"applied": lsn, "unused": as `UnusedPages`}       the same, and counted
                                      {"working": lsn}           about every second of a long order
                                      {"done": "backup"}         an order that is no checkpoint was carried out
                                      {"refused": "compact", "error": sentence}      no room for it; nothing changed
                                      {"refused": "backup", "error": sentence}       the folder does not take it
                                      {"refused": "backup", "error": sentence, "code": "STORAGE_FULL"}
                                      {"refused": "backup", "error": sentence, "code": "STORAGE_DAMAGED", "path": file}
                                                                 the store cannot be read
                                      {"failed": code, "error": sentence}        the process ends
                                      {"failed": "STORAGE_FULL", "error": sentence, "limit": as in StorageFull}

End of file on stdin ends the checkpointer, so it never outlives a broker that was killed. Its death loses nothing:
the journal still has every record above the last applied lsn. It is started again after a pause that grows.
"""

import errno
import json
import logging
import os
import subprocess
import threading
import weakref
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vibemq.storage.local.child import command_of
from vibemq.storage.local.inherited import let_go_of

logger = logging.getLogger(__name__)

THRIFTY = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
    "MALLOC_TRIM_THRESHOLD_": "16777216",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Has glibc keep a transaction's memory for the next one, and no more; other C libraries ignore it. Blocks stay below
the first threshold: to map, fault in and unmap each of their copies took four fifths of a checkpoint's time, and to
give back and fault in each transaction's memory a third of what was left. The checkpointer gives it back at rest.
Huge pages halve what a row of 16 MiB takes of its time."""

PAUSE_S = (0.1, 0.5, 2.0, 10.0)
STOP_TIMEOUT_S = 30.0

_links: "weakref.WeakSet[CheckpointerLink]" = weakref.WeakSet()


class CheckpointerLink:
    """Used from one thread (the storage thread); an own daemon thread reads the answers.

    Args:
        monotonic: seconds; injected so that the pauses can be tested without waiting.
        on_answer: called from that thread when there is something to hear.
    """

    def __init__(
        self, command_arguments: list[str], *, monotonic: Callable[[], float], on_answer: Callable[[], None]
    ) -> None:
        self._command = command_of("vibemq.storage.lmdb.checkpoint.checkpointer", *command_arguments)
        self._monotonic = monotonic
        self._on_answer = on_answer
        self._process: subprocess.Popen[str] | None = None
        self._answers: deque[dict[str, Any]] = deque()
        self._arrived = threading.Condition()
        self._start_not_before = 0.0
        self.restarts = 0
        self._failures = 0
        """Deaths since it last did something useful."""
        self.last_error = ""
        _links.add(self)

    def forked(self) -> None:
        """In a forked child: a pipe that stays open keeps the checkpointer from seeing that the broker is gone."""
        if self._process is not None:
            pipes = [pipe for pipe in (self._process.stdin, self._process.stdout) if pipe is not None]
            let_go_of([pipe.fileno() for pipe in pipes if not pipe.closed])

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    def ensure_running(self) -> bool:
        """Start or restart it when its pause is over; return whether a process was started now.

        Raises OSError: no file, process, memory or thread is left for it. It is tried again behind the next pause.
        """
        if self.running or self._monotonic() < self._start_not_before:
            return False
        if self._process is not None:
            code = self._process.wait()
            self.restarts += 1
            self._failures += 1
            logger.error("checkpointer ended with code %d (%s); starting it again", code, self.last_error or "no word")
            self._close_pipes()
            self._process = None
        try:
            self._spawn()
        except OSError as error:
            self._failures += 1
            self.last_error = f"it cannot be started: {error}"
            raise
        finally:
            pause = PAUSE_S[min(self._failures, len(PAUSE_S) - 1)]
            self._start_not_before = self._monotonic() + pause
        return True

    def works(self) -> None:
        """It has carried out an order: the next pause is a short one again."""
        self._failures = 0

    def _spawn(self) -> None:
        # The command is this interpreter and paths from the settings; no shell reads it.
        process = subprocess.Popen(  # noqa: S603
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**THRIFTY, **os.environ}
        )
        self._process = process
        reader = threading.Thread(target=self._read, args=(process,), name="vibemq-checkpointer-answers", daemon=True)
        try:
            reader.start()
        except RuntimeError as error:
            # Nobody would hear it.
            self.kill()
            self._close_pipes()
            self._process = None
            raise OSError(errno.EAGAIN, f"the system has no thread for its answers ({error})") from None

    def _read(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdout is not None
        for line in process.stdout:
            try:
                answer = json.loads(line)
            except ValueError:
                logger.error("the checkpointer wrote %r, which is no answer", line[:200])
                continue
            with self._arrived:
                self._answers.append(answer)
                self._arrived.notify_all()
            self._on_answer()
        with self._arrived:
            self._answers.append({"ended": process.pid})
            self._arrived.notify_all()

    def ask(self, order: dict[str, Any]) -> bool:
        """Send one order; False when there is nobody to hear it (it will be restarted and asked again)."""
        process = self._process
        if process is None or process.stdin is None or process.poll() is not None:
            return False
        try:
            process.stdin.write(json.dumps(order) + "\n")
            process.stdin.flush()
        except (BrokenPipeError, OSError) as exc:
            self.last_error = str(exc)
            return False
        return True

    def answers(self) -> list[dict[str, Any]]:
        """Whatever has arrived, without waiting."""
        with self._arrived:
            taken = list(self._answers)
            self._answers.clear()
        for answer in taken:
            if "failed" in answer:
                self.last_error = str(answer.get("error", ""))
        return taken

    def wait_answer(self, timeout_s: float) -> list[dict[str, Any]]:
        """As `answers`, but wait for at least one; [] after the timeout."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._answers), timeout=timeout_s)
        return self.answers()

    def stop(self) -> None:
        """Close its stdin and wait for it to finish what it is doing; kill it when it does not."""
        process = self._process
        if process is None:
            return
        if process.stdin is not None and not process.stdin.closed:
            try:
                process.stdin.close()
            except OSError as exc:
                logger.debug("closing the checkpointer's pipe: %s", exc)
        try:
            process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            logger.error("the checkpointer did not end within %.0f s and is killed; nothing is lost", STOP_TIMEOUT_S)
            process.kill()
            process.wait()
        self._close_pipes()
        self._process = None

    def kill(self) -> None:
        """End it at once; `ensure_running` starts another one. Nothing is lost: the journal has what it worked on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout) if self._process is not None else ():
            if pipe is not None and not pipe.closed:
                try:
                    pipe.close()
                except OSError as exc:
                    logger.debug("closing a pipe of the checkpointer: %s", exc)


def checkpointer_arguments(data_dir: Path, **numbers: int) -> list[str]:
    """Command-line arguments: the data directory, then `--name value` pairs."""
    arguments = [str(data_dir)]
    for name, number in numbers.items():
        arguments += (f"--{name.replace('_', '-')}", str(number))
    return arguments


def _let_go_in_child() -> None:
    for link in list(_links):
        try:
            link.forked()
        except OSError:
            # The others have to know all the same.
            logger.exception("the pipes of the parent's checkpointer stay open in this forked process")


os.register_at_fork(after_in_child=_let_go_in_child)
