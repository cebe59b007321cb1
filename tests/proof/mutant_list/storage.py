"""Flushes left out, damage that is believed, checkpoints that forget, and disks that are full or fail."""

from tests.proof.mutant_list.mutant import (
    DRAINED,
    DRAINED_IN_PART,
    FAILED_FLUSH,
    FULL_AGAIN,
    LOST,
    LOST_OR_BROKEN,
    MESSAGES_ALONE,
    NO_BALLAST,
    OPENED_AFTER_A_DRAIN,
    ROT,
    SIM,
    SIM_KILLS,
    SIM_WEAK,
    STORE_GONE,
    Mutant,
)

JOURNAL = "storage/lmdb/journal/journal.py"
SEGMENT_POOL = "storage/lmdb/journal/segment_pool.py"
RECOVERY = "storage/lmdb/journal/recovery.py"
SEGMENT = "storage/lmdb/journal/segment.py"
FLUSHES_OF_APPENDS = "server/commit/flushes.py"
CHECKPOINT = "storage/lmdb/checkpoint/checkpoint.py"

FLUSHES = (
    Mutant(
        "strong path without its fdatasync",
        JOURNAL,
        "            for segment in dirty:\n                self._disk.fdatasync(segment.file)\n",
        "            for segment in dirty:\n                pass\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "a large record without a flush behind its row's",
        JOURNAL,
        "            self._active = segment\n"
        "            self._last_lsn = lsn\n"
        "            self._bytes_appended += size + HEADER.size\n"
        "            self._dirty[segment.serial] = segment\n",
        "            self._active = segment\n"
        "            self._last_lsn = lsn\n"
        "            self._bytes_appended += size + HEADER.size\n",
        sign=LOST_OR_BROKEN,
        quick=False,
    ),
    Mutant(
        "a row that was written ahead goes before its segment is the journal's",
        "storage/lmdb/journal/large.py",
        "        self._pool.keep(segment)\n",
        "        self._pool.give_up(segment)\n",
        # The pool and the journal both have it: it is overwritten, or deleted twice.
        sign=LOST_OR_BROKEN + r"|^StorageFailed: journal deleting a segment failed .*No such file",
        quick=False,
    ),
    Mutant(
        "only the newest segment is flushed",
        JOURNAL,
        "            dirty = list(self._dirty.values())\n",
        "            dirty = list(self._dirty.values())[-1:]\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "a flush claims what came while it ran",
        JOURNAL,
        "        self._durable_lsn, self._bytes_durable = target, appended\n",
        "        self._durable_lsn, self._bytes_durable = self._last_lsn, appended\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "new segment without a flush of the folder",
        SEGMENT_POOL,
        "            self._disk.rename(path + NEW_SUFFIX, path)\n            self._disk.fsync_dir(self._folder)\n",
        "            self._disk.rename(path + NEW_SUFFIX, path)\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "recycled segment without a flush of the folder",
        SEGMENT_POOL,
        "                self._rename(segment)\n                self._disk.fsync_dir(self._folder)\n",
        "                self._rename(segment)\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "recovery believes what it has not flushed",
        RECOVERY,
        "        disk.fdatasync(segment.file)\n        first = SegmentReader",
        "        first = SegmentReader",
        sign=LOST_OR_BROKEN,
        by=(SIM_KILLS,),
        quick=False,
        also=(
            (JOURNAL, "                write_again(self._disk, segment.file, segment.end)\n", "                pass\n"),
        ),
    ),
    Mutant(
        "strong confirm before the flush",
        FLUSHES_OF_APPENDS,
        "if step.position > self._flushed_appends and (step.holds or outcome.ticket):",
        "if step.position < 0 and (step.holds or outcome.ticket):",
        sign=LOST,
    ),
    Mutant(
        "a flush on the loop that flushes nothing",
        FLUSHES_OF_APPENDS,
        "        took_s = self._store.sync_at_once()\n",
        "        took_s: float | None = 0.0\n",
        sign=LOST,
    ),
    Mutant(
        "a flush confirms what was appended while it ran",
        FLUSHES_OF_APPENDS,
        "            self._flushed_appends = covers\n",
        "            self._flushed_appends = self.appends\n",
        sign=r"a weak message confirmed \d+ ms ago is gone|" + LOST,
        by=(SIM_WEAK,),
    ),
    Mutant(
        "weak data without the timed flush",
        FLUSHES_OF_APPENDS,
        "        if self._weak_appends > self._flushed_appends:\n            self._begin()\n",
        "        if self._weak_appends > self._flushed_appends:\n            pass\n",
        sign=r"a weak message confirmed \d+ ms ago is gone",
        by=(SIM_WEAK,),
    ),
    Mutant(
        "compacted copy without its flush",
        "storage/lmdb/compaction.py",
        "            env.copy(str(folder), compact=True)\n        fsync_file(folder / DATA_FILE)\n",
        "            env.copy(str(folder), compact=True)\n",
        sign=STORE_GONE,
        quick=False,
    ),
    Mutant(
        "compacted store swapped in without a flush of the folder",
        "storage/lmdb/compaction.py",
        "    fsync_folder(layout.store)\n    remove_leftover(layout)\n",
        "    remove_leftover(layout)\n",
        sign=LOST_OR_BROKEN,
        quick=False,
    ),
    Mutant(
        "a restarted checkpointer believes what nobody flushed",
        "storage/lmdb/checkpoint/checkpointer.py",
        "        flush_again(RealDisk(), layout.store)\n",
        "",
        sign=LOST_OR_BROKEN,
        by=(SIM_KILLS,),
        quick=False,
    ),
    Mutant(
        "a restarted broker believes a commit that nobody flushed",
        "storage/lmdb/prepare.py",
        "    flush_again(RealDisk(), layout.store)\n",
        "",
        sign=LOST_OR_BROKEN,
        by=(SIM_KILLS,),
        quick=False,
    ),
    Mutant(
        "version file outlives the store's folder",
        "storage/lmdb/migration.py",
        "        fsync_folder(layout.store)\n        fsync_folder(layout.data_dir)\n",
        "",
        sign=STORE_GONE,
    ),
)

BELIEF = (
    Mutant(
        "no checksum of a journal record",
        SEGMENT,
        "        if google_crc32c.extend(google_crc32c.value(header[:4] + header[8:]), body) != crc:\n",
        "        if crc < 0:\n",
        sign=r"is not what was appended|is served with other bytes",
        by=(SIM, ROT),
    ),
    Mutant(
        "no epoch of a journal record",
        SEGMENT,
        "HEADER.size or header[8:16] != self._epoch:\n            return None\n        length, crc",
        "HEADER.size:\n            return None\n        length, crc",
        sign=r"is there twice|is not what was appended|is missing, \d+ is there",
    ),
    Mutant(
        "no continuity of lsns",
        RECOVERY,
        "    return segment.first_lsn <= chain.covered + 1\n",
        "    return True\n",
        sign=r"record \d+ is missing, \d+ is there",
    ),
    Mutant(
        "recovery skips the last record",
        RECOVERY,
        "                    if record.lsn > self._applied_lsn and record.type != MARK:\n",
        "                    if self._applied_lsn < record.lsn < self.last_lsn and record.type != MARK:\n",
        sign=r"the last record is \d+, recovery says \d+",
    ),
    Mutant(
        "damage passes for a torn tail",
        RECOVERY,
        "        return self.evidence_durable_lsn >= self.broken\n",
        "        return False\n",
        sign=r"were cut although record \d+ says that they were durable",
        by=(ROT,),
    ),
    Mutant(
        "a stage that is gone takes its blocks along",
        "storage/kvstore/blocks.py",
        "    if not has_lent:\n        kv.delete_range(own, keys.after(own))\n",
        "    kv.delete_range(own, keys.after(own))\n",
        sign=r"messages \d+ to \d+ of queue .* cannot be read \(it is missing\)",
        by=(ROT,),
        quick=False,
    ),
    Mutant(
        "no checksum of a stored value",
        "storage/kvstore/encoding.py",
        "    if crc != google_crc32c.extend(google_crc32c.value(key), body):\n",
        "    if crc < 0:\n",
        sign=r"is (served|loaded|read) all the same",
        by=(ROT,),
    ),
)

CHECKPOINTS = (
    Mutant(
        "segments are released before the checkpoint is durable",
        "storage/lmdb/checkpoint/schedule.py",
        "            self._ordered_lsn = goal\n            self._last_order_at = time.monotonic()\n",
        "            self._ordered_lsn = goal\n            self._applied(goal)\n",
        sign=LOST_OR_BROKEN,
    ),
    Mutant(
        "checkpoint notes one lsn too many",
        CHECKPOINT,
        "        self.state.lsn = record.lsn\n",
        "        self.state.lsn = record.lsn + 1\n",
        sign=r"which was never written|is missing, \d+ is there",
    ),
    Mutant(
        "checkpoint leaves the rows out",
        CHECKPOINT,
        "            arrivals.take(fact)\n",
        "            pass\n",
        sign=r"messages .* (cannot be read|are missing in)",
    ),
    Mutant(
        "dedup ids are not loaded",
        "storage/kvstore/store.py",
        "    state.queues[queue_id].dedup[dedup_id] = remembered(sequence, published_at)\n",
        "    pass\n",
        sign=r"\.dedup ",
    ),
    Mutant(
        "a letter that is gone stays in the index by queue",
        "storage/kvstore/dead/index.py",
        "        self._kv.delete(keys.dead_by_queue_key(queue_id, dead_id))\n",
        "",
        sign=r"index of dead letters",
    ),
    Mutant(
        "a group counts the letters that are gone",
        "storage/kvstore/dead/index.py",
        "        self.count -= 1\n",
        "",
        sign=r"index of dead letters",
    ),
)

STORE_ROOM = "storage/lmdb/store_room.py"
SQLITE = "storage/sqlite/provider.py"
NO_COMPACTION = ("storage/lmdb/upkeep.py", "        self._driver.compaction_wanted = wanted\n", "")
"""A store that is drained wholly has its disk back through that as well."""
NO_SHRINKING = (SQLITE, "                self._shrink(connection)\n", "")
STILL_FULL = r"drained.*refused after \d+ rounds of housekeeping"

DISKS = (
    Mutant(
        "pages that nothing uses are no room",
        STORE_ROOM,
        "        return 0 if pages is None else pages.for_values(value_bytes)\n",
        "        return 0\n",
        sign=STILL_FULL,
        by=(DRAINED_IN_PART,),
        quick=False,
    ),
    Mutant(
        "a store that was drained keeps the disk to itself, and its pages are no room",
        STORE_ROOM,
        "        return 0 if pages is None else pages.for_values(value_bytes)\n",
        "        return 0\n",
        sign=STILL_FULL,
        by=(DRAINED,),
        quick=False,
        also=(NO_COMPACTION,),
    ),
    Mutant(
        "pages that nothing uses in sqlite's file are no room",
        SQLITE,
        "        return page_bytes(self._open_connection())[1]\n",
        "        return 0\n",
        sign=STILL_FULL,
        by=(DRAINED_IN_PART._replace(aim="a store drained in part, sqlite"),),
        quick=False,
    ),
    Mutant(
        "a sqlite store that was drained keeps the disk to itself, and its pages are no room",
        SQLITE,
        "        return page_bytes(self._open_connection())[1]\n",
        "        return 0\n",
        sign=STILL_FULL,
        by=(DRAINED._replace(aim="a store drained wholly, sqlite"),),
        quick=False,
        also=(NO_SHRINKING,),
    ),
    Mutant(
        "the watermarks count what the file system has free, and nothing else",
        "storage/interface.py",
        "        return self.disk_free_bytes + self.reusable_bytes\n",
        "        return self.disk_free_bytes\n",
        sign=r"drained in part, it still refuses messages",
        by=(FULL_AGAIN,),
        quick=False,
    ),
    Mutant(
        "a full disk takes messages",
        "storage/local/ballast.py",
        "        if why and any(type(record) is MessagesAdded for record in records):\n",
        "        if self._wanted < 0:\n",
        sign="it takes messages without a ballast",
        by=(NO_BALLAST,),
        quick=False,
    ),
    Mutant(
        "the journal leaves no room for a checkpoint",
        SEGMENT_POOL,
        "        if free < need:\n",
        "        if free < 0:\n",
        sign="messages alone have cost the ballast",
        by=(MESSAGES_ALONE,),
        quick=False,
    ),
    Mutant(
        "nothing is kept for opening a full sqlite store",
        "storage/sqlite/provider.py",
        "            self._start_room.release()\n            state = self._open_on_the_ballast()\n",
        "            state = self._open_on_the_ballast()\n",
        sign="on a full disk it does not open after a drain",
        by=(OPENED_AFTER_A_DRAIN,),
        quick=False,
    ),
    Mutant(
        "a repair makes up all dead letters but the first",
        "storage/kvstore/salvage.py",
        "            self._put_dead(entry)\n        self._make_up_dead(promised)\n",
        "            if not self._entries:\n                self._put_dead(entry)\n"
        "        self._make_up_dead(promised)\n",
        sign="repair of a sound store changes",
        by=(ROT,),
        quick=False,
    ),
    Mutant(
        "batches behind a damaged frame of sqlite's log are not missed",
        "storage/sqlite/recovery.py",
        "    if found is None or found >= noted:\n",
        "    if noted:\n",
        sign=r"vibemq\.sqlite-wal.*nobody says so",
        by=(ROT,),
        quick=False,
    ),
    Mutant(
        "a failed fdatasync is tried again",
        JOURNAL,
        "            for segment in dirty:\n                self._disk.fdatasync(segment.file)\n",
        "            for segment in dirty:\n                try:\n"
        "                    self._disk.fdatasync(segment.file)\n                except OSError:\n"
        "                    self._disk.fdatasync(segment.file)\n",
        sign=r"exit code 0 after a failed sync|was sent after the error, and confirmed",
        by=(FAILED_FLUSH,),
        quick=False,
    ),
)
