"""kill -9 and power cuts while users, permissions and tokens change beside publishes; one store lives through many.

Several operators change people of their own, one thing after the other. What was answered must be in the store
afterwards; the one change of each that was under way is there as a whole, or not at all.
"""

import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import anyio

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.access import cheap_hash
from tests.proof.contents import open_store
from tests.proof.contract import Budget, Finding, Method, Result, Size
from tests.proof.forked import in_fork
from tests.proof.kill_bench import SETTINGS
from tests.proof.kills import LEFTOVER_WAIT_S
from tests.proof.loop_disk import LoopDisk, file_systems, loop_disk, missing_loop_disk
from tests.proof.shim import missing_compiler
from tests.proof.warm import WarmBroker, WarmBrokers, import_everything, warm_brokers
from vibemq.auth.passwords import verify_password
from vibemq.auth.rules import written
from vibemq.auth.tokens import fits
from vibemq.errors import VibeMQError
from vibemq.model.accounts import StoredToken
from vibemq.model.stored import StoredState
from vibemq.storage.lmdb.environment.writer_lock import WriterLock

PEOPLE, OPERATORS = 6, 3
LONGEST_S = 0.4
PROVIDERS = ("lmdb", "sqlite")
AUTH = '[auth]\nsuperuser = "root"\nsuperuser_password = "pw"\n'
BUSY_SHARE = 0.9
"""Of the kills: those that come when changes are answered, however long the operators' logins take."""
LOGIN_TIMEOUT_S = 5.0
POWER_CUT_EVERY = 10
FIRST_POWER_CUT = 2
"""Early enough for the short form."""
VERBS = ("user.add", "user.change", "user.password", "user.grant", "user.revoke", "user.remove")
VERBS += ("token.create", "token.revoke")
VERBS_SHOWN_BY = 50
"""So many kills have each of them answered; if one is not, it does not work."""
NOTICE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class State:
    """What the store should have of a user."""

    secret: str
    """A password when it was changed, before that the hash."""
    superuser: bool = False
    rules: frozenset[tuple[str, tuple[str, ...]]] = frozenset()
    tokens: frozenset[tuple[str, str]] = frozenset()
    """(label, pattern that it is narrowed to; "" = not narrowed)"""


@dataclass(slots=True)
class Person:
    name: str
    known: State | None = None
    """As the last answer says; None = there is no such user."""
    under_way: tuple[State | None, ...] = ()
    """What comes of the change that was not answered."""
    token_ids: dict[str, str] = field(default_factory=dict)
    """By label."""
    texts: dict[str, str] = field(default_factory=dict)
    """What the answers said that the tokens are, by label."""


@dataclass(slots=True)
class Life:
    provider: str
    data_dir: Path
    people: list[Person] = field(default_factory=lambda: [Person(f"user-{n}") for n in range(PEOPLE)])
    answered: Counter[str] = field(default_factory=Counter)
    """Changes by operation."""


# -- what operators do ----------------------------------------------------------------------------------------------


async def operate(url: str, life: Life, people: list[Person], rng: Random) -> None:
    """Until the broker has gone."""
    with suppress(VibeMQError):
        async with vibemq.connect(url, username="root", password="pw") as mq:
            while True:
                person = rng.choice(people)
                verb, arguments, after = _change(person, rng)
                person.under_way = (after,)
                answer = await mq.admin(verb, user=person.name, **arguments)
                if verb == "token.create":
                    person.token_ids[arguments["label"]] = answer["token_id"]
                    person.texts[arguments["label"]] = answer["token"]
                person.known, person.under_way = after, ()
                life.answered[verb] += 1


def _change(person: Person, rng: Random) -> tuple[str, dict[str, Any], State | None]:
    """(operation, arguments, what it makes of the user)"""
    state = person.known
    if state is None:
        hashed = cheap_hash(str(rng.random()))
        return "user.add", {"password_hash": hashed}, State(hashed)
    if state.superuser:
        return "user.change", {"superuser": False}, replace(state, superuser=False)
    pattern = f"{rng.randrange(5)}.*"
    match rng.choices(range(7), (6, 3, 2, 5, 3, 1, 0.5))[0]:
        case 0:
            actions = tuple(sorted(rng.sample(("publish", "subscribe", "inspect"), 2)))
            others = frozenset(rule for rule in state.rules if rule[0] != pattern)
            rules = others | {(pattern, actions)}
            return "user.grant", {"queues": pattern, "actions": actions}, replace(state, rules=rules)
        case 1:
            rules = frozenset(rule for rule in state.rules if rule[0] != pattern)
            return "user.revoke", {"queues": pattern}, replace(state, rules=rules)
        case 2:
            return "user.change", {"superuser": True}, replace(state, superuser=True)
        case 3:
            label = f"label-{rng.getrandbits(48)}"
            narrowed = rng.choice(("", pattern))
            permissions = {"permissions": [{"queues": narrowed, "actions": ["publish"]}]} if narrowed else {}
            after = replace(state, tokens=state.tokens | {(label, narrowed)})
            return "token.create", {"label": label, **permissions}, after
        case 4 if state.tokens:
            gone = rng.choice(sorted(state.tokens))
            arguments = {"token_id": person.token_ids[gone[0]]}
            return "token.revoke", arguments, replace(state, tokens=state.tokens - {gone})
        case 5:
            password = f"password {rng.getrandbits(48)}"
            return "user.password", {"password": password}, replace(state, secret=password)
        case _:
            return "user.remove", {}, None


async def publish(url: str) -> None:
    with suppress(VibeMQError):
        async with vibemq.connect(url, username="root", password="pw") as mq:
            while True:
                await mq.publish("beside", b"x" * 200)


async def work(url: str, life: Life, rng: Random, seconds: float) -> None:
    """As much as there is time for."""
    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, url)
            for number in range(OPERATORS):
                tasks.start_soon(operate, url, life, life.people[number::OPERATORS], Random(rng.random()))


# -- what is left of it ---------------------------------------------------------------------------------------------


def complaints(life: Life, state: StoredState) -> Iterator[str]:
    """What was answered and does not hold; then the store is believed."""
    for person in life.people:
        user = state.users.get(person.name)
        own = {token.label: token for token in state.tokens.values() if token.user == person.name}
        tokens = frozenset((label, _narrowed(token)) for label, token in own.items())
        found = None
        if user is not None:
            rules = frozenset((str(rule["queues"]), tuple(rule["actions"])) for rule in map(written, user.rules))
            found = State(user.password_hash, user.superuser, rules, tokens)
        matching = [one for one in (person.known, *person.under_way) if _is(one, found)]
        if not matching or (found is None and tokens):
            yield f"{person.name} is {found} with tokens {sorted(own)}; known {person.known}, or {person.under_way}"
            matching = [found]
        person.texts = {label: text for label, text in person.texts.items() if label in own}
        for label, text in person.texts.items():
            if not fits(text, own[label]):
                yield f"token {label} of {person.name} is not the one that was answered"
        person.known, person.under_way = matching[0], ()
        person.token_ids = {label: token.token_id for label, token in own.items()}


def _narrowed(token: StoredToken) -> str:
    return "" if token.rules is None else ",".join(rule.pattern for rule in token.rules)


def _is(expected: State | None, found: State | None) -> bool:
    if expected is None or found is None:
        return expected is found
    if replace(expected, secret=found.secret) != found:
        return False
    if expected.secret == found.secret:
        return True
    return expected.secret.startswith("password ") and verify_password(expected.secret, found.secret)


def _look(life: Life) -> tuple[StoredState, list[str]]:
    """At the store itself, which is let go without a further write: the next broker does its own recovery."""
    store = life.data_dir / "store"
    if life.provider == "lmdb" and store.exists():
        lock = WriterLock(store)
        lock.acquire(wait_s=LEFTOVER_WAIT_S)
        lock.release()
    copy = life.data_dir.with_name("copy")
    shutil.copytree(life.data_dir, copy)

    def look() -> tuple[StoredState, list[str]]:
        opened, state = open_store(copy, life.provider, ballast_bytes=0)
        return state, [problem.what for problem in opened.check()]

    try:
        return in_fork(look)
    finally:
        shutil.rmtree(copy)


def _judge(life: Life) -> list[str]:
    state, problems = _look(life)
    return [*complaints(life, state), *(f"check: {problem}" for problem in problems)]


# -- kills and cuts -------------------------------------------------------------------------------------------------


def _config(folder: Path, provider: str) -> Path:
    config = folder / f"users-{provider}.toml"
    config.write_text(f"{AUTH}[storage.settings]\n{SETTINGS[provider]}")
    return config


def _kill(warm: WarmBrokers, life: Life, rng: Random, work_dir: Path) -> list[str]:
    broker: WarmBroker = warm.start(
        life.data_dir, "--storage", life.provider, "--config", str(_config(work_dir, life.provider))
    )
    if not broker.wait_ready():
        return [f"the broker does not start: {broker.log_text()}"]

    waits = rng.random() < BUSY_SHARE

    async def until_killed() -> None:
        before = life.answered.total()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, broker.url, life, rng, NOTICE_TIMEOUT_S)
            with anyio.move_on_after(LOGIN_TIMEOUT_S if waits else 0):
                while life.answered.total() == before:
                    await anyio.sleep(0.003)
            await anyio.sleep(rng.uniform(0, LONGEST_S))
            broker.signal(signal.SIGKILL)
            # What is answered by now is on its way to the operators, and must be found, too.
            await anyio.sleep(0.05)
            tasks.cancel_scope.cancel()

    anyio.run(until_killed)
    broker.kill()
    broker.forget()
    return _judge(life)


def _cut(disk: LoopDisk, number: int, provider: str, rng: Random, work_dir: Path) -> tuple[Life, list[str]]:
    """A store of its own, on a disk that loses its power."""
    life = Life(provider, disk.folder / f"users-{number}" / "data")
    life.data_dir.parent.mkdir()
    broker = BrokerProcess(
        life.data_dir,
        provider=provider,
        arguments=("--config", str(_config(work_dir, provider))),
        log=work_dir / "cut.log",
    )
    broker.start(prefix=("setpriv", "--pdeathsig", "KILL"))

    async def until_cut() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(work, broker.url, life, rng, NOTICE_TIMEOUT_S)
            await anyio.sleep(rng.uniform(0.3, 2 * LONGEST_S))
            disk.cut()
            with anyio.move_on_after(NOTICE_TIMEOUT_S):
                while broker.is_alive:
                    await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()

    try:
        anyio.run(until_cut)
        if broker.is_alive:
            broker.kill()
        else:
            broker.wait()
        disk.unmount()
        disk.mount()
        return life, _judge(life)
    finally:
        if broker.is_alive:
            broker.kill()
        shutil.rmtree(life.data_dir.parent, ignore_errors=True)


def run(budget: Budget) -> Result:
    result = Result(unit="kills")
    deadline = time.monotonic() + budget.seconds
    import_everything()
    lives = {provider: Life(provider, budget.work / provider / "data") for provider in PROVIDERS}
    cuts = 0
    answered = Counter[str]()
    with ExitStack() as stack:
        warm = stack.enter_context(warm_brokers(budget.work))
        kinds = [] if missing_loop_disk() else sorted(file_systems(), reverse=True)
        disk = stack.enter_context(loop_disk(budget.work, kinds[0])) if kinds else None
        # A cut ext4 lies about flushes of files that grow, as SQLite's log does (see `power_cut.Cut.disk_lies`).
        on_disk = ("lmdb",) if kinds[:1] == ["ext4"] else PROVIDERS
        for number in range(budget.cases):
            if time.monotonic() > deadline:
                result.complete = False
                break
            rng, provider = Random(f"{budget.seed}/{number}"), PROVIDERS[number % len(PROVIDERS)]
            if disk is not None and number % POWER_CUT_EVERY == FIRST_POWER_CUT:
                cuts += 1
                life, found = _cut(disk, number, on_disk[cuts % len(on_disk)], rng, budget.work)
                answered += life.answered
            else:
                found = _kill(warm, lives[provider], rng, budget.work)
            result.cases += 1
            result.lost += len(found)
            result.findings += [Finding(f"{number}, {provider}: {what}", f"seed {budget.seed}") for what in found]
    for life in lives.values():
        answered += life.answered
    result.confirmed = answered.total()
    result.figures |= {"power cuts": cuts, **{f"answered: {verb}": answered[verb] for verb in VERBS}}
    if result.cases >= VERBS_SHOWN_BY and (never := [verb for verb in VERBS if not answered[verb]]):
        result.findings.append(Finding(f"nothing was proved about {', '.join(never)}", f"seed {budget.seed}"))
    if result.cases and not answered:
        result.findings.append(Finding("no change was answered, so nothing is proved", f"seed {budget.seed}"))
    return result


METHOD = Method(
    name="users",
    title="kill -9 and power cuts while users change",
    run=run,
    short=Size(cases=2, seconds=30),
    # Every tenth is a power cut, the others are kills.
    crash=Size(cases=200, seconds=170),
    torture=Size(cases=1_000, seconds=640),
    waits=True,
    missing=missing_compiler,
)
