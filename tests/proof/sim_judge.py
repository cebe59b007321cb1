"""One image of a crashed disk, recovered with the product's own code and held against the ledger.

Every image: the version file, the store's snapshot, `Journal.open`, every record compared byte by byte with what was
appended. Images that agree in (snapshot, last lsn) hold the same store from then on, so what follows is done once for
each such pair: the whole provider is opened, its state, messages, dead letters and the restored engine are compared
with two models, and the engine is probed for sequences and dedup ids.
"""

import random
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.proof.copied_state import copy_state
from tests.proof.letter_index import index_differences
from tests.proof.sim_files import Machine, migrate_if_old, path_on
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import DATA_FILE, Book, snapshot_number
from tests.proof.sim_naive import Broken, NaiveQueue, keeps_nothing
from tests.proof.sim_world import DATA_DIR, Sizes, new_provider
from vibemq.engine import Engine, EngineSettings
from vibemq.errors import VibeMQError
from vibemq.model.commands import Publish
from vibemq.model.effects import Published, Reply
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import Durability
from vibemq.model.rows import Rows, pack_row
from vibemq.model.stored import StoredState
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.dead.index_audit import audit_index
from vibemq.storage.kvstore.encoding import unseal
from vibemq.storage.kvstore.values import unpack_meta
from vibemq.storage.lmdb.environment.tables import reading
from vibemq.storage.lmdb.journal.journal import Journal
from vibemq.storage.lmdb.provider import LmdbProvider
from vibemq.storage.state.reducer import restart_transient
from vibemq.testing.sim_disk import SimDisk

JOURNAL = f"{DATA_DIR}/journal"
STORE_FILE = f"{DATA_DIR}/store.json"
STORE = f"{DATA_DIR}/store/{DATA_FILE}"
READ_BYTES = 1 << 30
STEPS_ON_MAX = 14


class Verdict(NamedTuple):
    last_lsn: int
    weak_lost_since_s: float | None
    """When the oldest confirmed weak message that is gone was confirmed."""


class Lost(Broken):
    """A confirmed message is gone."""


class Resurrected(Broken):
    """Something came back that was gone, or that never was."""


class Judge:
    """Judges the images of one run."""

    def __init__(self, book: Book, ledger: Ledger, machine: Machine, sizes: Sizes) -> None:
        self._book = book
        self._ledger = ledger
        self._machine = machine
        self._sizes = sizes
        self._ready = b""
        self._sound: set[tuple[int, int, int]] = set()
        self._applied: dict[int, int] = {}
        self.deep = 0
        """Images whose whole store was compared."""

    def image(self, make: Callable[[], SimDisk], now_ms: int, *, killed: bool = False) -> Verdict:
        """Raise Broken, or whatever the product raises, when the image does not keep its promises.

        Args:
            make: the image afresh at every call; recovery changes what it recovers.
            killed: the process died and the machine did not, so everything written must be there.
        """
        disk = make()
        with self._aside(disk):
            ready = disk.exists(STORE_FILE) and disk.content(STORE_FILE) == self._ready
            if not ready:
                return self._verdict(self._whole(disk, now_ms, None), killed)
            number = snapshot_number(disk.content(STORE), STORE)
            last_lsn = self._journal(disk, self._applied_lsn(number))
        verdict = self._verdict(last_lsn, killed)
        pair = (self._ledger.life, number, last_lsn)
        if pair not in self._sound:
            again = make()
            with self._aside(again):
                self._whole(again, now_ms, last_lsn)
            self._sound.add(pair)
        return verdict

    def goes_on(self, disk: SimDisk, rng: random.Random) -> int:
        """Recover, append, crash again, recover: what a later start finds is a prefix of the two histories.

        As many records are appended as were lost, one by one: whatever the lost ones left on the disk, there comes a
        moment at which its lsn would be the next.

        Returns:
            how many second crashes were judged.
        """
        with self._aside(disk):
            if not disk.exists(STORE_FILE) or disk.content(STORE_FILE) != self._ready:
                return 0
            applied = self._applied_lsn(snapshot_number(disk.content(STORE), STORE))
            journal, report = self._open(disk, applied)
            bodies = {record.lsn: record.body for record in report}
            durable = report.last_lsn
            lost = self._ledger.last_lsn - durable
            crashes = 0
            for left in reversed(range(min(max(lost + 1, rng.randint(1, 4)), STEPS_ON_MAX))):
                body = rng.randbytes(rng.choice((5, 5, 200, 600, 3_000)))
                bodies[journal.append([body]).lsn] = body
                if rng.random() < 0.3:
                    durable = journal.sync()
                if not left or rng.random() < 0.4:
                    self._second(disk.crash(rng), applied, bodies, durable)
                    crashes += 1
            return crashes

    def _second(self, after: SimDisk, applied: int, bodies: dict[int, bytes], durable: int) -> None:
        _, report = self._open(after, applied)
        if report.last_lsn < durable:
            raise Lost(f"after a second crash record {durable} is gone, the last is {report.last_lsn}")
        for record in report:
            if bodies.get(record.lsn) != record.body:
                raise Resurrected(f"after a second crash record {record.lsn} is not what was appended")

    @contextmanager
    def _aside(self, disk: SimDisk) -> Any:
        machine = self._machine
        link, upkeep = machine.new_link, machine.new_upkeep
        machine.new_link, machine.new_upkeep = lambda *_, **__: _Nobody(), lambda work: _Nobody()
        try:
            with machine.at(disk):
                yield
        finally:
            machine.new_link, machine.new_upkeep = link, upkeep

    def note_ready(self, disk: SimDisk) -> None:
        """The store is made: its version file looks like this from now on."""
        self._ready = disk.content(STORE_FILE)

    def _applied_lsn(self, number: int) -> int:
        if number not in self._applied:
            state, value = StoredState(), self._book.snapshots[number].values.get(keys.STATE_META)
            if value is not None:
                unpack_meta(state, unseal(keys.STATE_META, value, STORE))
            self._applied[number] = state.lsn
        return self._applied[number]

    def _open(self, disk: SimDisk, applied_lsn: int) -> Any:
        return Journal.open(disk, JOURNAL, segment_bytes=self._sizes.segment_bytes, applied_lsn=applied_lsn)

    def _journal(self, disk: SimDisk, applied_lsn: int) -> int:
        _, report = self._open(disk, applied_lsn)
        bodies, expected = self._ledger.bodies, applied_lsn
        for record in report:
            expected += 1
            if record.lsn != expected:
                raise Broken(f"record {expected} is missing, {record.lsn} is there")
            if bodies.get(record.lsn) != record.body:
                raise Resurrected(f"record {record.lsn} is not what was appended")
        if report.last_lsn != expected:
            raise Broken(f"the last record is {expected}, recovery says {report.last_lsn}")
        return expected

    def _verdict(self, last_lsn: int, killed: bool) -> Verdict:
        ledger = self._ledger
        if last_lsn < ledger.floor:
            raise Lost(f"record {ledger.floor} was confirmed, the last one is {last_lsn}")
        if killed and last_lsn < ledger.written_lsn:
            raise Lost(f"record {ledger.written_lsn} was written before a kill, the last one is {last_lsn}")
        if killed and (lost := ledger.position_lost(last_lsn)):
            raise Lost(lost)
        return Verdict(last_lsn, ledger.oldest_weak_lost(last_lsn))

    # -- the whole store ------------------------------------------------------------------------------------------

    def _whole(self, disk: SimDisk, now_ms: int, last_lsn: int | None) -> int:
        self.deep += 1
        data_dir: Any = path_on(disk, self._book, DATA_DIR)
        migrate_if_old(data_dir)
        provider = new_provider(data_dir, self._sizes, lambda: now_ms)
        state = provider.open()
        if last_lsn is not None and state.lsn != last_lsn:
            raise Broken(f"the provider is at record {state.lsn}, its journal at {last_lsn}")
        if state.lsn not in self._ledger.naive:
            raise Broken(f"the store is at record {state.lsn}, which was never written")
        self._compare_accounts(state)
        self._compare_jobs(state)
        self._compare_state(state, now_ms)
        self._compare_messages(provider, state.lsn)
        self._compare_engine(state, now_ms)
        return state.lsn

    def _compare_state(self, opened: StoredState, now_ms: int) -> None:
        expected = copy_state(self._ledger.reduced[opened.lsn])
        restart_transient(expected, now_ms)
        if opened.next_dead_id < expected.next_dead_id:
            raise Broken(f"dead id {opened.next_dead_id} would be given again")
        found = copy_state(opened)
        for state in (found, expected):
            state.instant = state.next_dead_id = 0
            for queue in state.queues.values():
                if queue.options.durability is Durability.TRANSIENT:
                    queue.next_sequence = 0
                    for group in queue.groups.values():
                        group.head = 0
        if found != expected:
            what = _differences(found, expected)
            raise Broken(f"the state at record {opened.lsn} is not what its records make: {what}")

    def _compare_accounts(self, opened: StoredState) -> None:
        naive = self._ledger.naive[opened.lsn]
        pairs: tuple[tuple[str, Mapping[str, object], Mapping[str, object]], ...] = (
            ("user", opened.users, naive.users),
            ("token", opened.tokens, naive.tokens),
        )
        for what, found, meant in pairs:
            if missing := meant.keys() - found.keys():
                raise Lost(f"{what} {min(missing)} is gone at record {opened.lsn}")
            if found != meant:
                wrong = min(name for name in found if found[name] != meant.get(name))
                raise Resurrected(f"{what} {wrong} is {found[wrong]} at record {opened.lsn}, not {meant.get(wrong)}")

    def _compare_jobs(self, opened: StoredState) -> None:
        naive = self._ledger.naive[opened.lsn].jobs
        if missing := naive.keys() - opened.jobs.keys():
            raise Lost(f"job {min(missing)} is gone at record {opened.lsn}")
        for job_id, job in opened.jobs.items():
            if job_id not in naive or not naive[job_id].agrees(job):
                raise Resurrected(f"job {job_id} is {job} at record {opened.lsn}, not {naive.get(job_id)}")

    def _compare_messages(self, provider: LmdbProvider, lsn: int) -> None:
        ledger, naive = self._ledger, self._ledger.naive[lsn]
        for queue_id, queue in naive.queues.items():
            if keeps_nothing(queue.options):
                continue
            found: dict[int, tuple[bytes, int]] = {}
            for part in provider.read(queue_id, 1, queue.next_sequence - 1, READ_BYTES):
                for offset, row in enumerate(part.rows):
                    found[part.first_sequence + offset] = (row, part.published_at)
            for sequence, row_and_time in found.items():
                if ledger.rows.get((queue_id, sequence)) != row_and_time:
                    raise Resurrected(f"message {sequence} of {queue.name} has other bytes than were published")
            missing = naive.alive(queue_id) - found.keys()
            if missing:
                raise Lost(f"messages {sorted(missing)} of {queue.name} cannot be read at record {lsn}")
        letters = {letter.facts.dead_id: letter for letter in provider.dead_letters(limit=1 << 20)}
        if letters.keys() != naive.dead.keys():
            raise Lost(f"dead letters {sorted(letters)} are there, {sorted(naive.dead)} are meant")
        for dead_id, message in naive.dead.items():
            letter = letters[dead_id]
            if (letter.queue_id, letter.facts.sequence) != message or letter.row != ledger.rows[message][0]:
                raise Resurrected(f"dead letter {dead_id} holds another message")
        if lines := index_differences(provider):
            raise Broken(f"at record {lsn}: {lines}")
        with reading(provider._store.env, DATA_FILE) as kv:
            if problems := [problem.what for problem in audit_index(kv)]:
                raise Broken(f"the index of dead letters is not sound: {problems}")

    def _compare_engine(self, state: StoredState, now_ms: int) -> None:
        naive = self._ledger.naive[state.lsn].copy()
        engine = Engine(EngineSettings(auto_create=False), jitter=lambda: 0.5, new_id=lambda: "f" * 32)
        # What fell due while the broker was down leaves at once, and groups of subscribers that are gone end.
        naive.apply(engine.restore(state, now_ms).records)
        naive.check_law()
        if lines := engine.violations():
            raise Broken(f"after a restart the law of conservation does not hold: {lines}")
        queues = engine._state.queues_by_id
        if queues.keys() != {queue_id for queue_id, queue in naive.queues.items() if not queue.deleted}:
            raise Lost(f"queues {sorted(queues)} are there, {sorted(naive.queues)} are meant")
        for queue_id, queue in naive.queues.items():
            if queue.deleted or keeps_nothing(queue.options):
                continue
            restored = queues[queue_id]
            if restored.next_sequence < queue.next_sequence:
                raise Broken(f"sequence {restored.next_sequence} of {queue.name} would be given again")
            for group_id, group in queue.groups.items():
                same = [g for g in restored.groups.values() if g.group_id == group_id]
                cursors = [g.cursor.committed for g in same if g.cursor is not None]
                if cursors not in ([], [group.committed]):
                    raise Lost(f"cursor {queue.name}/{group.name} is at {cursors}, and was at {group.committed}")
                found = {s for g in same for s in g.unsettled_set()}
                if found != group.unsettled:
                    what = f"{queue.name}/{group.name}: {sorted(group.unsettled - found)} missing"
                    raise Lost(f"{what}, {sorted(found - group.unsettled)} too many")
            self._probe(engine, queue, now_ms)

    def _probe(self, engine: Engine, queue: NaiveQueue, now_ms: int) -> None:
        """Publish known dedup ids again: within their window they must be known."""
        now = max(now_ms, engine._state.now)
        oldest = now - queue.options.dedup_window_ms
        known = [(dedup_id, sequence) for dedup_id, (sequence, at) in queue.dedup.items() if at >= oldest][:20]
        rows = Rows.of([pack_row("probe", b"") for _ in known])
        extras = {index: MessageExtra(dedup_id=dedup_id) for index, (dedup_id, _) in enumerate(known)}
        if not known:
            return
        outcome = engine.handle([Publish(1, "probe", queue.name, rows, extras)], now)
        for effect in [*outcome.effects, *outcome.after_append, *outcome.gated]:
            if isinstance(effect, Reply) and isinstance(effect.result, Published):
                wanted = {index: sequence for index, (_, sequence) in enumerate(known)}
                if (effect.result.duplicates or {}) != wanted:
                    raise Broken(f"{queue.name} forgot dedup ids: knows {effect.result.duplicates}, should {wanted}")


class _Nobody:
    """Neither checkpointer nor upkeep: an image is only looked at."""

    running = False
    pid = None
    restarts = 0
    last_error = ""

    def wake(self) -> None:
        pass

    def stop(self) -> None:
        pass


def _differences(found: StoredState, expected: StoredState) -> str:
    for name in ("next_queue_id", "dead_count", "lsn"):
        if getattr(found, name) != getattr(expected, name):
            return f"{name} {getattr(found, name)}, not {getattr(expected, name)}"
    for queue_id in sorted(found.queues.keys() | expected.queues.keys()):
        one, other = found.queues.get(queue_id), expected.queues.get(queue_id)
        if one is None or other is None:
            return f"queue {queue_id} {'is missing' if one is None else 'came back'}"
        for field in one.__slots__:
            if getattr(one, field) != getattr(other, field):
                return f"{one.name}.{field} {getattr(one, field)!r}, not {getattr(other, field)!r}"
    return "nothing visible"


def told_apart(error: BaseException) -> tuple[int, int]:
    """(lost, resurrected) for the table."""
    if isinstance(error, Resurrected):
        return 0, 1
    return (1, 0) if isinstance(error, Lost | VibeMQError) else (0, 0)
