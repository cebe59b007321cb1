"""Real system calls, replayed: every write and flush of a broker and its checkpointer is noted while clients are at
work; then, for a power cut at every call, legal disks are rebuilt, and opened by the real provider.

One recording is two lives of a broker on one directory: from nothing to a clean stop, and from there under load again.
Instants come from one clock, so the notes and the clients' account share one order.
"""

import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import anyio

from tests.crash.ledger import BrokerProcess
from tests.proof import shim
from tests.proof.account import Account, Contents, Verdict, judge
from tests.proof.contents import abandon, drained, open_store, stored
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.forked import ChildDied, in_fork
from tests.proof.letter_index import index_differences
from tests.proof.load import Load, Plan
from tests.proof.places import in_memory
from tests.proof.syscall_images import MANNERS, Disk, Image, timeline
from tests.proof.warm import WarmBrokers, import_everything, warm_brokers
from vibemq.engine import Engine, EngineSettings

WEAK_FLUSH_MS = 150
FLUSH_SLACK_MS = 2_000
SETTINGS = {
    "lmdb": "segment_bytes = 65536\nballast_bytes = 0\ncheckpoint_lag_bytes = 65536\ncheckpoint_ms = 100\n",
    "sqlite": "wal_bytes = 131072\nballast_bytes = 0\n",
}
MIXES = ((34, 33, 33), (5, 0, 95), (5, 45, 50))
SHAPES = ((5, 300), (60, 1_200), (25, 700), (120, 800))
"""(batches of each publisher, images): a short recording is mostly the birth of a store, a long one its work."""
REAL_BROKER_EVERY = 200
"""Images after which one is also recovered by a real broker and walked by `vibemq-admin check`."""
IMAGES_AT_ONCE = 10
LOAD_TIMEOUT_S = 120


@dataclass(slots=True)
class Recording:
    """What one broker did, and what its clients were told."""

    provider: str
    seed: int
    root: str
    notes: list[shim.Note]
    account: Account
    until: int
    """Cuts are made up to this instant."""


@dataclass(slots=True)
class Tally:
    brokers: int = 0
    calls: int = 0
    manners: dict[str, int] = field(default_factory=dict)
    weak_lost: int = 0
    async_lost: int = 0


def run(budget: Budget) -> Result:
    result = Result(unit="images", worst_weak_ms=0.0)
    deadline = time.monotonic() + budget.seconds
    import_everything()
    tally = Tally()
    with warm_brokers(budget.work) as warm, in_memory(budget.work) as place:
        number = 0
        while result.cases < budget.cases and time.monotonic() < deadline:
            batches, images = SHAPES[number // 2 % len(SHAPES)]
            # Both providers have their turn in the shortest run, too.
            images = min(images, (budget.cases + 1) // 2, budget.cases - result.cases)
            recording = record(budget.work, ("lmdb", "sqlite")[number % 2], budget.seed + number // 2, batches)
            tally.calls += len(recording.notes)
            _replay(recording, images, deadline, place, warm, result, tally)
            number += 1
    result.complete = result.cases >= budget.cases
    result.figures |= {"recordings": number, "calls": tally.calls, "images that a real broker recovered": tally.brokers}
    result.figures |= {"weak lost": tally.weak_lost, "async lost": tally.async_lost}
    result.figures |= {f"images: {name}": count for name, count in tally.manners.items()}
    return result


# -- recording ------------------------------------------------------------------------------------------------------


def record(work: Path, provider: str, seed: int, batches: int) -> Recording:
    folder = Path(tempfile.mkdtemp(prefix="recording-", dir=work))
    root, log, config = folder / "disk", folder / "notes", folder / "vibemq.toml"
    root.mkdir()
    log.mkdir()
    config.write_text(f"weak_flush_ms = {WEAK_FLUSH_MS}\n[storage.settings]\n{SETTINGS[provider]}")
    arguments = ("--config", str(config))
    broker = BrokerProcess(root / "data", provider=provider, arguments=arguments, log=folder / "broker.log")
    account = Account()
    variables = shim.prefix(shim.environment(root, log=log))
    rng = Random(seed)
    try:
        broker.start(prefix=variables)
        _work(broker, account, Plan(rng.randrange(1 << 32), rng.choice(MIXES), batches=batches))
        asked_at = time.monotonic_ns()
        assert broker.stop() == 0, broker.log_text()
        account.flushed(asked_at, time.monotonic_ns())
        broker.start(prefix=variables)
        _work(broker, account, Plan(rng.randrange(1 << 32), rng.choice(MIXES), batches=batches))
        until = time.monotonic_ns()
    finally:
        if broker.is_alive:
            broker.kill()
    account.freeze()
    notes = [note for note in shim.notes(log) if note.before <= until]
    recording = Recording(provider, seed, str(root.resolve()), notes, account, until)
    shutil.rmtree(folder)
    return recording


def _work(broker: BrokerProcess, account: Account, plan: Plan) -> None:
    async def work() -> None:
        with anyio.fail_after(LOAD_TIMEOUT_S):
            await Load(broker.url, account, plan).run()

    anyio.run(work)


# -- replaying ------------------------------------------------------------------------------------------------------


def _replay(
    recording: Recording,
    images: int,
    deadline: float,
    place: Path,
    warm: WarmBrokers,
    result: Result,
    tally: Tally,
) -> None:
    cases: list[Case] = []
    for case in _cases(recording, images):
        if time.monotonic() > deadline:
            break
        cases.append(case)
        if len(cases) == IMAGES_AT_ONCE:
            _look_into(cases, place, warm, result, tally)
            cases.clear()
    _look_into(cases, place, warm, result, tally)


def _cases(recording: Recording, images: int) -> Iterator["Case"]:
    """Images spread over all calls of the recording, each at an instant and in a manner of its own."""
    rng = Random(recording.seed)
    disk = Disk(recording.root)
    moments = 2 * len(recording.notes)
    made = 0
    for index, instant in enumerate(timeline(recording.notes, disk, recording.until)):
        while made < images * (index + 1) // moments:
            made += 1
            manner = MANNERS[made % len(MANNERS)]
            yield Case(recording, index, instant, manner.name, disk.image(rng, manner))


@dataclass(slots=True)
class Case:
    recording: Recording
    index: int
    instant: int
    manner: str
    image: Image

    def __str__(self) -> str:
        recording = self.recording
        return (
            f"{recording.provider}, seed {recording.seed}, cut after call {self.index // 2} of "
            f"{len(recording.notes)}, unflushed kept: {self.manner}"
        )


def _look_into(cases: list[Case], place: Path, warm: WarmBrokers, result: Result, tally: Tally) -> None:
    folders = [place / f"image-{number}" for number in range(len(cases))]
    for case, folder in zip(cases, folders, strict=True):
        _write(case, folder)
    for case, folder, outcome in zip(cases, folders, _outcomes(cases, folders), strict=True):
        complaints = _counted(case, outcome, result, tally)
        tally.manners[case.manner] = tally.manners.get(case.manner, 0) + 1
        if result.cases % REAL_BROKER_EVERY == 0:
            tally.brokers += 1
            _write(case, folder)
            complaints += _ask_a_broker(case, folder / "data", warm)
            shutil.rmtree(folder)
        result.cases += 1
        result.findings += [Finding(f"{case}: {what}", str(case)) for what in complaints]


def _outcomes(cases: list[Case], folders: list[Path]) -> list[Verdict | str]:
    """A verdict for each image, or why it does not open. One child for all: a fork is not cheap."""
    try:
        return in_fork(lambda: [_opened(case, folder) for case, folder in zip(cases, folders, strict=True)])
    except ChildDied:
        return [_opened_alone(case, folder) for case, folder in zip(cases, folders, strict=True)]
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)


def _opened_alone(case: Case, folder: Path) -> Verdict | str:
    shutil.rmtree(folder)
    _write(case, folder)
    try:
        return in_fork(lambda: _opened(case, folder))
    except ChildDied as error:
        return str(error)


def _opened(case: Case, folder: Path) -> Verdict | str:
    try:
        return _open(case, folder / "data")
    except Exception as error:  # whatever it is, it is the finding
        return f"{type(error).__name__}: {error}"


def _counted(case: Case, outcome: Verdict | str, result: Result, tally: Tally) -> list[str]:
    """What is wrong with it."""
    if isinstance(outcome, str):
        result.lost += _promised(case)
        return [f"it does not open: {outcome}"]
    result.confirmed += outcome.confirmed
    result.lost += len(outcome.lost)
    result.resurrected += len(outcome.resurrected)
    result.worst_weak_ms = max(result.worst_weak_ms or 0.0, outcome.worst_weak_ms)
    tally.weak_lost += outcome.weak_lost
    tally.async_lost += outcome.async_lost
    return [] if outcome.sound else [outcome.sentence()]


def _promised(case: Case) -> int:
    """What a store that cannot be opened has lost."""
    lives = case.recording.account.lives(power_cut=True)
    return sum(life.safe_at[0] <= case.instant for life in lives if life.safe_at)


def _write(case: Case, folder: Path) -> None:
    for path, content in case.image.items():
        target = folder / os.path.relpath(path, case.recording.root)
        if content is None:
            target.mkdir()
        else:
            target.write_bytes(content)


def _verdict(case: Case, contents: Contents) -> Verdict:
    """A disk that kept everything is what kill -9 leaves, and is held to that."""
    kept_all = case.manner == "all"
    limit_ms = WEAK_FLUSH_MS + FLUSH_SLACK_MS
    account = case.recording.account
    return judge(account, contents, power_cut=not kept_all, cut_at=case.instant, weak_limit_ms=limit_ms)


def _ask_a_broker(case: Case, data_dir: Path, warm: WarmBrokers) -> list[str]:
    """Recover the image with a real broker, then walk it as an operator would."""
    broker = warm.start(data_dir, "--storage", case.recording.provider)
    try:
        if not broker.wait_ready():
            return [f"a real broker refuses to start: {broker.log_text()}"]
        verdict = _verdict(case, anyio.run(drained, broker.url))
        broker.signal(signal.SIGTERM)
        code = broker.wait()
        complaints = [] if verdict.sound else [f"a real broker recovers: {verdict.sentence()}"]
        complaints += [f"it then ended with code {code}"] if code else []
        return complaints + _check(data_dir, warm)
    finally:
        broker.kill()
        broker.forget()


def _check(data_dir: Path, warm: WarmBrokers) -> list[str]:
    check = warm.admin("check", "--data-dir", data_dir)
    code = check.wait()
    told = [f"vibemq-admin check: {check.out_text()}{check.log_text()}"] if code else []
    check.forget()
    return told


def _open(case: Case, data_dir: Path) -> Verdict:
    logging.disable(logging.ERROR)
    settings = {"segment_bytes": 65536} if case.recording.provider == "lmdb" else {}
    store, state = open_store(data_dir, case.recording.provider, ballast_bytes=0, **settings)
    contents = stored(store, state)
    verdict = _verdict(case, contents)
    verdict.lost += [f"check: {problem.what}" for problem in store.check()]
    verdict.lost += index_differences(store)
    engine = Engine(EngineSettings(auto_create=False), jitter=lambda: 0.5, new_id=lambda: "f" * 32)
    engine.restore(state, int(time.time() * 1000))
    verdict.lost += [f"the restored engine: {line}" for line in engine.violations()]
    abandon(store)
    return verdict


METHOD = Method(
    name="syscalls",
    title="real system calls recorded, legal power-cut images replayed",
    run=run,
    short=Size(cases=8, seconds=30),
    crash=Size(cases=1_600, seconds=80),
    torture=Size(cases=10_000, seconds=650),
    missing=shim.missing_compiler,
)
