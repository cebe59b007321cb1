"""An error at every index: the Nth write, flush, allocation, rename … of a fixed piece of work fails, for every N.

First the work runs without a fault, to count its calls; then once for each call, error and manner. The broker is a real
one (forked warm, see warm.py), its checkpointer a process of its own; the fault hits either. What must hold:

    EIO for a write or flush of the broker   it ends with code 70, and confirms nothing strong that was sent later
    anything else                            it ends with code 70, refuses with a clear error, or goes on
    always                                   the next start recovers all that was confirmed, and nothing more
"""

import errno
import os
import re
import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio

from tests.proof import shim
from tests.proof.account import FOREVER, Account, Verdict, judge
from tests.proof.contents import drained, open_store, stored
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.forked import ChildDied, in_fork
from tests.proof.letter_index import index_differences
from tests.proof.places import in_memory
from tests.proof.shim import Control, Fault, Kind, Manner, Role
from tests.proof.shortage import SHORTAGES
from tests.proof.shortage import missing as missing_for
from tests.proof.sim_disk import FIRST
from tests.proof.steady_work import SteadyWork
from tests.proof.warm import WarmBroker, WarmBrokers, import_everything, warm_brokers

PROVIDERS = ("lmdb", "sqlite")
SETTINGS = {
    "lmdb": "segment_bytes = 65536\nballast_bytes = 65536\ncheckpoint_lag_bytes = 1\ncheckpoint_ms = 100\n",
    "sqlite": "wal_bytes = 65536\nballast_bytes = 65536\n",
}
OPENED = {"lmdb": {"segment_bytes": 65536, "ballast_bytes": 0}, "sqlite": {"ballast_bytes": 0}}
"""For the verdict: nothing large is prepared for work that will not come."""
ROUNDS = {"lmdb": 6, "sqlite": 3}
EXIT_STORAGE_FAILED = 70
REAL_BROKER_EVERY = 25
"""Cases after which a real broker recovers as well, not its provider alone."""
HARMLESS = ("owner.json", "ballast", "lock", "lock.mdb", "checkpointer.lock", "vibemq.sqlite-shm", "history.new")
HARMLESS_FOLDERS = ("audit", "exports")
"""Files that nothing confirmed is in: a broker without them goes on, and says so."""
WORK_TIMEOUT_S = 60
MOMENT_S = 10.0
SHORTAGES_OF_A_LONG_RUN = 1_000
"""Cases from which a run is long enough for every shortage; a full disk takes half a minute."""
SHORTAGES_OF_A_SHORT_RUN = 3
FAILURES = {
    Kind.WRITE: [(errno.EIO, Manner.BEFORE), (errno.ENOSPC, Manner.BEFORE), (0, Manner.SHORT)],
    Kind.SYNC: [(errno.EIO, Manner.AFTER), (errno.ENOSPC, Manner.BEFORE)],
}
"""(error, manner) by kind; others fail before anything happened, with either error."""
OTHERWISE = [(errno.EIO, Manner.BEFORE), (errno.ENOSPC, Manner.BEFORE)]


@dataclass(frozen=True, slots=True)
class Scene:
    """A piece of work: on an empty directory, or on one that a killed broker left."""

    provider: str
    fresh: bool

    def __str__(self) -> str:
        return f"{self.provider} {'from nothing' if self.fresh else 'after a kill'}"


@dataclass(frozen=True, slots=True)
class Case:
    scene: Scene
    fault: Fault

    def __str__(self) -> str:
        fault = self.fault
        error = errno.errorcode.get(fault.error, "short")
        return f"{self.scene}: {error} {fault.manner.name} {fault.kind.name} {fault.nth} of the {fault.role.name}"


@dataclass(slots=True)
class Run:
    """How a broker lived with its fault."""

    account: Account
    refusals: dict[str, str]
    ready: bool
    code: int
    fired: bool
    fired_at: int
    failed_path: str
    log: str


@dataclass(slots=True)
class Bench:
    """What every case needs."""

    warm: WarmBrokers
    work: Path
    left: dict[str, tuple[Path, Account]] = field(default_factory=dict)
    """Provider -> a data directory that a killed broker left, and what it had confirmed."""

    def config(self, provider: str) -> Path:
        path = self.work / f"{provider}.toml"
        path.write_text(f"weak_flush_ms = 20\n[storage.settings]\n{SETTINGS[provider]}")
        return path


def run(budget: Budget) -> Result:
    result = Result(unit="injections")
    deadline = time.monotonic() + budget.seconds
    import_everything()
    _play_shortages(budget, result, deadline)
    if budget.aim and result.figures["shortages survived"]:
        result.unit = "shortages"
        return result
    with in_memory(budget.work) as place, warm_brokers(place) as warm:
        bench = Bench(warm, place)
        for provider in PROVIDERS:
            bench.left[provider] = _leave_behind(bench, provider)
        planned = [case for case in plan(bench) if re.search(budget.aim, str(case))]
        Random(budget.seed).shuffle(planned)
        result.figures["injections that there are"] = len(planned)
        outcomes: dict[str, int] = {}
        for number, case in enumerate(planned[: budget.cases]):
            if time.monotonic() > deadline:
                result.complete = False
                break
            _one_case(bench, case, number, result, outcomes)
            if result.findings and FIRST in os.environ:
                break
    result.figures |= outcomes
    return result


def _play_shortages(budget: Budget, result: Result, deadline: float) -> None:
    """All of them in a long run, the first ones in a shorter one, and as many cases of what is aimed at."""
    played = []
    aimed = [shortage for shortage in SHORTAGES if re.search(budget.aim, f"{shortage[0]}, {shortage[1]}")]
    for name, provider, play in (
        aimed[: budget.cases]
        if budget.aim or budget.cases >= SHORTAGES_OF_A_LONG_RUN
        else SHORTAGES[:SHORTAGES_OF_A_SHORT_RUN]
    ):
        if missing_for(name) is not None or time.monotonic() > deadline:
            continue
        outcome = play(budget.work, provider)
        result.confirmed += outcome.confirmed
        result.lost += outcome.lost
        result.resurrected += outcome.resurrected
        repeat = f"{name}, {provider}"
        result.findings += [Finding(f"{repeat}: {what}", repeat) for what in outcome.complaints]
        played.append(f"{name} ({provider})")
    result.figures["shortages survived"] = ", ".join(played)
    if budget.aim:
        result.cases += len(played)


def plan(bench: Bench) -> Iterator[Case]:
    """Every index of every kind of call in every scene, as counted by a run without a fault."""
    for provider in PROVIDERS:
        for fresh in (True, False):
            scene = Scene(provider, fresh)
            control, ran = _run_scene(bench, scene, None)
            assert ran.code == 0, f"without a fault the broker ended with {ran.code}: {ran.log}"
            for role in Role:
                for kind in Kind:
                    for nth in range(1, control.calls(role, kind) + 1):
                        for error, manner in FAILURES.get(kind, OTHERWISE):
                            yield Case(scene, Fault(role, kind, nth, error, manner))
            control.close()
            _remove(bench.work / "case")


# -- one life of a broker -------------------------------------------------------------------------------------------


def _leave_behind(bench: Bench, provider: str) -> tuple[Path, Account]:
    folder = bench.work / f"left-{provider}"
    account = Account()
    broker = bench.warm.start(folder, "--storage", provider, "--config", str(bench.config(provider)))
    assert broker.wait_ready(), broker.log_text()
    anyio.run(_work, SteadyWork(account, 12), broker.url)
    broker.kill()
    _rebase(account, _recovered(folder, provider, account))
    return folder, account


def _rebase(account: Account, verdict: Verdict) -> None:
    assert verdict.sound, verdict.sentence()


def _run_scene(bench: Bench, scene: Scene, fault: Fault | None) -> tuple[Control, Run]:
    folder = bench.work / "case"
    folder.mkdir()
    data_dir = folder / "data"
    account = Account()
    if not scene.fresh:
        left, before = bench.left[scene.provider]
        shutil.copytree(left, data_dir)
        account = before.copy()
    control = Control(folder / "control", fault)
    variables = shim.environment(data_dir, control=control.path)
    del variables["LD_PRELOAD"]
    config = str(bench.config(scene.provider))
    broker = bench.warm.start(data_dir, "--storage", scene.provider, "--config", config, environment=variables)
    ready = broker.wait_ready()
    work = SteadyWork(account, ROUNDS[scene.provider] if scene.fresh else 1)
    if ready:
        anyio.run(_work, work, broker.url)
    if ready and not work.finished:
        _give_it_a_moment(broker)
    broker.signal(signal.SIGTERM)
    code = broker.wait()
    log = broker.log_text()
    broker.forget()
    return control, Run(
        account,
        work.refusals,
        ready,
        code,
        control.fired,
        control.fired_at,
        control.failed_path,
        log,
    )


def _give_it_a_moment(broker: WarmBroker) -> None:
    """A client hears of the end before the process is gone; a signal between the two would change how it ends."""
    deadline = time.monotonic() + MOMENT_S
    while broker.is_alive and time.monotonic() < deadline:
        time.sleep(0.01)


async def _work(work: SteadyWork, url: str) -> None:
    with anyio.fail_after(WORK_TIMEOUT_S):
        await work.run(url)


def _recovered(data_dir: Path, provider: str, account: Account) -> Verdict:
    """The verdict on a directory, opened by its provider in a child."""

    def look() -> Verdict:
        store, state = open_store(data_dir, provider, **OPENED[provider])
        verdict = judge(account, stored(store, state), power_cut=False)
        verdict.lost += [f"check: {problem.what}" for problem in store.check()]
        verdict.lost += index_differences(store)
        return verdict

    return in_fork(look)


# -- one case -------------------------------------------------------------------------------------------------------


def _one_case(bench: Bench, case: Case, number: int, result: Result, outcomes: dict[str, int]) -> None:
    folder = bench.work / "case"
    control, ran = _run_scene(bench, case.scene, case.fault)
    control.close()
    complaints = list(_complaints(case, ran))
    try:
        if number % REAL_BROKER_EVERY == 0:
            copy = copied(folder / "data")
            verdict = _recovered_by_a_broker(bench, copy, case.scene.provider, ran.account)
            complaints += [] if verdict.sound else [f"a real broker recovers: {verdict.sentence()}"]
        verdict = _recovered(folder / "data", case.scene.provider, ran.account)
        result.confirmed += verdict.confirmed
        result.lost += len(verdict.lost)
        result.resurrected += len(verdict.resurrected)
        complaints += [] if verdict.sound else [verdict.sentence()]
    except (ChildDied, RuntimeError) as error:
        complaints.append(f"recovery: {error}")
    result.cases += ran.fired
    ending = _ending(ran)
    outcomes[ending] = outcomes.get(ending, 0) + 1
    result.findings += [Finding(f"{case} ({ran.failed_path}): {what}", str(case)) for what in complaints]
    _remove(folder)


def copied(data_dir: Path) -> Path:
    """Beside it. A broker that was refused the making of its directory has left none, and none is there then."""
    copy = data_dir.with_name("copy")
    if data_dir.exists():
        shutil.copytree(data_dir, copy)
    return copy


def _remove(folder: Path) -> None:
    """A checkpointer that outlives its broker for a moment may still put something into the folder."""
    deadline = time.monotonic() + WORK_TIMEOUT_S
    while True:
        try:
            shutil.rmtree(folder)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _recovered_by_a_broker(bench: Bench, data_dir: Path, provider: str, account: Account) -> Verdict:
    config = str(bench.config(provider))
    broker = bench.warm.start(data_dir, "--storage", provider, "--config", config)
    if not broker.wait_ready():
        raise RuntimeError(broker.log_text())
    try:
        return judge(account, anyio.run(drained, broker.url), power_cut=False)
    finally:
        broker.kill()
        broker.forget()


def _ending(ran: Run) -> str:
    if not ran.fired:
        return "not reached"
    if ran.code == EXIT_STORAGE_FAILED:
        return "exit 70"
    if not ran.ready:
        return "refused to start"
    return "refused and went on" if ran.refusals else "went on"


def _complaints(case: Case, ran: Run) -> Iterator[str]:
    if not ran.fired:
        return
    if ran.code not in (0, 1, EXIT_STORAGE_FAILED):
        yield f"exit code {ran.code}: {ran.log[-1500:]}"
    if not ran.ready and ran.code == 0:
        yield f"it ended before it was ready, with code 0: {ran.log[-500:]}"
    if ran.code == 1 and "error " not in ran.log:
        yield f"exit code 1 without an error: {ran.log[-500:]}"
    if ran.code == 1 and "Traceback" in ran.log:
        yield f"exit code 1 with a traceback: {ran.log[-1500:]}"
    if _must_end(case, ran):
        if ran.ready and ran.code != EXIT_STORAGE_FAILED:
            yield f"exit code {ran.code} after a failed {case.fault.kind.name.lower()}: {ran.log[-1500:]}"
        # A weak message is confirmed once it is written, perhaps while a flush is failing in another thread.
        for message in ran.account.messages.values():
            if message.policy == "strong" and message.issued_at > ran.fired_at and message.confirmed_at < FOREVER:
                yield f"{message.id} was sent after the error, and confirmed"
                break


def _must_end(case: Case, ran: Run) -> bool:
    folder, name = os.path.split(ran.failed_path)
    # A folder is flushed as well when a file is made in it.
    vital = name not in (*HARMLESS, *HARMLESS_FOLDERS) and os.path.basename(folder) not in HARMLESS_FOLDERS
    fault = case.fault
    if case.scene.provider == "sqlite" and fault.kind is Kind.SYNC and os.path.basename(ran.failed_path) == "data":
        # SQLite does not look at how a folder's flush ended; the broker flushes the folder again by itself.
        return False
    return vital and fault.role is Role.BROKER and fault.error == errno.EIO and fault.kind in (Kind.WRITE, Kind.SYNC)


METHOD = Method(
    name="inject",
    title="an error at every call of a fixed piece of work",
    run=run,
    short=Size(cases=3, seconds=30),
    crash=Size(cases=250, seconds=125),
    torture=Size(cases=100_000, seconds=800),
    missing=shim.missing_compiler,
)
