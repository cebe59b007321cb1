"""Decides when the checkpointer works and on what. Needs no event loop.

`poll` is called about every second from one thread (the storage thread) and never waits for a checkpoint.
`checkpoint_now`, `copy_store` and `stop` wait, and may be called from other threads; `turn` lets one in at a time.
What the checkpointer has applied is told to `on_applied`, with the provider's lock held. `on_answer`, from a thread of
the link's own, says that a `poll` is worth it before the second is over: a burst is applied in portions.
"""

import logging
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

from vibemq.errors import ErrorCode, StorageError, StorageFailed
from vibemq.storage.lmdb.checkpoint.checkpoint import SegmentToApply
from vibemq.storage.lmdb.checkpoint.checkpointer_process import CheckpointerLink, checkpointer_arguments
from vibemq.storage.lmdb.journal.journal import Journal, SealedSegment
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.settings import LmdbSettings

logger = logging.getLogger(__name__)

ORDER_TIMEOUT_S = 600.0
WAIT_STEP_S = 0.5
FINAL_CHECKPOINT_TIMEOUT_S = 20.0


class CheckpointDriver:
    def __init__(
        self,
        layout: Layout,
        settings: LmdbSettings,
        journal: Journal,
        lock: AbstractContextManager[Any],
        on_applied: Callable[[int], None],
        on_answer: Callable[[], None],
        *,
        applied_lsn: int,
    ) -> None:
        self._settings = settings
        self._journal = journal
        self._lock = lock
        self._on_applied = on_applied
        self.turn = threading.RLock()
        """Whoever needs the provider's lock as well takes this one first."""
        arguments = checkpointer_arguments(layout.data_dir)
        self._link = CheckpointerLink(arguments, monotonic=time.monotonic, on_answer=on_answer)
        self._ordered_lsn = 0
        self._applied_lsn = applied_lsn
        self._last_order_at = time.monotonic()
        self._done = ""
        self.disk_was_full = False
        """A checkpoint failed for lack of space, and it is not made up for yet."""
        self._one_by_one = False
        """On a full disk two ways may help, tried in turn: all segments in one transaction, so that what later ones
        settle is never written; or one segment, whose own space is free afterwards."""

    def details(self) -> dict[str, Any]:
        """For `stats`."""
        return {
            "checkpointer_running": self._link.running,
            "checkpointer_pid": self._link.pid,
            "checkpointer_restarts": self._link.restarts,
            "checkpointer_error": self._link.last_error,
        }

    def poll(self) -> None:
        """Hear answers, restart a dead checkpointer, and order a checkpoint when one is due."""
        if not self.turn.acquire(blocking=False):
            return  # a backup is under way, and does the same while it waits
        try:
            if self._link.ensure_running():
                self._ordered_lsn = 0
            self._hear(self._link.answers())
            if not self._ordered_lsn and self._is_due():
                self._order(portion(self._lacking(), self._settings.checkpoint_lag_bytes))
        finally:
            self.turn.release()

    def checkpoint_now(self, timeout_s: float = ORDER_TIMEOUT_S) -> None:
        """Return when the store has everything appended before the call.

        Raises:
            StorageError: not within the time; the sentence says what the checkpointer complained of.
        """
        with self.turn:
            goal = self._journal.last_lsn
            self._wait(lambda: self._applied_lsn >= goal or not self._anything_to_do(goal), timeout_s, order=True)

    def copy_store(self, target: Path, timeout_s: float = ORDER_TIMEOUT_S) -> None:
        """Checkpoint, then let the checkpointer write a compacted copy of the store into the empty folder."""
        with self.turn:
            self.checkpoint_now(timeout_s)
            self._wait(lambda: self._link.running and not self._ordered_lsn, timeout_s)
            self._done = ""
            if not self._link.ask({"backup": str(target)}):
                raise StorageError(f"the checkpointer is not running ({self._link.last_error}); try again")
            pid = self._link.pid
            self._wait(lambda: self._done == "backup" or self._link.pid != pid, timeout_s)
            if self._done != "backup":
                raise StorageError(f"the copy was not finished: {self._link.last_error or 'the checkpointer ended'}")

    def stop(self, *, final_checkpoint: bool) -> None:
        """End the checkpointer; before that, if asked for and it is running, let it empty the journal."""
        with self.turn:
            if final_checkpoint and self._link.running:
                try:
                    self.checkpoint_now(FINAL_CHECKPOINT_TIMEOUT_S)
                except StorageFailed:
                    raise
                except StorageError as error:
                    logger.warning("no checkpoint at the end (%s); the next start reads the journal", error)
            self._link.stop()
            self._ordered_lsn = 0

    def abandon(self) -> None:
        """End the checkpointer without asking it for anything."""
        with self.turn:
            self._link.stop()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _anything_to_do(self, goal: int) -> bool:
        return bool(self._journal.stats().bytes_unreleased) and self._applied_lsn < goal

    def _is_due(self) -> bool:
        stats = self._journal.stats()
        if not stats.bytes_unreleased or stats.last_lsn <= self._applied_lsn:
            return False
        if self.disk_was_full:
            return True
        waited_ms = (time.monotonic() - self._last_order_at) * 1000
        return (
            waited_ms >= self._settings.checkpoint_ms or stats.bytes_unreleased >= self._settings.checkpoint_lag_bytes
        )

    def hand_over(self) -> list[SegmentToApply]:
        """Seal the journal; return every segment that the store lacks, oldest first."""
        with self._lock:
            self._journal.seal()
        self._journal.sync()
        return [_to_apply(segment) for segment in self._lacking()]

    def _lacking(self) -> list[SealedSegment]:
        return [s for s in self._journal.sealed_segments() if s.last_lsn > self._applied_lsn]

    def _order(self, oldest: Sequence[SealedSegment] = ()) -> None:
        """Have these applied, or everything. On a full disk everything: it may be that less of it needs room then."""
        segments = [] if self.disk_was_full else [_to_apply(segment) for segment in oldest]
        segments = segments or self.hand_over()
        if not segments:
            return
        if self.disk_was_full and self._one_by_one:
            del segments[1:]
        goal = segments[-1].last_lsn
        if self._link.ask({"apply": goal, "segments": segments, "at_once": self.disk_was_full}):
            self._ordered_lsn = goal
            self._last_order_at = time.monotonic()

    def _hear(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            lsn = answer.get("applied") or answer.get("ready")
            if lsn:
                self._applied(int(lsn))
            if "applied" in answer or "ended" in answer:
                self._ordered_lsn = 0
            if "applied" in answer:
                self._link.works()
            if "failed" in answer:
                self.disk_was_full = answer["failed"] == ErrorCode.STORAGE_FULL
                self._one_by_one = self.disk_was_full and not self._one_by_one
                logger.error("checkpoint failed: %s", answer.get("error", answer["failed"]))
            self._done = str(answer.get("done", self._done))

    def _applied(self, lsn: int) -> None:
        self._applied_lsn = lsn
        with self._lock:
            self._on_applied(lsn)
        if self.disk_was_full and not (self._one_by_one and self._anything_to_do(self._journal.durable_lsn)):
            self.disk_was_full = self._one_by_one = False

    def _wait(self, done: Callable[[], bool], timeout_s: float, *, order: bool = False) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > deadline:
                raise StorageError(f"the checkpointer needs more than {timeout_s:.0f} s; {self._link.last_error}")
            if self._link.ensure_running():
                self._ordered_lsn = 0
            if order and not self._ordered_lsn:
                self._order()
            self._hear(self._link.wait_answer(WAIT_STEP_S))


def portion(sealed: Sequence[SealedSegment], size: int) -> list[SealedSegment]:
    """Of a burst, the oldest segments with `size` bytes between them; none when all of them have less.

    They are free again, and used again while they are in the page cache, before the whole burst is applied.
    """
    sizes = list(accumulate(segment.bytes_used for segment in sealed))
    taken = bisect_left(sizes, size) + 1
    return list(sealed[:taken]) if taken <= len(sealed) else []


def _to_apply(segment: SealedSegment) -> SegmentToApply:
    return SegmentToApply(segment.path, segment.first_lsn, segment.last_lsn)
