"""Real power cuts: a broker under load on a disk of its own, cut off at a random moment, mounted and started again.

Every cut has a fresh data directory, one of the file systems there are, either provider, and one of the mixes below.
The broker is not killed first: it must notice by itself that its disk is gone, and end with code 70.
"""

import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from random import Random

import anyio

from tests.crash.ledger import BrokerProcess
from tests.proof.account import THE_END, Account, Verdict, judge
from tests.proof.contents import drained
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.load import Load, Plan
from tests.proof.loop_disk import LoopDisk, file_systems, loop_disk, missing_loop_disk

WEAK_FLUSH_MS = 400
FLUSH_SLACK_MS = 2_000
"""What a flush may take on a loaded machine before a weak message counts as lost too late."""
MIXES = ((5, 0, 95), (34, 33, 33), (0, 50, 50), (0, 100, 0), (80, 10, 10))
LONGEST_LOAD_S = 2.0
NOTICE_TIMEOUT_S = 10.0
WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""A broker that outlived a killed run would keep its disk mounted."""
SETTINGS = {
    "lmdb": "segment_bytes = 65536\nballast_bytes = 1048576\ncheckpoint_lag_bytes = 131072\ncheckpoint_ms = 200\n",
    "sqlite": "wal_bytes = 262144\nballast_bytes = 1048576\n",
}


@dataclass(frozen=True, slots=True)
class Cut:
    """One case, drawn from the run's seed."""

    number: int
    seed: int
    kind: str
    provider: str
    mix: tuple[int, int, int]
    consume: bool
    """Rejections and checkpoints flush, and hide how long weak data waits; without consumers it shows."""
    after_s: float

    @property
    def disk_lies(self) -> bool:
        """Whether a flush that the cut meets may report success and keep nothing.

        With ext4 a file that grows needs its new size in the file system's journal. A flush that waits for it while the
        file system is shut down finds the transaction gone, takes it for committed, and returns 0: seen in 33 of 300
        cuts with nothing but write and fdatasync, and in none of 60 with a file that does not grow (Linux 6.18). A disk
        without power returns nothing at all. SQLite's log grows; the journal's segments do not.
        """
        return self.provider == "sqlite" and self.kind == "ext4"

    def __str__(self) -> str:
        return f"cut {self.number}: {self.provider} on {self.kind}, mix {self.mix}, after {self.after_s:.2f} s"


def cuts(budget: Budget, kinds: list[str]) -> Iterator[Cut]:
    rng = Random(budget.seed)
    for number in range(budget.cases):
        yield Cut(
            number,
            rng.randrange(1 << 32),
            kinds[number % len(kinds)],
            ("lmdb", "lmdb", "sqlite")[number // len(kinds) % 3],
            rng.choice(MIXES),
            rng.random() < 0.7,
            rng.uniform(0.05, LONGEST_LOAD_S),
        )


def run(budget: Budget) -> Result:
    result = Result(unit="power cuts", worst_weak_ms=0.0)
    deadline = time.monotonic() + budget.seconds
    kinds = file_systems()
    totals = dict.fromkeys(("weak lost", "async lost", "noticed with exit code 70"), 0)
    with ExitStack() as stack:
        disks = {kind: stack.enter_context(loop_disk(budget.work, kind)) for kind in kinds}
        for cut in cuts(budget, kinds):
            if time.monotonic() > deadline:
                result.complete = False
                break
            _note(result, totals, budget, cut, *one_cut(cut, disks[cut.kind], budget.work))
    result.figures |= {**totals, "file systems": ", ".join(kinds), "weak_flush_ms": WEAK_FLUSH_MS}
    return result


def _note(result: Result, totals: dict[str, int], budget: Budget, cut: Cut, verdict: Verdict, code: int) -> None:
    result.cases += 1
    result.confirmed += verdict.confirmed
    result.lost += len(verdict.lost)
    result.resurrected += len(verdict.resurrected)
    result.worst_weak_ms = max(result.worst_weak_ms or 0.0, verdict.worst_weak_ms)
    totals["weak lost"] += verdict.weak_lost
    totals["async lost"] += verdict.async_lost
    totals["noticed with exit code 70"] += code == 70
    if not verdict.sound:
        result.findings.append(Finding(f"{cut}: {verdict.sentence()}", f"seed {budget.seed}, {cut}"))
    if code not in (70, -9):
        result.findings.append(Finding(f"{cut}: the broker ended with code {code}", f"seed {budget.seed}, {cut}"))


def one_cut(cut: Cut, disk: LoopDisk, work: Path) -> tuple[Verdict, int]:
    """(what the disk kept of what was confirmed, how the broker ended; -9: it did not notice in time)."""
    config = work / f"{cut.provider}.toml"
    config.write_text(f"weak_flush_ms = {WEAK_FLUSH_MS}\n[storage.settings]\n{SETTINGS[cut.provider]}")
    data_dir = disk.folder / f"data-{cut.number}"
    log = work / f"cut-{cut.number}.log"
    broker = BrokerProcess(data_dir, provider=cut.provider, arguments=("--config", str(config)), log=log)
    account = Account()
    broker.start(prefix=WITH_US)
    try:
        cut_at = anyio.run(_load_until_cut, cut, disk, broker, account)
        code = _end(broker)
        disk.unmount()
        disk.mount()
        broker.start(prefix=WITH_US)
        contents = anyio.run(drained, broker.url)
        limit_ms = WEAK_FLUSH_MS + FLUSH_SLACK_MS
        verdict = judge(
            account,
            contents,
            power_cut=True,
            noticed_at=cut_at,
            weak_limit_ms=limit_ms,
            trusted_until=cut_at if cut.disk_lies else THE_END,
        )
        return verdict, code
    finally:
        if broker.is_alive:
            broker.kill()
        shutil.rmtree(data_dir, ignore_errors=True)


async def _load_until_cut(cut: Cut, disk: LoopDisk, broker: BrokerProcess, account: Account) -> int:
    """Return the instant of the cut."""
    load = Load(broker.url, account, Plan(cut.seed, cut.mix, publishers=3, consume=cut.consume))
    cut_at = 0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load.run)
        await anyio.sleep(cut.after_s)
        cut_at = time.monotonic_ns()
        disk.cut()
        # Whatever is still confirmed now must have been on the disk before.
        with anyio.move_on_after(NOTICE_TIMEOUT_S):
            while broker.is_alive:
                await anyio.sleep(0.01)
        load.stop.set()
    return cut_at


def _end(broker: BrokerProcess) -> int:
    """Exit code. An idle broker has nothing to notice its dead disk by: it is killed, as a power cut would."""
    if broker.is_alive:
        broker.kill()
    return broker.wait()


METHOD = Method(
    name="power-cut",
    title="real power cuts on loop-mounted file systems",
    run=run,
    short=Size(cases=2, seconds=30),
    crash=Size(cases=8, seconds=90),
    torture=Size(cases=50, seconds=600),
    waits=True,
    missing=missing_loop_disk,
)
