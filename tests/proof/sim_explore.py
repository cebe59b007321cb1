"""One seed of the crash explorer: a broker lives, loses power, recovers and lives on; every moment is photographed.

Before every operation that changes the disk, images of what a power cut would leave now are drawn, recovered and
judged (`sim_judge`), with the broker standing still. One of them ends the life, and the next life begins with it. So
the recovered stores go on, with recycled segments and old contents, and starting up is photographed as well.
"""

import math
import random
import time
from dataclasses import dataclass, field
from itertools import count

from tests.proof.sim_clients import Clients
from tests.proof.sim_files import Machine, path_on
from tests.proof.sim_judge import STORE, Judge
from tests.proof.sim_ledger import Ledger
from tests.proof.sim_lmdb import Book, SimEnv, Snapshot, snapshot_number
from tests.proof.sim_machinery import FLUSH_S_MAX
from tests.proof.sim_world import DATA_DIR, Sizes, World
from vibemq.errors import VibeMQError
from vibemq.storage.kvstore import keys
from vibemq.storage.local.store_file import StoreInfo, write_store_info
from vibemq.storage.migrate import VERSION_KEY
from vibemq.testing.sim_disk import Fate, PowerCut, SimDisk

FAILURES = (AssertionError, VibeMQError, OSError, LookupError, TypeError, ValueError, AttributeError)
"""What a broken promise comes out as: a check of ours, an error of the product, or a bug that garbage uncovers."""
SEAL_BYTES = 5
TALLY_KEY = b"mtally"
OLD_INFO_BYTES = 20
"""Of a block's info, without the checksum that migration 0002 adds."""
ENDINGS = ("cut", "kill", "close")
KILL_SHARE = 0.06
GO_ON_SHARE = 0.12


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that one run follows from; printed when it fails."""

    seed: int
    lives: int = 4
    steps: int = 70
    images: int = 16
    """At every operation."""
    ending: str = ""
    """How every life ends, one of ENDINGS; "" = at random."""
    aside: bool = False
    """Appends are made beside the loop."""
    left_out: frozenset[tuple[int, int]] = frozenset()
    """(life, step) that are skipped: what shrinking found to be of no matter."""
    sizes: Sizes = field(default_factory=Sizes)

    def __str__(self) -> str:
        left_out = f", left_out=frozenset({sorted(self.left_out)})" if self.left_out else ""
        ending = f", ending={self.ending!r}" if self.ending else ""
        ending += ", aside=True" if self.aside else ""
        return f"Plan(seed={self.seed}, lives={self.lives}, steps={self.steps}, images={self.images}{ending}{left_out})"


class Failure(Exception):
    """A promise was broken; `moment` says where, `losses` what the power cut took in its smallest form."""

    def __init__(self, run: "Run", moment: str, error: BaseException, losses: list[str]) -> None:
        kind = type(error).__name__
        super().__init__(f"{kind}: {error} [{moment}; the power cut lost: {', '.join(losses) or 'nothing'}]")
        self.plan = run.plan
        self.life, self.step = run.life, run.step
        self.error = error


class Run:
    """One plan carried out. `go` raises Failure; it ends before its time, without one, at `ends_at` of the monotonic
    clock."""

    def __init__(self, plan: Plan, machine: Machine, ends_at: float = math.inf) -> None:
        self.plan = plan
        self._until = ends_at
        self._machine = machine
        machine.serials = count(1)
        self._book = Book()
        self.ledger = Ledger()
        self.judge = Judge(self._book, self.ledger, machine, plan.sizes)
        self._disk = SimDisk(seed=plan.seed, short_writes=plan.seed % 3 == 0)
        self._now_s = 0.0
        self._looks = 0
        self.life = 0
        self.step = -1
        self._ends_at = -1
        self._waits_for_commit = False
        self._is_over = False
        self.images = 0
        self.kills = 0
        self.second_crashes = 0
        self.operations = 0
        self.worst_weak_s = 0.0
        self.losing_images = 0
        """Images that lost something that was written."""

    def go(self) -> None:
        self._disk.mkdir(DATA_DIR)
        self._disk.fsync_dir("/")
        for life in range(self.plan.lives):
            self._live(life)
            if self._is_over:
                return

    def _random(self, what: object) -> random.Random:
        return random.Random(f"{self.plan.seed}/{what}")

    # -- one life -------------------------------------------------------------------------------------------------

    def _live(self, life: int) -> None:
        rng = self._random(f"life {life}")
        seed = f"{self.plan.seed}/{life}"
        world = self.world = World(
            self._disk,
            self._book,
            self.ledger,
            self._machine,
            seed=seed,
            now_s=self._now_s,
            sizes=self.plan.sizes,
            aside=self.plan.aside,
        )
        ending = rng.choices(ENDINGS, (6, 3, 2))[0]
        ending = self.plan.ending or ending
        self.life, self.step, self._looks = life, -1, 0
        # A cut may come while the broker starts, or anywhere in its life.
        first, last = (5, 60) if rng.random() < 0.2 else (60, 900)
        self._ends_at = {"close": -1, "kill": rng.randrange(10, 90)}.get(ending, rng.randrange(first, last))
        # A kill is best when it leaves something in the page cache that the next start might believe.
        self._waits_for_commit = ending == "kill"
        self._disk.watch = self._look
        try:
            with world.inside():
                self._act(world, seed, life)
                if ending == "close":
                    world.close()
        except PowerCut:
            pass
        except FAILURES as error:
            raise Failure(self, self._moment("a quiet moment"), error, []) from error
        self._disk.watch = None
        world.crew.abandon()
        self.operations += self._disk.ops
        if self._is_over:
            return  # It did not come to its ending.
        self._now_s = world.loop.now + rng.choice((0.0, 2.0))
        self._next_disk(rng, ending, world)

    def _act(self, world: World, seed: str, life: int) -> None:
        world.start()
        self.judge.note_ready(self._disk)
        clients = Clients(world, seed)
        for step in range(self.plan.steps):
            self.step = step
            if (life, step) not in self.plan.left_out:
                clients.step(step)

    def _next_disk(self, rng: random.Random, ending: str, world: World) -> None:
        if ending == "kill":
            self._disk = self._disk.kill()
            self.ledger.weak_told.clear()  # the timer died with the process; the next start flushes
        else:
            if ending == "close":
                # After a graceful stop nothing may be missing, whatever its policy.
                self.ledger.floor = self.ledger.last_lsn
            fate = self._disk.draw(rng)
            self._judge(fate, "the end", rng)
            self._disk = self._disk.after(fate)
            self.ledger.power_lost()
        if ending == "close" and rng.random() < 0.5 and self._is_idle():
            self._make_old()

    def _is_idle(self) -> bool:
        """The store has everything: the journal is not needed."""
        number = snapshot_number(self._disk.content(STORE), STORE)
        return self.judge._applied_lsn(number) >= self.ledger.last_lsn

    def _make_old(self) -> None:
        """Turn the store into one from before the first migration, so that the next start migrates it."""
        values = dict(self._book.snapshots[snapshot_number(self._disk.content(STORE), STORE)].values)
        if any(key[:1] == keys.LENT for key in values):
            return  # Such a store has no blocks of stages.
        for key in (VERSION_KEY, TALLY_KEY):
            values.pop(key, None)
        self.ledger.forget_newer()  # such a store has none
        newer = (keys.USER, keys.TOKEN, keys.JOB, keys.TRANSACTION)
        values = {key: value for key, value in values.items() if key[:1] not in newer}
        bare = {key: _without_seal(key, value) for key, value in values.items()}
        number = self._book.add(Snapshot(sorted(bare), bare))
        SimEnv.write(self._disk, STORE, number, flush=True)
        with self._machine.at(self._disk):
            folder = path_on(self._disk, self._book, DATA_DIR)
            write_store_info(folder, StoreInfo("lmdb", 0, 1))  # type: ignore[arg-type]

    # -- photographs ----------------------------------------------------------------------------------------------

    def _moment(self, operation: str) -> str:
        return f"life {self.life}, step {self.step}, before {operation} number {self._disk.ops + 1}"

    def _look(self, operation: str) -> None:
        self._looks += 1
        disk, watch = self._disk, self._disk.watch
        disk.watch = None
        rng = self._random(f"look {self.life} {self._looks}")
        seen: set[Fate] = set()
        for _ in range(self.plan.images):
            fate = disk.draw(rng)
            if fate not in seen:
                seen.add(fate)
                self._judge(fate, operation, rng)
        if rng.random() < KILL_SHARE:
            self._judge_kill(operation)
        disk.watch = watch
        if time.monotonic() > self._until:
            self._is_over = True
            raise PowerCut
        if 0 <= self._ends_at <= self._looks and (not self._waits_for_commit or self._is_committing()):
            raise PowerCut

    def _is_committing(self) -> bool:
        return self._disk.exists(STORE) and not self._disk.is_flushed(STORE)

    def _judge(self, fate: Fate, operation: str, rng: random.Random) -> None:
        disk = self._disk
        goes_on = rng.random() < GO_ON_SHARE
        try:
            self.images += 1
            self._check(fate)
            if goes_on:
                self.second_crashes += self.judge.goes_on(disk.after(fate), rng)
        except FAILURES as error:
            smallest, why = self._milder(fate, error)
            raise Failure(self, self._moment(operation), why, disk.losses(smallest)) from why

    def _check(self, fate: Fate) -> None:
        now_s = self.world.loop.now
        now_ms = self.world.wall_ms()
        verdict = self.judge.image(lambda: self._disk.after(fate), now_ms)
        self.losing_images += verdict.last_lsn < self.ledger.written_lsn
        if verdict.weak_lost_since_s is None:
            return
        window_s = now_s - verdict.weak_lost_since_s
        self.worst_weak_s = max(self.worst_weak_s, window_s)
        # A flush that is due waits for the one under way; both take the time the disk takes.
        allowed_s = self.plan.sizes.weak_flush_ms / 1000 + 2 * self._flush_s_max()
        if window_s > allowed_s:
            raise AssertionError(f"a weak message confirmed {window_s * 1000:.0f} ms ago is gone")

    def _flush_s_max(self) -> float:
        """A flush of the journal takes one pause for every segment that is dirty."""
        return FLUSH_S_MAX * 4

    def _judge_kill(self, operation: str) -> None:
        self.kills += 1
        now_ms = self.world.wall_ms()
        try:
            self.judge.image(self._disk.kill, now_ms, killed=True)
        except FAILURES as error:
            raise Failure(self, self._moment(f"kill -9 before {operation}"), error, []) from error

    def _milder(self, fate: Fate, error: BaseException) -> tuple[Fate, BaseException]:
        """The same failure with as few losses as can be."""
        better = True
        while better:
            better = False
            for candidate in self._disk.milder(fate):
                try:
                    self._check(candidate)
                except FAILURES as same:
                    fate, error, better = candidate, same, True
                    break
        return fate, error


def _without_seal(key: bytes, value: bytes) -> bytes:
    """A stored value as it was before the first migration."""
    match key[:1]:
        case b"x":
            return value
        case keys.BLOCK_INFO:
            return value[SEAL_BYTES:][:OLD_INFO_BYTES]
        case _:
            return value[SEAL_BYTES:]
