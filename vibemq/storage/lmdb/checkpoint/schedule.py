"""Decides when the checkpointer works and on what. Needs no event loop.

`poll` is called about every second from one thread (the storage thread) and never waits for a checkpoint.
`checkpoint_now`, `copy_store` and `stop` wait, and may be called from other threads; `turn` lets one in at a time.
What the checkpointer has applied is told to `on_applied`. `on_answer`, from a thread of the link's own, says that a
`poll` is worth it before the second is over: a burst is applied in portions.

A checkpointer that has an order and reports no progress for a while is killed, and another one goes on: the journal
would grow without end behind one that hangs. Each such end doubles the time that the next one is given, so that a slow
disk is not taken for a process that hangs again and again. A copy goes on as long as its file grows.
"""

import logging
import math
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import accumulate
from pathlib import Path
from typing import Any

from vibemq.errors import ErrorCode, StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.storage.lmdb.checkpoint.checkpoint import SegmentToApply
from vibemq.storage.lmdb.checkpoint.checkpointer_process import CheckpointerLink, checkpointer_arguments
from vibemq.storage.lmdb.compaction import copying_folder, remove_leftover
from vibemq.storage.lmdb.environment.env import DATA_FILE
from vibemq.storage.lmdb.environment.free_pages import UnusedPages
from vibemq.storage.lmdb.journal.journal import Journal, SealedSegment
from vibemq.storage.lmdb.journal.recovery import REPAIR_HINT
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.store_room import FileRoom

logger = logging.getLogger(__name__)

ORDER_TIMEOUT_S = 600.0
WAIT_STEP_S = 0.5
FINAL_CHECKPOINT_TIMEOUT_S = 20.0
FULL_FAILURES_MAX = 3
"""Failures for lack of space, one after the other, after which waiting for a checkpoint is given up: both ways to make
one have been tried."""
SILENCE_MAX_S = 320.0
STARTING = 10
"""Until it has read the state, which says nothing meanwhile, it is given so many times the time."""
SILENCE_STEP_S = 2.0
"""More than that between two looks is this process's own pause, and is not held against the checkpointer."""
ROOM_AGAIN_MS = 200
"""Between two checkpoints for the sake of room."""
COMPACT_AGAIN_S = 60.0
"""After a compaction for which there was no room."""


class CheckpointDriver:
    def __init__(
        self,
        layout: Layout,
        settings: LmdbSettings,
        journal: Journal,
        room: FileRoom,
        lock: AbstractContextManager[Any],
        on_applied: Callable[[int], None],
        on_answer: Callable[[], None],
        on_compacted: Callable[[], None],
        *,
        applied_lsn: int,
    ) -> None:
        """`on_compacted` puts the copy in the store's place; nobody writes the store while it runs."""
        self._layout = layout
        self._settings = settings
        self._journal = journal
        self._room = room
        self._lock = lock
        self._on_applied = on_applied
        self._on_compacted = on_compacted
        self.turn = threading.RLock()
        """Whoever needs the provider's lock as well takes this one first."""
        arguments = checkpointer_arguments(layout.data_dir)
        self._link = CheckpointerLink(arguments, monotonic=time.monotonic, on_answer=on_answer)
        self._ordered_lsn = 0
        self._applied_lsn = applied_lsn
        self._last_order_at = time.monotonic()
        self._applied_at = time.monotonic()
        self._done = ""
        self._not_copied: dict[str, Any] = {}
        """The answer, of a backup whose folder did not take it."""
        self._full_failures = 0
        self._compacting = False
        self._compact_not_before = 0.0
        self._backup_into: Path | None = None
        """The folder, from a backup's checkpoint to its end."""
        self._ending = False
        self.compaction_wanted = False
        """The disk is short and most of the store is unused pages: have a compacted copy take its place."""
        self._silence_max_s = settings.checkpointer_silence_ms / 1000
        self._ready = False
        self._silence_s = 0.0
        self._looked_at = time.monotonic()
        self._copied_bytes = 0
        self.hung = 0
        """Checkpointers that were killed because they made no progress."""
        self.room_wanted = False
        """The journal takes so much of the disk that messages are refused, or soon will be: checkpoint it at once."""
        self.met: str | None = None
        """What a checkpoint met that failed for lack of space and is not made up for yet: a limit, as in
        `StorageFull.limit`, or the disk's size, which is the empty text. One value, which other threads read."""
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
            "checkpointer_hung": self.hung,
            "checkpoint_age_s": self._age_s(),
        }

    def _age_s(self) -> float:
        """For how long the store has lacked something that the journal has; 0 when it lacks nothing."""
        lacking = self._journal.last_lsn > self._applied_lsn
        return round(time.monotonic() - self._applied_at, 1) if lacking else 0.0

    @property
    def disk_was_full(self) -> bool:
        """A checkpoint failed for lack of space, and it is not made up for yet."""
        return self.met is not None

    @property
    def silent_s(self) -> float:
        """For how long the checkpointer has been silent over its order."""
        return self._silence_s

    def poll(self) -> None:
        """Hear answers, restart a dead checkpointer, and order a checkpoint when one is due."""
        if not self.turn.acquire(blocking=False):
            return  # a backup is under way, and does the same while it waits
        try:
            self._try_to_run()
            self._hear(self._link.answers())
            self._check_silence()
            # Before it is ready nobody knows what it lacks: one that was killed may have committed its last order.
            if self._ordered_lsn or self._compacting or not self._ready:
                return
            if self.compaction_wanted and time.monotonic() >= self._compact_not_before:
                self._compacting = self._link.ask({"compact": True})
            elif self._is_due():
                self._order(portion(self._lacking(), self._settings.checkpoint_lag_bytes))
        finally:
            self.turn.release()

    def checkpoint_now(self, timeout_s: float = ORDER_TIMEOUT_S) -> None:
        """Return when the store has everything appended before the call.

        Raises:
            StorageFull: the disk has no room for it.
            StorageError: not within the time; the sentence says what the checkpointer complained of.
        """
        with self.turn:
            goal = self._journal.last_lsn
            self._full_failures = 0
            self._wait(
                lambda: (self._applied_lsn >= goal or not self._anything_to_do(goal)) and not self._lacks_count(),
                timeout_s,
                order=True,
            )

    def copy_store(self, target: Path) -> None:
        """Checkpoint, then let the checkpointer write a compacted copy of the store into the empty folder.

        Raises:
            StorageError: the copy is not finished, and nobody writes to the folder any more.
        """
        with self.turn:
            self._backup_into = target
            try:
                self.checkpoint_now()
                self._wait(lambda: self._ready and not self._ordered_lsn and not self._compacting, ORDER_TIMEOUT_S)
                self._copy(target)
            finally:
                self._backup_into = None

    def end_backups(self) -> None:
        """One that is under way ends with StorageError, and none begins any more."""
        self._ending = True

    def stop(self, *, final_checkpoint: bool) -> bool:
        """End the checkpointer; before that, if asked for and it is running, let it empty the journal. False: that was
        given up, and is left to the next start."""
        given_up = False
        with self.turn:
            if final_checkpoint and self._link.running:
                try:
                    self.checkpoint_now(FINAL_CHECKPOINT_TIMEOUT_S)
                except StorageFailed:
                    raise
                except (StorageError, OSError) as error:
                    logger.warning("no checkpoint at the end (%s); the next start reads the journal", error)
                    self._link.kill()
                    given_up = True
            self._end()
        return not given_up

    def begin_anew(self, between: Callable[[], None]) -> None:
        """End the checkpointer, do something while nobody writes the store, and have the next look start another one,
        which goes on. Nothing, while the store is copied."""
        if not self.turn.acquire(blocking=False):
            return
        try:
            if not self._compacting:
                # Not asked to end: it would finish first what it does.
                self._link.kill()
                self._end()
                between()
        finally:
            self.turn.release()

    def abandon(self) -> None:
        """End the checkpointer without asking it for anything."""
        with self.turn:
            self._end()

    # -- inside ---------------------------------------------------------------------------------------------------

    def _copy(self, target: Path) -> None:
        self._done, self._not_copied = "", {}
        if not self._link.ask({"backup": str(target)}):
            raise StorageError(f"the checkpointer is not running ({self._link.last_error}); try again")
        pid, hung, silence_s = self._link.pid, self.hung, self._silence_max_s
        try:
            self._wait(lambda: self._done == "backup" or bool(self._not_copied) or self._link.pid != pid, math.inf)
        except BaseException:
            self._link.kill()
            raise
        if self._done == "backup":
            return
        if answer := self._not_copied:
            raise _not_finished(answer)
        why = self._link.last_error or "the checkpointer ended"
        if self.hung != hung:
            why = f"it did not grow for {silence_s:.0f} s; see whether the disk of {target} still takes data"
        raise StorageError(f"the copy was not finished: {why}")

    def _end(self) -> None:
        self._link.stop()
        self._forget_orders()

    def _ensure_running(self) -> None:
        if self._link.ensure_running():
            self._forget_orders()

    def _try_to_run(self) -> None:
        """What the system has none for now, it may have later. Nothing is lost: the journal keeps everything."""
        try:
            self._ensure_running()
        except OSError as error:
            logger.error("the checkpointer cannot be started, which is tried again and again: %s", error)

    def _forget_orders(self) -> None:
        """Whoever had them is gone."""
        self._ready = False
        self._ordered_lsn = 0
        self._silence_s = 0.0
        self._room.pages = None
        if self._compacting:
            self._compacting = False
            remove_leftover(self._layout)

    def _check_silence(self) -> None:
        """Kill a checkpointer that has an order and makes no progress; the next look starts another."""
        now = time.monotonic()
        passed, self._looked_at = min(now - self._looked_at, SILENCE_STEP_S), now
        at_work = bool(self._ordered_lsn or self._compacting or self._backup_into or not self._ready)
        if not at_work or not self._link.running or self._copy_has_grown():
            self._silence_s = 0.0
            return
        self._silence_s += passed
        if self._silence_s <= self._silence_max_s * (1 if self._ready else STARTING):
            return
        self.hung += 1
        logger.error(
            "the checkpointer (process %s) has made no progress for %.0f s and is killed; another one goes on, and "
            "nothing is lost",
            self._link.pid,
            self._silence_s,
        )
        self._silence_max_s = min(2 * self._silence_max_s, SILENCE_MAX_S)
        self._link.kill()

    def _copy_has_grown(self) -> bool:
        """LMDB says nothing while it copies."""
        folder = copying_folder(self._layout) if self._compacting else self._backup_into
        try:
            size = (folder / DATA_FILE).stat().st_size if folder is not None else 0
        except FileNotFoundError:
            size = 0
        grown, self._copied_bytes = size > self._copied_bytes, size
        return grown

    def _anything_to_do(self, goal: int) -> bool:
        return bool(self._journal.stats().bytes_unreleased) and self._applied_lsn < goal

    def _is_due(self) -> bool:
        stats = self._journal.stats()
        waited_ms = (time.monotonic() - self._last_order_at) * 1000
        hurries = self.room_wanted and waited_ms >= ROOM_AGAIN_MS
        if not stats.bytes_unreleased or stats.last_lsn <= self._applied_lsn:
            # What can be used of the store's file counts as room, too.
            return hurries and self._lacks_count()
        if self.disk_was_full or hurries:
            return True
        return (
            waited_ms >= self._settings.checkpoint_ms or stats.bytes_unreleased >= self._settings.checkpoint_lag_bytes
        )

    def _lacks_count(self) -> bool:
        """Whether it is not known what can be used of the store's file, and counts: the disk is short."""
        return bool(self._applied_lsn) and self._room.pages is None and self._journal.pool.room_is_short

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
        if not segments and not self._lacks_count():
            return
        count = self._journal.pool.room_is_short
        # What was counted before is used, whatever has become free meanwhile.
        short = count or self._room.pages is not None
        if self.disk_was_full and self._one_by_one:
            del segments[1:]
        goal = segments[-1].last_lsn if segments else self._applied_lsn
        self._journal.pool.make_room()
        order = {"apply": goal, "segments": segments, "at_once": self.disk_was_full, "short": short, "count": count}
        if self._link.ask(order):
            self._ordered_lsn = goal
            self._last_order_at = time.monotonic()

    def _hear(self, answers: list[dict[str, Any]]) -> None:
        for answer in answers:
            if "applied" in answer:
                self._room.pages = _told(answer)
            lsn = answer.get("applied") or answer.get("ready")
            if lsn:
                self._applied(int(lsn))
            self._silence_s = 0.0
            self._ready |= "ready" in answer
            if "applied" in answer or "ended" in answer:
                self._ordered_lsn = 0
            if "applied" in answer:
                self._link.works()
                self._silence_max_s = self._settings.checkpointer_silence_ms / 1000
            if self._compacting and ("compact" in (answer.get("done"), answer.get("refused"))):
                self._compacted(answer)
                continue
            if "failed" in answer:
                self.met = str(answer["limit"]) if answer["failed"] == ErrorCode.STORAGE_FULL else None
                self._full_failures += self.disk_was_full
                self._one_by_one = self.disk_was_full and not self._one_by_one
                logger.error("checkpoint failed: %s", answer.get("error", answer["failed"]))
            self._done = str(answer.get("done", self._done))
            if answer.get("refused") == "backup":
                self._not_copied = answer

    def _compacted(self, answer: dict[str, Any]) -> None:
        self._compacting = False
        if "refused" in answer:
            self._compact_not_before = time.monotonic() + COMPACT_AGAIN_S
            logger.warning("%s", answer.get("error", "no room to compact the store"))
            return
        self._end()
        self.compaction_wanted = False
        self._on_compacted()

    def _applied(self, lsn: int) -> None:
        if lsn > self._applied_lsn:
            self._applied_at = time.monotonic()
            self._full_failures = 0
        self._applied_lsn = lsn
        self._on_applied(lsn)
        if self.disk_was_full and not (self._one_by_one and self._anything_to_do(self._journal.durable_lsn)):
            self.met, self._one_by_one = None, False

    def _wait(self, done: Callable[[], bool], timeout_s: float, *, order: bool = False) -> None:
        deadline = time.monotonic() + timeout_s
        while not done():
            if self._ending and self._backup_into is not None:
                raise StorageError("the backup was not finished: the broker stops")
            if time.monotonic() > deadline:
                complaint = f"; {self._link.last_error}" if self._link.last_error else ""
                raise StorageError(f"the checkpointer needs more than {timeout_s:.0f} s{complaint}")
            if order and self._full_failures >= FULL_FAILURES_MAX:
                raise StorageFull(f"no checkpoint for lack of space: {self._link.last_error}")
            self._try_to_run()
            if order and self._ready and not self._ordered_lsn and not self._compacting:
                self._order()
            self._hear(self._link.wait_answer(WAIT_STEP_S))
            self._check_silence()


def portion(sealed: Sequence[SealedSegment], size: int) -> list[SealedSegment]:
    """Of a burst, the oldest segments with `size` bytes between them; none when all of them have less.

    They are free again, and used again while they are in the page cache, before the whole burst is applied.
    """
    sizes = list(accumulate(segment.bytes_used for segment in sealed))
    taken = bisect_left(sizes, size) + 1
    return list(sealed[:taken]) if taken <= len(sealed) else []


def _told(answer: dict[str, Any]) -> UnusedPages | None:
    """The count of unused pages in an answer."""
    if "unused" not in answer:
        return None
    runs, *rest = answer["unused"]
    return UnusedPages(tuple((length, number) for length, number in runs), *rest)


def _to_apply(segment: SealedSegment) -> SegmentToApply:
    return SegmentToApply(segment.path, segment.first_lsn, segment.last_lsn)


def _not_finished(answer: dict[str, Any]) -> StorageError:
    """What the checkpointer has answered to the order of a copy."""
    told = f"the copy was not finished: {answer['error']}"
    match answer.get("code"):
        case ErrorCode.STORAGE_FULL:
            return StorageFull(told)
        case ErrorCode.STORAGE_DAMAGED:
            return StorageDamaged(told, path=answer["path"], hint=REPAIR_HINT)
    return StorageError(told)
