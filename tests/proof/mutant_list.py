"""Every way in which the product is broken on purpose, and who must notice.

A mutant is one replacement of text, or several; each text must stand in its file exactly once, so a mutant that no
longer fits the source fails loudly instead of proving nothing.
"""

from dataclasses import dataclass
from typing import NamedTuple


class Catcher(NamedTuple):
    """A method that must notice a mutant, and where it looks first."""

    method: str
    aim: str = ""
    """See `Budget.aim`."""
    seed: int = 1
    """One that shows it soon; where time is left, others follow."""
    cases: int = 10_000_000
    seconds: float = 120.0


SIM = Catcher("sim-disk")
SIM_WEAK = Catcher("sim-disk", seed=6)
SIM_KILLS = Catcher("sim-disk", aim="kill", seed=7)
"""Brokers that are killed and leave something in the page cache for the next start to believe, until the power goes."""
ENGINE_SIM = Catcher("engine-sim", seconds=30.0)
CHAOS_SIM = Catcher("engine-sim", aim="chaos", seconds=30.0)
SELECTOR_SIM = Catcher("engine-sim", aim="selectors", seconds=90.0)
LIFETIME_SIM = Catcher("engine-sim", aim="lifetimes", seconds=30.0)
ROT = Catcher("bit-rot", cases=2_000, seconds=60.0)
USERS = Catcher("users", seconds=240.0)
NO_BALLAST = Catcher("inject", aim="no ballast, lmdb", seconds=60.0)
MESSAGES_ALONE = Catcher("inject", aim="messages alone, lmdb", seconds=120.0)
OPENED_AFTER_A_DRAIN = Catcher("inject", aim="opened after a drain, sqlite", seconds=120.0)
FAILED_FLUSH = Catcher("inject", aim=r"lmdb from nothing: EIO AFTER SYNC \d+ of the BROKER", seconds=120.0)


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    file: str
    """Below `vibemq/`."""
    old: str
    new: str
    sign: str
    """What the finding must say, a regular expression: the harm that this mutant does, and no other."""
    by: tuple[Catcher, ...] = (SIM,)
    """Who must catch it, the quickest first; the first that does is named."""
    quick: bool = True
    """Caught within a few seconds, so fit for the short form."""
    also: tuple[tuple[str, str, str], ...] = ()
    """Further replacements, (file, old, new), where each alone does no harm: another one makes up for it."""

    @property
    def replacements(self) -> tuple[tuple[str, str, str], ...]:
        return ((self.file, self.old, self.new), *self.also)


LOST = r"^Lost: "
LOST_OR_BROKEN = LOST + r"|^StorageDamaged: journal record \d+ is (broken although it was durable|there twice)"
"""What was confirmed is not there, or recovery itself says that it ought to be."""
STORE_GONE = r"^StorageDamaged: (no valid LMDB header|the file is missing or empty) in /data/store/data\.mdb"

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
        "    os.rename(folder / DATA_FILE, layout.data_file)\n    fsync_folder(layout.store)\n",
        "    os.rename(folder / DATA_FILE, layout.data_file)\n",
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

FACTS = (
    Mutant(
        "one batch in several records",
        "storage/lmdb/provider.py",
        "            position = self._writer.write(durable) if durable else None\n",
        "            for one in durable[:-1]:\n                self._writer.write([one])\n"
        "            position = self._writer.write(durable[-1:]) if durable else None\n",
        sign=r"leave the DLQ in a batch that adds 0 messages|is not what its records make|dead letters",
    ),
    Mutant(
        "a dead letter moves as two facts",
        "engine/handlers/dead_lettering.py",
        "    step.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
        "    step.note_settled(queue, group, [(f.sequence, f.sequence) for f in letters])\n"
        "    step.note(DeadLettered(queue.queue_id, group.group_id, letters), heavy(queue))\n",
        sign=r"settled, though nobody acknowledged them",
    ),
    Mutant(
        "an acked message is not removed",
        "storage/state/reducer.py",
        "    for group in groups:\n"
        "        if len(record.runs) > 1 and _settle_unheard(queue, group, record.runs, dirty):\n"
        "            continue\n        for run in record.runs:\n            _settle(queue, group, run, dirty)\n",
        "",
        sign=r"too many|group\.unsettled_set",
        by=(ENGINE_SIM, SIM),
    ),
    Mutant(
        "the dedup window is not restored",
        "engine/recovery.py",
        "        if published_at >= oldest:\n",
        "        if published_at < 0:\n",
        sign=r"forgot dedup ids|was published twice",
    ),
    Mutant(
        "the sequence counter is restored one too low",
        "engine/recovery.py",
        "    queue.next_sequence = stored.next_sequence\n",
        "    queue.next_sequence = max(1, stored.next_sequence - 1)\n",
        sign=r"would be given again|is given again|first_sequence == self.first_seen",
        by=(ENGINE_SIM, SIM),
    ),
)

ACCOUNTS = "engine/handlers/accounts.py"
EARLY_ANSWER = (
    "    step.answer_standing(command, AccountsChanged(len(command.records)), Durability.STRONG)\n",
    "    step.answer_standing(command, AccountsChanged(len(command.records)), Durability.ASYNC)\n",
)

USER_CHANGES = (
    Mutant(
        "a change of users is answered before its flush",
        ACCOUNTS,
        *EARLY_ANSWER,
        sign=LOST,
    ),
    Mutant(
        "a change of users that a full disk refuses has been answered",
        ACCOUNTS,
        *EARLY_ANSWER,
        sign=r"user-\d+ was answered with True",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "an answer that stands does not wait for what is owed",
        "engine/failures/answers.py",
        "        state.owed_answers.append(reply)\n",
        "        pass\n",
        sign=r"user-\d+ was answered with True",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a checkpoint leaves a removed token where it is",
        "storage/kvstore/store.py",
        "    for token_id in dirty.tokens:\n",
        "    for token_id in dirty.tokens & state.tokens.keys():\n",
        sign=r"^Resurrected: token ",
    ),
    Mutant(
        "the tokens of a removed user stay",
        "operations/users.py",
        "            gone: list[AccountRecord] = [TokenRemoved(token_id) for token_id in "
        "self._accounts.tokens_of(user.name)]\n",
        "            gone: list[AccountRecord] = []\n",
        sign=r"is None with tokens \[",
        by=(USERS,),
        quick=False,
    ),
    Mutant(
        "an operator is answered while the record is on its way",
        "operations/users.py",
        "        await self._local.ask(lambda session, token: ChangeAccounts(session, token, list(records)))\n",
        "        asyncio.get_running_loop().call_later(\n"
        "            0.2, lambda: setattr(self, '_late', asyncio.ensure_future(\n"
        "                self._local.ask(lambda session, token: ChangeAccounts(session, token, list(records))))))\n",
        sign=r"known State|known None",
        by=(USERS,),
        quick=False,
    ),
)

JOBS = (
    Mutant(
        "a checkpoint leaves out what a job has done",
        "storage/kvstore/store.py",
        "    for job_id in dirty.jobs:\n",
        "    for job_id in dirty.jobs - state.jobs.keys():\n",
        sign=r"job \d+ is ",
    ),
    Mutant(
        "a job's account is not in the batch of its letters",
        "engine/handlers/jobs/advancing.py",
        "        step.note(record, need)\n",
        "        (step.note(record, need) if not done else state.owed_behind.append(record))\n",
        sign=r"disk\.jobs == self\.engine\.jobs",
        by=(CHAOS_SIM,),
        quick=False,
    ),
    Mutant(
        "a full disk takes back what a transient queue has confirmed",
        "engine/engine.py",
        "            if added.promised:\n",
        "            if added.promised and added.hidden is not None:\n",
        sign=r"were confirmed and are gone",
        by=(CHAOS_SIM._replace(seconds=120.0),),
        quick=False,
    ),
    Mutant(
        "a step that a full disk refused is counted",
        "engine/engine.py",
        "        for undo in outcome.undo:\n",
        "        for undo in outcome.undo[:0]:\n",
        sign=r"disk\.jobs == self\.engine\.jobs",
        by=(CHAOS_SIM,),
        quick=False,
    ),
)

ENGINE = (
    Mutant(
        "a new owner does not fence the old one",
        "engine/handlers/groups.py",
        "        end_consumers(step, queue, group.name, _fenced(queue, group), but_session=command.session)\n",
        "",
        sign=r"were not fenced",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "the last step of a purge does not wait for the flush of those before",
        "engine/handlers/queues.py",
        "    return heavy(queue) if count else light(queue)\n",
        "    return light(queue)\n",
        sign=r"^Lost: ",
        quick=False,
    ),
    Mutant(
        "a group's epoch stays when it is taken over",
        "engine/handlers/fan_out.py",
        "    group.epoch += 1\n",
        "",
        sign=r"epoch \d+ after \d+ owners",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "an ack of somebody else's delivery counts",
        "engine/handlers/settle.py",
        "    held = _take(consumer, runs)\n",
        "    held = _take(consumer, runs) or [\n"
        "        run for other in consumer.group.consumers for run in _take(other, runs)\n    ]\n",
        sign=r"out of order|compare: |settle",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a delivery's deadline is ignored",
        "engine/handlers/settle.py",
        "    overdue = consumer.unacked.due(step.now, max(1, STEP_UNITS - step.work))\n    if not overdue:\n",
        "    overdue = consumer.unacked.due(step.now, 1)\n    if overdue or not overdue:\n",
        sign=r"compare: .*in_flight",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a returned message goes to the tail",
        "engine/handlers/requeue.py",
        "        group.ready.add(first, last)\n    step.touch(queue, group)\n    remove_from_group(",
        "        for sequence in range(first, last + 1):\n            group.delayed.add(sequence, step.now + 1)\n"
        "            state.arm(queue, step.now + 1)\n    step.touch(queue, group)\n    remove_from_group(",
        sign=r"compare: .*delayed",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a message that falls due takes its place by its sequence",
        "engine/queue/scheduled.py",
        "and fallen[index][0] < published_at:\n",
        "and fallen[index][1] < first:\n",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "what was published before and after a message fell due is taken for one",
        "engine/queue/queue.py",
        "        passed = upcoming.pass_by(",
        "        passed = not upcoming.pass_by(",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a store takes what was published before and after a message fell due for one",
        "storage/state/messages.py",
        "        and not record.apart\n",
        "",
        sign=r"out of order|others were due before",
        by=(ENGINE_SIM,),
    ),
    Mutant(
        "a message's end is ignored",
        "engine/handlers/expiry.py",
        "def expire(",
        "def expire(*_: object) -> None:\n    return\n\n\ndef _expire(",
        sign=r"out of order|compare: ",
        by=(ENGINE_SIM,),
    ),
)

SHARE = "engine/queue/share.py"

SHARED_CAPACITY = (
    Mutant(
        "a share does not count what was settled",
        SHARE,
        "            self._note(self.count - count, self.size - size)\n        return taken\n",
        "            pass\n        return taken\n",
        sign=r"its members hold",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody in line is called when a share has room",
        SHARE,
        "        if count < 0 or size < 0:\n            self.call()\n",
        "",
        sign=r"has room, and nobody is called",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "a share goes on when its last member has left",
        "engine/queue/consumer.py",
        "        if not share.members and self.shares.get(share.name) is share:\n",
        "        if not share.members and self.shares.get(share.name) is None:\n",
        sign=r"has no members and is kept",
        by=(CHAOS_SIM,),
    ),
)

SELECTORS = (
    Mutant(
        "a message that comes back is not looked at again",
        "engine/queue/routing/sifted.py",
        "        super().add(first, last)\n        self.fresh.add(NORMAL, first, last)\n",
        "        super().add(first, last)\n        if first < last:\n            self.fresh.add(NORMAL, first, last)\n",
        sign=r"waits in vain",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "what comes after a message that matches is taken to match, too",
        "engine/queue/routing/routes.py",
        "                found.setdefault(place, []).append((first, last))\n",
        "                found.setdefault(place, []).append((first, last + 1))\n",
        sign=r"is not what .* wants",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a full consumer is not asked again about what it was not told",
        "engine/queue/routing/routes.py",
        "            elif question.late is None or question.late is line:\n",
        "            elif question.late is line:\n",
        sign=r"waits in vain",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "what is known is not looked at again for a higher priority that comes",
        "engine/queue/routing/routes.py",
        "                if above - before:\n",
        "                if before - above:\n",
        sign=r"is given to .* is above it",
        by=(SELECTOR_SIM._replace(seed=2),),
    ),
    Mutant(
        "an answer about the filter before settles what the new one matches",
        "engine/queue/routing/routes.py",
        "        self.where = where\n        self._drop_question()\n",
        "        self.where = where\n",
        sign=r"although it matches the filter|is not what the filter .* matches|wait in vain in a group whose filter",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a filter is gone after a restart",
        "engine/recovery.py",
        "        group.filter_by(Selector.parse(stored.where))\n",
        "",
        sign=r"the filter is not the one that is kept",
        by=(SELECTOR_SIM,),
    ),
    Mutant(
        "a message that has failed holds up nobody",
        "engine/routing/isolated.py",
        "    if until < END and step.now < until:\n",
        "    if until < step.now:\n",
        sign=r"has failed \d+ times and comes back after \d+ ms",
        by=(SELECTOR_SIM,),
    ),
)

REQUESTS = (
    Mutant(
        "a request that was answered still waits",
        "engine/requests/answering.py",
        "    state.requests.forget(waiting)\n",
        "",
        sign=r"request \d+ has ended twice",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody hears of a request that became a dead letter",
        "engine/handlers/dead_lettering.py",
        "        fail_sequences(queue, group, doomed, reason, error)\n",
        "        for sequence in doomed:\n            if sequence in queue.requests:\n"
        "                queue.requests[sequence].table.forget(queue.requests[sequence])\n",
        sign=r"requests without an end",
        by=(CHAOS_SIM,),
    ),
    Mutant(
        "nobody hears that a request's time has passed",
        "engine/requests/asking.py",
        "        step.effects.append(_told(waiting, overdue(waiting)))\n",
        "        overdue(waiting)\n",
        sign=r"requests without an end",
        by=(CHAOS_SIM,),
    ),
)

LIFETIME = "engine/lifetime.py"
DEPARTURE = "engine/departure.py"

LIFETIMES = (
    Mutant(
        "publishing keeps a queue that nobody reads",
        DEPARTURE,
        "        ask.CreateQueue,\n        ask.ChangeQueue,\n",
        "        ask.Publish,\n        ask.CreateQueue,\n        ask.ChangeQueue,\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a queue goes before it has had a consumer",
        LIFETIME,
        "    if queue.attended and options.auto_delete:\n",
        "    if options.auto_delete:\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "the consumers under which auto_delete was set do not count",
        "engine/handlers/queues.py",
        "    if queue.attendant_count:\n",
        "    if False:\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue outlives a restart",
        LIFETIME,
        "    if queue.options.exclusive:\n        doom(state, queue, Departure.EXCLUSIVE)\n    elif",
        "    if",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue outlives its connection",
        "engine/handlers/subscribe.py",
        "    step = yield from lifetime.doom_with(state, step, session)\n",
        "",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "an exclusive queue is open to others",
        LIFETIME,
        "        raise QueueExclusive(queue.name)\n",
        "        return\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a restart forgets that a queue has had a consumer",
        "engine/recovery.py",
        "    queue.attended = stored.attended\n",
        "",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
    Mutant(
        "a start does not begin the time of a queue anew",
        "engine/recovery.py",
        "            lifetime.begin(state, queue, step.now)\n",
        "            lifetime.begin(state, queue, queue.created_at)\n",
        sign=r"lifetimes: ",
        by=(LIFETIME_SIM,),
    ),
)

OTHERS = (
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

MUTANTS = (
    FLUSHES
    + BELIEF
    + CHECKPOINTS
    + FACTS
    + USER_CHANGES
    + JOBS
    + ENGINE
    + SHARED_CAPACITY
    + SELECTORS
    + REQUESTS
    + LIFETIMES
    + OTHERS
)
