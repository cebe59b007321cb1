"""kill -9, again and again, with everything in flight; after each kill the store is compared with what was confirmed.

One directory per provider lives through many kills; clients of all policies, dead letters on the move, checkpoints,
rolling segments. In between other work is killed: a start, `compact`, `migrate`, and `dlq replay` by the command line.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random

import anyio

import vibemq
from tests.proof.account import Account, Contents, Found, Place, Verdict, body_of, judge
from tests.proof.contents import drained, open_store, stored
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.forked import ChildDied, in_fork
from tests.proof.kill_bench import Bench, Life
from tests.proof.letter_index import index_differences
from tests.proof.load import Load, Plan
from tests.proof.shim import missing_compiler
from tests.proof.warm import WarmBroker, import_everything, warm_brokers
from vibemq.client.publishing.outgoing import Outgoing
from vibemq.storage.lmdb.environment.writer_lock import WriterLock

PROVIDERS = ("lmdb", "lmdb", "sqlite")
WORK = {"load": 55, "start": 10, "compact": 10, "migrate": 10, "replay": 10, "restore": 5}
"""What is killed, and how often."""
LONGEST_S = {"load": 1.6, "start": 0.25, "compact": 0.4, "migrate": 0.06, "replay": 0.25, "restore": 0.4}
KILLS_PER_DIRECTORY = 20
"""Then a real broker is drained of everything, and a new directory begins."""
LETTERS = 60
FIXTURES = Path(__file__).parents[1] / "fixtures"
LEFTOVER_WAIT_S = 30.0
REJECT_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Kill:
    number: int
    provider: str
    work: str
    after_s: float

    def __str__(self) -> str:
        return f"kill {self.number}: {self.work} on {self.provider} after {self.after_s * 1000:.0f} ms"


def run(budget: Budget) -> Result:
    result = Result(unit="kills")
    deadline = time.monotonic() + budget.seconds
    import_everything()
    done: dict[str, int] = dict.fromkeys(WORK, 0)
    with warm_brokers(budget.work) as warm:
        bench = Bench(warm, budget.work, Random(budget.seed), result)
        for kill in kills(budget):
            if time.monotonic() > deadline:
                result.complete = False
                break
            for complaint in _complaints(bench, kill):
                result.findings.append(Finding(f"{kill}: {complaint}", f"seed {budget.seed}, {kill}"))
            result.cases += 1
            done[kill.work] += 1
        for life in bench.lives.values():
            result.findings += [Finding(what, f"seed {budget.seed}") for what in _end_of(bench, life)]
    result.figures |= {f"killed: {name}": count for name, count in done.items()}
    return result


def kills(budget: Budget) -> Iterator[Kill]:
    rng = Random(budget.seed)
    for number in range(budget.cases):
        work = rng.choices(list(WORK), list(WORK.values()))[0]
        yield Kill(number, PROVIDERS[number % len(PROVIDERS)], work, rng.uniform(0, LONGEST_S[work]))


def _complaints(bench: Bench, kill: Kill) -> list[str]:
    try:
        return list(_KILLERS[kill.work](bench, kill))
    except (ChildDied, RuntimeError) as error:
        # The directory is beyond use, and so is everything in it.
        life = bench.lives.pop(kill.provider, None)
        bench.result.lost += 0 if life is None else life.account.confirmed_count
        return [f"the store does not open: {error}"]


# -- a broker under load, or while it starts ------------------------------------------------------------------------


def _kill_a_broker(bench: Bench, kill: Kill) -> Iterator[str]:
    life = bench.life(kill.provider)
    weights = bench.rng.choice(((34, 33, 33), (5, 0, 95), (5, 60, 35), (90, 5, 5)))
    plan = Plan(bench.rng.randrange(1 << 32), weights)
    broker = bench.broker(life.provider, life.data_dir)
    anyio.run(_load_until, broker, life.account, plan, time.monotonic() + kill.after_s)
    code = broker.kill()
    if code != -signal.SIGKILL:
        yield f"the broker ended before it was killed, with code {code}: {broker.log_text()}"
    broker.forget()
    yield from _after_a_kill(bench, life)


async def _load_until(broker: WarmBroker, account: Account, plan: Plan, end: float) -> None:
    while not broker.is_ready():
        if time.monotonic() > end or not broker.is_alive:
            return
        await anyio.sleep(0.003)
    load = Load(broker.url, account, plan)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(load.run)
        await anyio.sleep(max(0.0, end - time.monotonic()) / 2)
        if plan.seed % 3 == 0:
            _kill_checkpointer(broker.pid)
        await anyio.sleep(max(0.0, end - time.monotonic()))
        broker.signal(signal.SIGKILL)
        # What is confirmed by now is on its way to the clients, and must be found, too.
        with anyio.move_on_after(LEFTOVER_WAIT_S):
            await load.stop.wait()
        load.stop.set()


def _kill_checkpointer(broker: int) -> None:
    """The broker's child, whatever it is doing; it is started again, and orders are given again."""
    # The system names the children of each thread, and any of them may have started it.
    for children in Path(f"/proc/{broker}/task").glob("*/children"):
        with suppress(ProcessLookupError, FileNotFoundError):
            for child in children.read_text().split():
                if b"checkpointer" in Path(f"/proc/{child}/cmdline").read_bytes():
                    os.kill(int(child), signal.SIGKILL)


def _after_a_kill(bench: Bench, life: Life) -> Iterator[str]:
    life.kills += 1
    verdict, contents = _look(bench, life)
    bench.count(verdict)
    if not verdict.sound:
        yield verdict.sentence()
        bench.lives.pop(life.provider)
        return
    life.account.rebase(contents, time.monotonic_ns())
    if life.kills >= KILLS_PER_DIRECTORY:
        bench.lives.pop(life.provider)
        yield from _end_of(bench, life)


def _look(bench: Bench, life: Life) -> tuple[Verdict, Contents]:
    """At a copy: the next broker is to do its own recovery."""
    _wait_for_leftovers(life)
    folder = bench.folder("copy")
    if life.data_dir.exists():
        shutil.copytree(life.data_dir, folder / "data")

    def look() -> tuple[Verdict, Contents]:
        store, state = open_store(folder / "data", life.provider, ballast_bytes=0)
        contents = stored(store, state)
        verdict = judge(life.account, contents, power_cut=False)
        verdict.lost += [f"check: {problem.what}" for problem in store.check()]
        verdict.lost += index_differences(store)
        return verdict, contents

    try:
        return in_fork(look)
    finally:
        shutil.rmtree(folder)


def _wait_for_leftovers(life: Life) -> None:
    """A killed broker's checkpointer ends by itself; a copy made meanwhile would be of two moments."""
    store = life.data_dir / "store"
    if life.provider == "lmdb" and store.exists():
        lock = WriterLock(store)
        lock.acquire(wait_s=LEFTOVER_WAIT_S)
        lock.release()


def _end_of(bench: Bench, life: Life) -> Iterator[str]:
    """A real broker hands out all that is left, and stops cleanly; then nothing is left."""
    broker = bench.broker(life.provider, life.data_dir)
    try:
        if not broker.wait_ready():
            yield f"the broker does not start: {broker.log_text()}"
            return
        verdict = judge(life.account, anyio.run(drained, broker.url), power_cut=False)
        bench.count(verdict)
        if not verdict.sound:
            yield f"drained at the end: {verdict.sentence()}"
        broker.signal(signal.SIGTERM)
        if code := broker.wait():
            yield f"it stopped with code {code}: {broker.log_text()}"
    finally:
        broker.kill()
        broker.forget()
        shutil.rmtree(life.data_dir.parent)


# -- compaction -----------------------------------------------------------------------------------------------------


def _kill_compact(bench: Bench, kill: Kill) -> Iterator[str]:
    life = bench.life(kill.provider)
    if not life.account.messages:
        yield from _kill_a_broker(bench, Kill(kill.number, kill.provider, "load", 0.8))
        life = bench.life(kill.provider)
    command = bench.warm.admin("compact", "--data-dir", life.data_dir)
    time.sleep(kill.after_s)
    code = command.kill()
    if code not in (0, -signal.SIGKILL):
        yield f"compact ended with code {code}: {command.log_text()}"
    command.forget()
    yield from _after_a_kill(bench, life)


# -- restore --------------------------------------------------------------------------------------------------------


def _kill_restore(bench: Bench, kill: Kill) -> Iterator[str]:
    """Killed while it replaces a directory by its own backup: all is there at once, and after a second restore."""
    folder = bench.folder("restore")
    data_dir, backup = folder / "data", folder / "backup"
    shutil.copytree(FIXTURES / f"store-v0-{kill.provider}", data_dir)
    _migrate(bench, data_dir)
    wanted = _contents_of(data_dir, kill.provider).copies
    _admin(bench, "backup", backup, "--data-dir", data_dir)
    words = ("restore", backup, "--data-dir", data_dir, "--yes")
    command = bench.warm.admin(*words)
    time.sleep(kill.after_s)
    command.kill()
    command.forget()
    bench.result.confirmed += len(wanted)
    for when in ("after the kill", "restored again"):
        found = _contents_of(data_dir, kill.provider).copies
        bench.result.lost += len(wanted.keys() - found.keys())
        if found != wanted:
            yield f"{when}: {len(wanted)} messages were there, {len(found)} are found"
        _admin(bench, *words)
    shutil.rmtree(folder)


def _admin(bench: Bench, *words: object) -> None:
    command = bench.warm.admin(*words)
    if code := command.wait():
        raise RuntimeError(f"{words[0]} ended with code {code}: {command.log_text()}")
    command.forget()


# -- migration ------------------------------------------------------------------------------------------------------


def _kill_migrate(bench: Bench, kill: Kill) -> Iterator[str]:
    """Killed, then run again: the store must be what an undisturbed migration makes."""
    folder = bench.folder("migrate")
    wanted, found = folder / "wanted", folder / "found"
    for target in (wanted, found):
        shutil.copytree(FIXTURES / f"store-v0-{kill.provider}", target)
    _migrate(bench, wanted)
    command = bench.warm.admin("migrate", "apply", "--yes", "--data-dir", found)
    time.sleep(kill.after_s)
    command.kill()
    command.forget()
    _migrate(bench, found)
    before, after = (_contents_of(path, kill.provider).copies for path in (wanted, found))
    bench.result.confirmed += len(before)
    lost, extra = before.keys() - after.keys(), after.keys() - before.keys()
    bench.result.lost += len(lost)
    bench.result.resurrected += len(extra)
    if before != after:
        yield f"after a second migrate: lost {lost}, new {extra}; {after}"
    shutil.rmtree(folder)


def _migrate(bench: Bench, data_dir: Path) -> None:
    command = bench.warm.admin("migrate", "apply", "--yes", "--data-dir", data_dir)
    code = command.wait()
    if code:
        raise RuntimeError(f"migrate ended with code {code}: {command.log_text()}")
    command.forget()


def _contents_of(data_dir: Path, provider: str) -> Contents:
    def look() -> Contents:
        store, state = open_store(data_dir, provider, ballast_bytes=0)
        problems = [problem.what for problem in store.check()]
        if problems:
            raise RuntimeError("; ".join(problems))
        if differences := index_differences(store):
            raise RuntimeError("; ".join(differences))
        return stored(store, state)

    return in_fork(look)


# -- a replay by the command line -----------------------------------------------------------------------------------


def _kill_replay(bench: Bench, kill: Kill) -> Iterator[str]:
    """The broker is killed twice under the job of `dlq replay`. It goes on by itself, the same command run again does
    the rest, nothing is doubled, and the account of the jobs balances."""
    folder = bench.folder("replay")
    data_dir = folder / "data"
    broker = bench.broker(kill.provider, data_dir)
    assert broker.wait_ready(), broker.log_text()
    ids = [f"parked-{number}-200" for number in range(LETTERS)]
    anyio.run(_reject_all, broker.url, ids)
    for _ in range(2):
        command = _replay(bench, broker.url, folder)
        time.sleep(kill.after_s)
        broker.kill()
        command.wait()
        broker = bench.broker(kill.provider, data_dir, port=broker.port)
        assert broker.wait_ready(), broker.log_text()
    command = _replay(bench, broker.url, folder)
    if code := command.wait():
        yield f"run again, the replay ended with code {code}: {command.log_text()}"
    if (done := anyio.run(_done_by_jobs, broker.url)) != len(ids):
        yield f"the jobs have counted {done} letters, not {len(ids)}"
    found = anyio.run(drained, broker.url).copies
    broker.kill()
    bench.result.confirmed += len(ids)
    bench.result.lost += len(set(ids) - found.keys())
    wrong = {i: copies for i, copies in found.items() if not _is_replayed_once(copies)}
    bench.result.resurrected += len(wrong)
    if wrong or set(ids) - found.keys():
        yield f"lost {sorted(set(ids) - found.keys())}, not replayed once {wrong}"
    shutil.rmtree(folder)


def _is_replayed_once(copies: list[Found]) -> bool:
    return len(copies) == 1 and copies[0].place == Place("queue", 1) and copies[0].intact


def _replay(bench: Bench, url: str, folder: Path) -> WarmBroker:
    words = ("dlq", "replay", "--queue", "parked", "--rate", "300", "--url", url)
    return bench.warm.admin(*words, environment={"XDG_STATE_HOME": str(folder)})


async def _done_by_jobs(url: str) -> int:
    async with vibemq.connect(url) as mq:
        return sum(job["done"] for job in (await mq.admin("job.list"))["jobs"])


async def _reject_all(url: str, ids: list[str]) -> None:
    async with vibemq.connect(url) as mq:
        await mq.create_queue("parked")
        await mq.publish_many("parked", [Outgoing(body_of(message_id), id=message_id) for message_id in ids])
        rejected = 0
        with anyio.fail_after(REJECT_TIMEOUT_S):
            while rejected < len(ids):
                for message in await mq.fetch("parked", max=len(ids), timeout=1):
                    message.reject("parked")
                    rejected += 1
        await mq.ping()


_KILLERS: dict[str, Callable[[Bench, Kill], Iterator[str]]] = {
    "load": _kill_a_broker,
    "start": _kill_a_broker,
    "compact": _kill_compact,
    "restore": _kill_restore,
    "migrate": _kill_migrate,
    "replay": _kill_replay,
}

METHOD = Method(
    name="kill-9",
    title="kill -9 with everything in flight",
    run=run,
    short=Size(cases=2, seconds=30),
    crash=Size(cases=45, seconds=90),
    torture=Size(cases=300, seconds=600),
    waits=True,
    missing=missing_compiler,
)
