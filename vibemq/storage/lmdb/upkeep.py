"""Housekeeping of the `lmdb` provider: spare segments, ballast, and what a short disk or a slow checkpointer needs."""

import errno
import logging
from collections.abc import Callable
from pathlib import Path

from vibemq.errors import StorageFull
from vibemq.storage.kvstore.dead_letters import SORTED_AT_ONCE
from vibemq.storage.lmdb import compaction
from vibemq.storage.lmdb.checkpoint.schedule import CheckpointDriver
from vibemq.storage.lmdb.environment.env import map_bytes, map_is_short
from vibemq.storage.lmdb.journal.durable_note import DurableNote
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.journal.record_writer import RecordWriter
from vibemq.storage.lmdb.journal.room import VALUE_BYTES
from vibemq.storage.lmdb.open_store import OpenStore
from vibemq.storage.lmdb.reading.dead import JournaledDead
from vibemq.storage.lmdb.settings import LmdbSettings
from vibemq.storage.lmdb.store_room import DiskUsage, FileRoom
from vibemq.storage.local.ballast import Ballast
from vibemq.storage.state.shedding import Shedder
from vibemq.storage.state.turns import in_turns

logger = logging.getLogger(__name__)

SHORT_PART = 10
"""A disk is short of space when less than one byte in so many is free."""
UNUSED_BYTES_MIN = 1 << 20
"""Unused pages that are not worth a copy of the store."""
LETTERS_FORGOTTEN_AT_ONCE = 1000
"""A millisecond of work."""


class Upkeep:
    """`maintain` and `keep_up` are called in threads of their own, beside appends and reads."""

    def __init__(
        self,
        store: OpenStore,
        settings: LmdbSettings,
        journal: Journal,
        driver: CheckpointDriver,
        room: FileRoom,
        ballast: Ballast,
        dead: JournaledDead,
        writer: RecordWriter,
        note: DurableNote,
        disk_usage: Callable[[Path], DiskUsage],
        map_anew: Callable[[], None],
    ) -> None:
        """`map_anew` has the store mapped as its disk is now."""
        self._store = store
        self._settings = settings
        self._journal = journal
        self._driver = driver
        self._room = room
        self._ballast = ballast
        self._dead = dead
        self._writer = writer
        self._note = note
        self._disk_usage = disk_usage
        self._map_anew = map_anew
        self.shedder = Shedder(store.lock, lambda: store.state)
        self._spare_missing = False
        self.compacted = False
        """No spare segment is made before the next round of housekeeping: it would take what was just freed."""

    def maintain(self) -> None:
        """One round of housekeeping. Blocking, at most for a zero-filled segment; never for a checkpoint."""
        self._store.require_open()
        self._follow_the_disk()
        self._driver.poll()
        self._forget_applied_letters()
        with self._store.lock:
            self._journal.note_durable()
        self._note.flush()
        self.shedder.shed()
        short = self._check_disk()
        self._check_journal()
        self._journal.pool.give_back(short=short)
        self.compacted = False
        self.prepare_spare()

    def keep_up(self) -> None:
        self._check_journal()
        try:
            if not self.compacted:
                self.prepare_spare()
        finally:
            if self._driver.details()["checkpointer_running"]:
                self._driver.poll()

    def _follow_the_disk(self) -> None:
        """A bigger one takes a bigger store, and whoever has its file mapped sees no more of it than the map."""
        wanted = map_bytes(self._store.layout.store)
        with self._store.lock:
            is_short = map_is_short(self._store.env, wanted)
        if is_short:
            self._driver.begin_anew(self._map_anew)

    def _forget_applied_letters(self) -> None:
        in_turns(self._forget_some_letters)

    def _forget_some_letters(self) -> bool:
        with self._store.lock:
            more = self._dead.applied(self._store.applied_lsn, LETTERS_FORGOTTEN_AT_ONCE)
            return self._dead.sort_in(SORTED_AT_ONCE) or more

    def prepare_spare(self) -> None:
        """A missing one is told once, when it begins."""
        self._driver.room_wanted = self._journal.pool.room_is_short
        try:
            self._journal.pool.prepare_spare()
            self._spare_missing = False
        except StorageFull as error:
            # A checkpoint gives back room, not files; it would seal a segment that others can still write to.
            if getattr(error.__cause__, "errno", None) not in (errno.EMFILE, errno.ENFILE):
                self._driver.room_wanted = True
            if not self._spare_missing:
                self._spare_missing = True
                logger.warning("no spare journal segment: %s", error)

    def _check_disk(self) -> bool:
        """Ballast, and the store's own unused pages; return whether the disk is short of space.

        LMDB keeps the pages of a drained backlog. Only it can use them; on a short disk they are given back.
        """
        met = self._driver.met
        if met is not None:
            self._journal.pool.trim()
            self._journal.cut_sealed()
            if self._ballast.release(met):
                logger.warning("the ballast is given up so that checkpoints can go on: %s", self._ballast.why)
        else:
            if self._ballast.missing:
                self._journal.pool.trim()
            self._ballast.take(beside=self._journal.pool.room_kept, reusable=self._room.unused(VALUE_BYTES))
        disk = self._disk_usage(self._store.layout.data_dir)
        short = met is not None or self._ballast.missing or self._spare_missing
        copied_to = self._disk_usage(self._store.layout.store)
        short = short or any(each.free < each.total // SHORT_PART for each in (disk, copied_to))
        with self._store.lock:
            size, unused = compaction.store_size(self._store.env)
        used = size - unused
        wanted = short and unused > max(used, UNUSED_BYTES_MIN) and copied_to.free > used + compaction.MARGIN_BYTES
        if wanted and not self._driver.compaction_wanted:
            logger.warning("the disk is short and %d MiB of the store are unused: compacting it", unused >> 20)
        self._driver.compaction_wanted = wanted
        return short

    def _check_journal(self) -> None:
        """Refuse messages behind a checkpointer that does not come along: the journal must not take the whole disk."""
        waiting, limit_bytes = self._journal.stats().bytes_unreleased, self._settings.journal_bytes_max
        if waiting < (limit_bytes // 2 if self._writer.refusal else limit_bytes):
            self._writer.refusal = ""
            return
        if not self._writer.refusal:
            logger.error(
                "%d MiB of journal are not checkpointed: new messages are refused until they are", waiting >> 20
            )
        error = self._driver.details()["checkpointer_error"]
        self._writer.refusal = (
            f"the journal in {self._store.layout.journal} holds {waiting >> 20} MiB that are not checkpointed, "
            f"{limit_bytes >> 20} MiB are allowed (journal_bytes_max): the checkpointer does not come along"
            f"{f' ({error})' if error else ''}; publish again later, and see the broker's log"
        )
