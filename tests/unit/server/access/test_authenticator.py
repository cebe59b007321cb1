"""Logins under attack, in simulated time: what is counted is checks of passwords, not how long they take."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.integration.access import cheap_hash
from vibemq.auth import users as auth_users
from vibemq.auth.tokens import make_token
from vibemq.auth.users import Account, Accounts
from vibemq.errors import RateLimited, VibeMQError
from vibemq.model.access import LoginKind, Principal
from vibemq.model.records import TokenStored
from vibemq.protocols.session import Authenticate
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.authenticator import Authenticator
from vibemq.server.access.guessing import FAILURES_AT_ONCE, FLOOD_AT_ONCE, GuessLimiter
from vibemq.server.access.hashing import HASHED_TOGETHER_MAX, HASHED_UNDER_ATTACK, HashingThreads
from vibemq.server.access.login_queue import ADDRESS_MAX
from vibemq.server.access.revocation import Revocation
from vibemq.server.background_tasks import BackgroundTasks
from vibemq.server.clock import Clock
from vibemq.server.monitoring.metrics import Metrics

pytestmark = pytest.mark.anyio
CHECK_S = 0.04


@dataclass
class FakeSession:
    principal: Principal | None = None
    error: VibeMQError | None = None

    def authenticated(self, token: object, principal: Principal) -> None:
        self.principal = principal

    def refused(self, token: object, error: VibeMQError) -> None:
        self.error = error

    def tick(self, now: int) -> None:
        pass


@dataclass
class FakePeer:
    host: str
    session: Any = field(default_factory=FakeSession)
    number: int = 1
    connection_id: str = "c"
    protocol: str = "native"
    certified: tuple[str, ...] = ()
    pending: int = 0
    parted: bool = False
    leaving: bool = False
    busy: bool = False
    ending: bool = False

    @property
    def principal(self) -> Principal | None:
        found: Principal | None = self.session.principal
        return found

    @property
    def answered(self) -> bool:
        return self.principal is not None or self.session.error is not None

    def process(self) -> None: ...
    def wake(self) -> None: ...
    def decide(self, commands: Any) -> None: ...
    def dismiss(self, reason: str) -> None: ...
    def failed(self, error: Exception) -> None:
        raise error


class World:
    """Two threads that take CHECK_S of simulated time for a password."""

    def __init__(self, token: str | None = None) -> None:
        self.now_s = 0.0
        self.checks = 0
        self._checking = self.together = 0
        self.rested_s = 0.0
        self._running: list[tuple[float, asyncio.Future[None]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: list[FakePeer] = []
        accounts = Accounts([Account("ann", cheap_hash("right"), superuser=True)], token=token)
        clock = Clock()
        revocation = Revocation(accounts, clock, subscriptions=lambda number: [], any_parked=lambda: False, peers=list)
        self.accounts, self.guesses = accounts, GuessLimiter()
        self.authenticator = Authenticator(
            accounts,
            cast(BackgroundTasks, self),
            clock,
            Metrics(),
            hashing=cast(HashingThreads, self),
            revocation=revocation,
            audit=AuditLog(lambda: self.now_s),
            rehash=self._never,
            guesses=self.guesses,
            monotonic=lambda: self.now_s,
        )

    async def _never(self, *_: str) -> None:
        raise AssertionError

    def begin(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, failed: object) -> None:
        task = asyncio.get_running_loop().create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        done = asyncio.get_running_loop().create_future()
        self._running.append((self.now_s + CHECK_S, done))
        self.checks += 1
        self._checking += 1
        self.together = max(self.together, self._checking)
        await done
        self._checking -= 1
        return work(*arguments)

    async def rest(self, seconds: float) -> None:
        done = asyncio.get_running_loop().create_future()
        self._running.append((self.now_s + seconds, done))
        self.rested_s += seconds
        await done

    def token_of_ann(self) -> str:
        text, kept = make_token("ann", label="", now=0, expires_at=0, rules=None)
        self.accounts.apply([TokenStored(kept)])
        return text

    def ask(self, host: str, name: str, password: str) -> FakePeer:
        peer = FakePeer(host)
        self._peers.append(peer)
        self.authenticator.authenticate(cast(Any, peer), Authenticate("t", name, password))
        return peer

    async def go_on(self, seconds: float) -> None:
        self.now_s += seconds
        due = [entry for entry in self._running if entry[0] <= self.now_s]
        self._running = [entry for entry in self._running if entry[0] > self.now_s]
        for _, done in due:
            done.set_result(None)
        for _ in range(8):
            await asyncio.sleep(0)

    async def end(self) -> None:
        """Everybody leaves, and what is being checked comes to its end."""
        for peer in self._peers:
            peer.parted = True
        while self._running or self._tasks:
            await self.go_on(CHECK_S)

    async def until_answered(self, peer: FakePeer) -> float:
        began = self.now_s
        while not peer.answered:
            await self.go_on(0.001)
        return self.now_s - began


@pytest.mark.parametrize("name", ["ann", "nobody"])
async def test_a_thousand_wrong_logins_a_second_cost_few_checks_and_the_owner_gets_in(name: str) -> None:
    world = World()
    before = world.ask("198.51.100.1", "ann", "right")
    await world.until_answered(before)
    world.checks = 0
    owner_known = owner_fresh = None
    waits = {}
    for millisecond in range(10_000):
        world.ask(f"203.0.113.{millisecond % 50}", name, "wrong")
        if millisecond in (1_000, 8_000):
            began = world.now_s
            owner_known, owner_fresh = (
                world.ask(host, "ann", "right") for host in ("198.51.100.1", f"198.51.100.{millisecond // 100}")
            )
            waits[millisecond] = (began, owner_known, owner_fresh)
        await world.go_on(0.001)
        for moment, (began, known, fresh) in waits.items():
            if world.now_s - began >= 1.0:
                assert known.principal is not None, moment
                assert fresh.principal is not None, moment
    assert owner_known is not None
    # 5 are free, then 1 + 2 + 4 + 8 s are waited for; and the owner's four.
    assert world.checks <= 50 * 9 + 4
    assert world.together == HASHED_TOGETHER_MAX
    await world.end()


async def test_under_attack_checks_come_one_by_one_and_with_rests() -> None:
    world = World()
    for millisecond in range(5_000):
        world.ask(f"203.0.113.{millisecond % 200}", f"nobody-{millisecond}", "wrong")
        if millisecond == 2_500:
            world.together, checks, rested_s = 0, world.checks, world.rested_s
        await world.go_on(0.001)
    checked_s = (world.checks - checks) * CHECK_S
    assert world.together == HASHED_UNDER_ATTACK
    assert 0 < checked_s <= 2.5 / 2 + CHECK_S
    assert world.rested_s - rested_s >= checked_s - CHECK_S
    await world.end()


async def test_logins_that_came_at_once_are_refused_at_their_turn() -> None:
    world = World()
    peers = [world.ask("203.0.113.1", "ann", "wrong") for _ in range(ADDRESS_MAX + HASHED_TOGETHER_MAX + 10)]
    assert [type(peer.session.error) for peer in peers if peer.answered] == [RateLimited] * 10
    for peer in peers:
        await world.until_answered(peer)
    assert all(peer.pending == 0 for peer in peers)
    assert world.checks <= 5 + HASHED_TOGETHER_MAX - 1


async def test_who_has_left_is_not_checked() -> None:
    world = World()
    peers = [world.ask(f"203.0.113.{number}", "ann", "right") for number in range(5)]
    for peer in peers[2:]:
        peer.parted = True
    for _ in range(10):
        await world.go_on(CHECK_S)
    assert world.checks == 2
    assert all(peer.pending == 0 for peer in peers)


@dataclass
class StayingPeer(FakePeer):
    logged_in: Principal | None = None


async def test_who_leaves_during_the_check_has_logged_in_and_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "vibemq.audit")
    world = World()
    peer = StayingPeer("203.0.113.1")
    world.authenticator.authenticate(cast(Any, peer), Authenticate("t", "ann", "right"))
    await world.go_on(0.001)
    peer.parted = True
    await world.end()
    assert [record.__dict__["event"] for record in caplog.records] == ["auth.login", "auth.logout"]
    assert peer.logged_in is None


@pytest.fixture
def costs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Of every password check: the kind and parameters of the hash."""
    noted: list[str] = []
    verify = auth_users.verify_password

    def noting(password: str, stored: str) -> bool:
        noted.append(auth_users.cost_of(stored))
        return verify(password, stored)

    monkeypatch.setattr(auth_users, "verify_password", noting)
    return noted


async def test_an_unknown_name_costs_one_check_as_a_known_one(costs: list[str]) -> None:
    world = World()
    for name in ("ann", "nobody", "x" * 10_000, "\udc80"):
        await world.until_answered(world.ask("203.0.113.1" + name[:1], name, "wrong"))
    assert len(costs) == world.checks == 4
    assert len(set(costs)) == 1


async def test_a_secret_offered_as_token_and_as_password_is_checked_once(costs: list[str]) -> None:
    """As the OCaml protocol offers it."""
    for token in (None, "shared"):
        world = World(token)
        costs.clear()
        peers = [FakePeer("203.0.113.1"), FakePeer("203.0.113.2")]
        for peer, secret in zip(peers, ("right", "wrong"), strict=True):
            world.authenticator.authenticate(cast(Any, peer), Authenticate("t", "ann", secret, secret))
            await world.until_answered(peer)
        assert [peer.principal is not None for peer in peers] == [True, False]
        assert len(costs) == 2


@pytest.mark.parametrize("came_ms", [0, 20, 37, 60, 100, 500])
async def test_an_owner_who_comes_as_an_attack_begins_waits_for_few_checks(came_ms: int) -> None:
    """Fifty addresses are as new as the owner's; but each asks again before it has had its answer."""
    world = World()
    owner, checks, waited_s = None, 0, 0.0
    for millisecond in range(came_ms + 1_000):
        world.ask(f"203.0.113.{millisecond % 50}", "ann" if millisecond % 2 else f"nobody-{millisecond}", "wrong")
        if millisecond == came_ms:
            owner, checks, waited_s = world.ask("198.51.100.7", "ann", "right"), world.checks, -world.now_s
        await world.go_on(0.001)
        if owner is not None and owner.answered:
            break
    checks, waited_s = world.checks - checks, waited_s + world.now_s
    await world.end()
    assert owner is not None
    assert owner.principal is not None
    assert checks <= 12
    assert waited_s < 8 * CHECK_S


async def test_the_form_of_an_access_token_is_no_way_around_the_wait_for_guesses_of_the_shared_token() -> None:
    world = World("shared")
    access_token = f"vmq_{'0' * 12}_{'0' * 64}"
    for guess in (*map(str, range(20)), "shared"):
        peer = FakePeer("203.0.113.1")
        world.authenticator.authenticate(cast(Any, peer), Authenticate("t", "", access_token, guess))
        assert str(peer.session.error) == "the token is not valid", guess
        assert peer.principal is None


LOGINS = {
    "password": LoginKind.PASSWORD,
    "certificate": LoginKind.CERTIFICATE,
    "access token": LoginKind.TOKEN,
    "shared token": LoginKind.TOKEN,
}


@pytest.mark.parametrize("means", LOGINS)
async def test_an_address_from_which_somebody_has_logged_in_may_connect_as_it_likes(means: str) -> None:
    world = World("shared")
    text = world.token_of_ann()
    for number in range(FLOOD_AT_ONCE + 1):
        world.guesses.failed(f"10.0.{number // 250}.{number % 250}", "ann", world.now_s)
    peer = FakePeer("198.51.100.1", certified=("ann",) if means == "certificate" else ())
    requests = {
        "password": Authenticate("t", "ann", "right"),
        "certificate": Authenticate("t"),
        "access token": Authenticate("t", "ann", "", text),
        "shared token": Authenticate("t", "", "", "shared"),
    }
    world.authenticator.authenticate(cast(Any, peer), requests[means])
    await world.until_answered(peer)
    assert peer.principal is not None
    assert bool(peer.principal.token_id) == (means == "access token")
    assert peer.principal.login is LOGINS[means]
    turns_away = world.guesses.turns_away
    assert not any(turns_away("198.51.100.1", world.now_s) for _ in range(100))
    assert any(turns_away("198.51.100.2", world.now_s) for _ in range(100))
    await world.end()


@pytest.mark.parametrize("attacked", [True, False])
async def test_password_checks_that_are_asked_for_are_a_flood_while_many_logins_fail(attacked: bool) -> None:
    """When all clients come back at once to a broker that was restarted, that is none."""
    world = World()
    for number in range(FAILURES_AT_ONCE + 1 if attacked else 0):
        world.guesses.failed(f"10.1.0.{number}", f"user{number}", world.now_s)
    for number in range(FLOOD_AT_ONCE + 1):
        world.ask(f"10.0.{number // 250}.{number % 250}", "ann", "right")
    assert any(world.guesses.turns_away("198.51.100.2", world.now_s) for _ in range(100)) == attacked
    await world.end()


async def test_a_hundred_new_addresses_get_in_while_three_logins_a_second_fail() -> None:
    world = World()
    for tenth in range(600):
        if tenth % 3 == 0:
            world.ask(f"10.0.{tenth // 250}.{tenth % 250}", f"user{tenth}", "wrong")
        await world.go_on(0.1)
    assert world.guesses.is_attacked(world.now_s)
    text = world.token_of_ann()
    pods = [FakePeer(host) for number in range(100) for host in (f"198.51.100.{number}", "192.0.2.1")]
    assert not any(world.guesses.turns_away(pod.host, world.now_s) for pod in pods)
    for pod in pods:
        world.authenticator.authenticate(cast(Any, pod), Authenticate("t", "", "", text))
    assert all(pod.principal is not None for pod in pods)
    await world.end()


async def test_a_right_access_token_forgives_no_wrong_passwords() -> None:
    world = World()
    text = world.token_of_ann()
    for _ in range(8):
        world.guesses.failed("203.0.113.1", "ann", world.now_s)
    peer = FakePeer("203.0.113.1")
    world.authenticator.authenticate(cast(Any, peer), Authenticate("t", "ann", "", text))
    assert peer.principal is not None
    assert "try again in" in str(world.ask("203.0.113.1", "ann", "right").session.error)
