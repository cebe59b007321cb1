"""Every way in which the product is broken on purpose, and who must notice.

A mutant is one replacement of text; the text must stand in the file exactly once, so a mutant that no longer fits the
source fails loudly instead of proving nothing.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    """Below `vibemq/`."""
    old: str
    new: str
    methods: tuple[str, ...] = ("sim-disk",)
    """Who must catch it; the first that does is named."""
    quick: bool = True
    """Caught within a few seconds, so fit for the short form."""
    seconds: float = 240.0
    """What each method may take."""


JOURNAL = "storage/lmdb/journal.py"
RECOVERY = "storage/lmdb/recovery.py"
SEGMENT = "storage/lmdb/segment.py"
COMMITTER = "server/committer.py"
CHECKPOINT = "storage/lmdb/checkpoint.py"

FLUSHES = (
    Mutant(
        "strong path without its fdatasync",
        JOURNAL,
        "                for segment in dirty:\n                    self._disk.fdatasync(segment.file)\n",
        "                for segment in dirty:\n                    pass\n",
    ),
    Mutant(
        "only the newest segment is flushed",
        JOURNAL,
        "                dirty = list(self._dirty.values())\n",
        "                dirty = list(self._dirty.values())[-1:]\n",
    ),
    Mutant(
        "a flush claims what came while it ran",
        JOURNAL,
        "            self._durable_lsn = target\n",
        "            self._durable_lsn = self._last_lsn\n",
    ),
    Mutant(
        "new segment without a flush of the folder",
        JOURNAL,
        "            self._disk.rename(path + NEW_SUFFIX, path)\n            self._disk.fsync_dir(self._folder)\n",
        "            self._disk.rename(path + NEW_SUFFIX, path)\n",
    ),
    Mutant(
        "recycled segment without a flush of the folder",
        JOURNAL,
        "                self._rename(segment)\n                self._disk.fsync_dir(self._folder)\n",
        "                self._rename(segment)\n",
    ),
    Mutant(
        "recovery believes what it has not flushed",
        RECOVERY,
        "    disk.fdatasync(segment.file)\n    for record in",
        "    for record in",
        quick=False,
    ),
    Mutant(
        "strong confirm before the flush",
        COMMITTER,
        "if durability is Durability.STRONG and waits and step.position > self._flushed_appends:",
        "if durability is Durability.STRONG and waits and step.position < 0:",
    ),
    Mutant(
        "a flush confirms what was appended while it ran",
        COMMITTER,
        "            self._flushed_appends = covers\n",
        "            self._flushed_appends = self._appends\n",
    ),
    Mutant(
        "weak data without the timed flush",
        COMMITTER,
        "        if self._weak_appends > self._flushed_appends:\n            self._flush()\n",
        "        if self._weak_appends > self._flushed_appends:\n            pass\n",
    ),
    Mutant(
        "compacted copy without its flush",
        "storage/lmdb/backup.py",
        "            env.copy(str(folder), compact=True)\n        fsync_file(folder / DATA_FILE)\n",
        "            env.copy(str(folder), compact=True)\n",
        quick=False,
    ),
    Mutant(
        "compacted store swapped in without a flush of the folder",
        "storage/lmdb/backup.py",
        "    os.rename(folder / DATA_FILE, layout.data_file)\n    fsync_folder(layout.store)\n",
        "    os.rename(folder / DATA_FILE, layout.data_file)\n",
        quick=False,
    ),
    Mutant(
        "a restarted checkpointer believes what nobody flushed",
        "storage/lmdb/checkpointer.py",
        "        env.sync(True)\n",
        "",
        quick=False,
    ),
    Mutant(
        "a restarted broker believes a commit that nobody flushed",
        "storage/lmdb/opening.py",
        "    fsync_file(layout.data_file)\n",
        "",
        quick=False,
    ),
    Mutant(
        "version file outlives the store's folder",
        "storage/lmdb/migration.py",
        "        fsync_folder(layout.store)\n        fsync_folder(layout.data_dir)\n",
        "",
    ),
)

BELIEF = (
    Mutant(
        "no checksum of a journal record",
        SEGMENT,
        "        if google_crc32c.extend(google_crc32c.value(header[:4] + header[8:]), body) != crc:\n",
        "        if crc < 0:\n",
        ("sim-disk", "bit-rot"),
    ),
    Mutant(
        "no epoch of a journal record",
        SEGMENT,
        "HEADER.size or header[8:16] != self._epoch:\n            return None\n        length, crc",
        "HEADER.size:\n            return None\n        length, crc",
    ),
    Mutant(
        "no continuity of lsns",
        RECOVERY,
        "    return segment.first_lsn <= chain.covered + 1\n",
        "    return True\n",
    ),
    Mutant(
        "recovery skips the last record",
        RECOVERY,
        "                    if record.lsn > self._applied_lsn and record.type != MARK:\n",
        "                    if self._applied_lsn < record.lsn < self.last_lsn and record.type != MARK:\n",
    ),
    Mutant(
        "damage passes for a torn tail",
        RECOVERY,
        "        return self.evidence_durable_lsn >= self.broken\n",
        "        return False\n",
        ("bit-rot",),
    ),
    Mutant(
        "no checksum of a stored value",
        "storage/encoding.py",
        "    if crc != google_crc32c.extend(google_crc32c.value(key), body):\n",
        "    if crc < 0:\n",
        ("bit-rot",),
    ),
)

CHECKPOINTS = (
    Mutant(
        "segments are released before the checkpoint is durable",
        "storage/lmdb/driver.py",
        "            self._ordered_lsn = goal\n            self._last_order_at = time.monotonic()\n",
        "            self._ordered_lsn = goal\n            self._applied(goal)\n",
    ),
    Mutant(
        "checkpoint notes one lsn too many",
        CHECKPOINT,
        "        self.state.lsn = record.lsn\n",
        "        self.state.lsn = record.lsn + 1\n",
    ),
    Mutant(
        "checkpoint leaves the rows out",
        CHECKPOINT,
        "            if type(fact) is MessagesAdded:\n                added.append(fact)\n",
        "            pass\n",
    ),
    Mutant(
        "dedup ids are not loaded",
        "storage/kv.py",
        "    state.queues[queue_id].dedup[dedup_id] = (sequence, published_at)\n",
        "    pass\n",
    ),
)

FACTS = (
    Mutant(
        "one batch in several records",
        "storage/lmdb/provider.py",
        "            position = self._write(durable) if durable else None\n",
        "            for one in durable[:-1]:\n                self._write([one])\n"
        "            position = self._write(durable[-1:]) if durable else None\n",
    ),
    Mutant(
        "a dead letter moves as two facts",
        "engine/leaving.py",
        "    turn.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
        "    turn.note_settled(queue, group, [(f.sequence, f.sequence) for f in letters])\n"
        "    turn.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
    ),
    Mutant(
        "an acked message is not removed",
        "storage/state.py",
        "    for group in groups:\n        for run in record.runs:\n            _settle(queue, group, run, dirty)\n"
        "    messages.may_have_left(queue, record.runs, dirty)\n\n\ndef _dropped",
        "    messages.may_have_left(queue, record.runs, dirty)\n\n\ndef _dropped",
        ("sim-disk", "engine-sim"),
    ),
    Mutant(
        "the dedup window is not restored",
        "engine/restore.py",
        "    queue.dedup = young\n",
        "    queue.dedup = {}\n",
        ("sim-disk", "engine-sim"),
    ),
    Mutant(
        "the sequence counter is restored one too low",
        "engine/restore.py",
        "    queue.next_sequence = stored.next_sequence\n",
        "    queue.next_sequence = max(1, stored.next_sequence - 1)\n",
        ("sim-disk", "engine-sim"),
    ),
)

ENGINE = (
    Mutant(
        "a new owner does not fence the old one",
        "engine/groups.py",
        "        end_consumers(turn, queue, group.name, fenced, but_session=command.session)\n",
        "",
        ("engine-sim",),
    ),
    Mutant(
        "a group's epoch stays when it is taken over",
        "engine/fanout.py",
        "    group.epoch += 1\n",
        "",
        ("engine-sim",),
    ),
    Mutant(
        "an ack of somebody else's delivery counts",
        "engine/settle.py",
        "        held = _take(consumer, command.runs)\n",
        "        held = _take(consumer, command.runs) or [\n"
        "            run for other in consumer.group.consumers for run in _take(other, command.runs)\n        ]\n",
        ("engine-sim",),
    ),
    Mutant(
        "a delivery's deadline is ignored",
        "engine/settle.py",
        "    overdue = consumer.held.due(turn.now)\n    if not overdue:\n",
        "    overdue = consumer.held.due(turn.now)\n    if overdue or not overdue:\n",
        ("engine-sim",),
    ),
    Mutant(
        "a returned message goes to the tail",
        "engine/failing.py",
        "        group.ready.add(first, last)\n    turn.touch(queue, group)\n    part_with(",
        "        for sequence in range(first, last + 1):\n            group.later.add(sequence, turn.now + 1)\n"
        "            state.arm(queue, turn.now + 1)\n    turn.touch(queue, group)\n    part_with(",
        ("engine-sim",),
    ),
    Mutant(
        "a message's end is ignored",
        "engine/expiry.py",
        "def expire(",
        "def expire(*_: object) -> None:\n    return\n\n\ndef _expire(",
        ("engine-sim",),
    ),
)

OTHERS = (
    Mutant(
        "a full disk takes messages",
        "storage/ballast.py",
        "        if self.missing and any(type(record) is MessagesAdded for record in records):\n",
        "        if self._wanted < 0:\n",
        ("inject",),
        quick=False,
        seconds=900.0,
    ),
    Mutant(
        "the journal leaves no room for a checkpoint",
        JOURNAL,
        "        if free < size + kept:\n",
        "        if free < 0:\n",
        ("inject",),
        quick=False,
        seconds=900.0,
    ),
    Mutant(
        "a failed fdatasync is tried again",
        JOURNAL,
        "                for segment in dirty:\n                    self._disk.fdatasync(segment.file)\n",
        "                for segment in dirty:\n                    try:\n"
        "                        self._disk.fdatasync(segment.file)\n                    except OSError:\n"
        "                        self._disk.fdatasync(segment.file)\n",
        ("inject",),
        quick=False,
        seconds=900.0,
    ),
)

MUTANTS = FLUSHES + BELIEF + CHECKPOINTS + FACTS + ENGINE + OTHERS
