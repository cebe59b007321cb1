"""Brings audit records from the event loop into the audit file, in a thread: written at once, flushed each second."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from vibemq.server.access.audit_file import AuditFile

log = logging.getLogger("vibemq.audit_file")

FLUSH_S = 1.0
TOGETHER_MAX = 1_000
"""Records of one write."""
KEPT_MAX = 10_000
"""Records that wait for a disk that takes nothing. More are lost, and counted."""
CLOSE_S_MAX = 5.0

Record = Mapping[str, Any]


class AuditWriter:
    """`start` once, then `put` from any thread, then `close`."""

    def __init__(
        self, file: AuditFile, *, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.trouble = ""
        """Why records cannot be written, and what to do; empty while they can."""
        self._file = file
        self._wall = wall
        self._monotonic = monotonic
        self._records: SimpleQueue[Record | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="vibemq-audit", daemon=True)
        self._waiting: list[Record] = []
        self._lost = 0
        self._flushed_at = monotonic()
        self._unflushed = False

    def start(self) -> None:
        self._thread.start()

    def put(self, record: Record) -> None:
        self._records.put(record)

    def close(self) -> None:
        """Write what is there, as far as the disk takes it. Blocks."""
        if self._thread.is_alive():
            self._records.put(None)
            self._thread.join(CLOSE_S_MAX)

    def _run(self) -> None:
        # Whether it can be written is known before there is anything to write.
        self._try(self._file.open)
        ends = False
        while not ends:
            ends = self._gather()
            if self._waiting or self._lost:
                self._try(self._write)
            if self._unflushed and (ends or self._monotonic() - self._flushed_at >= FLUSH_S):
                self._try(self._flush)
        if self._waiting or self._lost:
            log.error("%d audit records could not be written", len(self._waiting) + self._lost)
        self._file.close()

    def _gather(self) -> bool:
        """Wait for records, or until something is due; whether that was the last one."""
        due = self._unflushed or self._waiting or self._lost or self.trouble
        with suppress(Empty):
            record = self._records.get(timeout=FLUSH_S if due else None)
            while record is not None:
                if len(self._waiting) < KEPT_MAX:
                    self._waiting.append(record)
                else:
                    self._lost += 1
                if len(self._waiting) >= TOGETHER_MAX and not self.trouble:
                    return False
                record = self._records.get_nowait()
            return True
        return False

    def _write(self) -> None:
        records = list(self._waiting)
        if self._lost:
            at = int(1000 * self._wall())
            records.append({"at": at, "event": "audit.lost", "operation": "audit.lost", "count": self._lost})
        self._file.append(records)
        self._waiting.clear()
        self._lost = 0
        self._unflushed = True

    def _flush(self) -> None:
        self._flushed_at = self._monotonic()
        self._file.flush()
        self._unflushed = False

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            why = error.strerror or str(error)
            if not self.trouble:
                log.error("the audit file cannot be written: %s", why, extra={"event": "audit.trouble"})
            self.trouble = (
                f"the audit file in {self._file.folder} cannot be written ({why}); free space there, or correct its "
                "owner and mode"
            )
        else:
            if self.trouble:
                log.info("the audit file can be written again", extra={"event": "audit.trouble.over"})
            self.trouble = ""
