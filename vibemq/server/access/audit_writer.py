"""Brings audit records from the event loop into the audit file, in a thread: written at once, flushed each second.

While the file cannot be written there is `trouble`. It is over when the next attempt succeeds, of which there is one a
second. After a failed flush it is over when a new file was flushed, in which the records since the last flush that
succeeded are repeated, behind one that says so (`audit.repeated`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from vibemq.server.access.audit_file import AuditFile, FlushFailed

log = logging.getLogger("vibemq.audit_file")

FLUSH_S = 1.0
TOGETHER_MAX = 1_000
"""Records of one write."""
KEPT_MAX = 10_000
"""Records that wait for a disk that takes nothing. More are lost, and counted."""
QUEUED_MAX = 2 * KEPT_MAX
"""Records that wait behind a write that does not come back. More are lost, and counted."""
CLOSE_S_MAX = 5.0
CATCH_UP_S_MAX = 1.0

Record = Mapping[str, Any]


class AuditWriter:
    """`start` once, then `put` from any thread, then `close`."""

    def __init__(
        self, file: AuditFile, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.trouble = f"the audit file in {file.folder} has not been opened yet"
        """Why records cannot be written, and what to do; empty while they can."""
        self._is_told = False
        self._file = file
        self._wall = wall
        self._monotonic = monotonic
        self._records: SimpleQueue[Record | threading.Event | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="vibemq-audit", daemon=True)
        self._waiting: list[Record] = []
        self._awaited: list[threading.Event] = []
        """Of readers: set once what was put before them has been tried."""
        self._lost = 0
        self._counting = threading.Lock()
        """Of what is lost, by this thread or that one."""
        self._flushed_at = monotonic()
        self._unflushed: list[Record] = []
        """Written since the last flush."""
        self._flush_failed = False
        """And no other has succeeded since."""

    def start(self) -> None:
        self._thread.start()

    def put(self, record: Record) -> None:
        if self._records.qsize() < QUEUED_MAX:
            self._records.put(record)
            return
        self._lose()
        if not self._is_told:
            self._have_trouble("a write does not come back")

    def catch_up(self) -> None:
        """Wait until what was put before is in the file: a change that was answered is found by whoever asks next.

        Blocks, at most for `CATCH_UP_S_MAX`: a disk that takes nothing, or does not come back, does not keep readers.
        """
        if not self._thread.is_alive() or self._records.qsize() >= QUEUED_MAX:
            return
        tried = threading.Event()
        self._records.put(tried)
        tried.wait(CATCH_UP_S_MAX)

    def close(self) -> None:
        """Write what is there, as far as the disk takes it. Blocks."""
        if self._thread.is_alive():
            self._records.put(None)
            self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        # Whether it can be written is known before there is anything to write.
        self._try(self._open)
        ends = False
        while not ends:
            ends = self._gather()
            if self._waiting or self._lost:
                self._try(self._write)
            elif self.trouble:
                self._try(self._open)
            self._answer_readers()
            if self._unflushed and (ends or self._flush_is_due()):
                self._try(self._flush)
        if self._waiting or self._lost:
            log.error("%d audit records could not be written", len(self._waiting) + self._lost)
        self._file.close()

    def _open(self) -> None:
        self._file.open()
        self._file.reserve()

    def _gather(self) -> bool:
        """Wait for records, or until something is due; whether that was the last one."""
        due = self._unflushed or self._waiting or self._lost or self.trouble
        with suppress(Empty):
            record = self._records.get(timeout=FLUSH_S if due else None)
            while record is not None:
                if isinstance(record, threading.Event):
                    self._awaited.append(record)
                elif len(self._waiting) < KEPT_MAX:
                    self._waiting.append(record)
                else:
                    self._lose()
                if len(self._waiting) >= TOGETHER_MAX and not self.trouble:
                    return False
                record = self._records.get_nowait()
            return True
        return False

    def _answer_readers(self) -> None:
        for tried in self._awaited:
            tried.set()
        self._awaited.clear()

    def _lose(self) -> None:
        with self._counting:
            self._lost += 1

    def _write(self) -> None:
        records, lost = list(self._waiting), self._lost
        if lost:
            records.append(self._told("audit.lost", lost))
        self._file.append(records)
        self._waiting.clear()
        with self._counting:
            self._lost -= lost
        self._unflushed += records
        # They may have taken it, and then the next ones have no room.
        self._file.reserve()

    def _told(self, event: str, count: int) -> Record:
        return {"at": int(1000 * self._wall()), "event": event, "operation": event, "count": count}

    def _flush_is_due(self) -> bool:
        return len(self._unflushed) >= KEPT_MAX or self._monotonic() - self._flushed_at >= FLUSH_S

    def _flush(self) -> None:
        self._flushed_at = self._monotonic()
        self._file.flush()
        self._unflushed.clear()
        self._flush_failed = False

    def _begin_anew(self) -> None:
        """Another flush of the same file would succeed, whatever became of what it holds."""
        said = [] if self._flush_failed else [self._told("audit.repeated", len(self._unflushed))]
        self._waiting[:0] = [*said, *self._unflushed]
        self._unflushed.clear()
        self._flush_failed = True
        with suppress(OSError):
            self._file.begin_anew()

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._have_trouble(error.strerror or str(error))
            if isinstance(error, FlushFailed):
                self._begin_anew()
        else:
            if self.trouble and self._takes_records():
                self.trouble = ""
                if self._is_told:
                    self._is_told = False
                    log.info("the audit file can be written again", extra={"event": "audit.trouble.over"})

    def _takes_records(self) -> bool:
        """As far as it is known. That what is written could be flushed does not tell whether there is room for more."""
        return self._file.has_reserve and not (self._flush_failed or self._waiting or self._lost)

    def _have_trouble(self, why: str) -> None:
        if not self._is_told:
            self._is_told = True
            log.error("the audit file cannot be written: %s", why, extra={"event": "audit.trouble"})
        self.trouble = (
            f"the audit file in {self._file.folder} cannot be written ({why}); free space there, or correct its owner "
            "and mode"
        )
