"""Changes of users that wait, that the disk refuses, and of users who have somebody else's name."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.integration.access import cheap_hash
from tests.unit.operations.test_tokens import FakeClock
from vibemq.auth.rules import make_rule
from vibemq.auth.tokens import make_token
from vibemq.auth.users import Account, Accounts
from vibemq.errors import (
    AuthFailed,
    Forbidden,
    InvalidPayload,
    NotAuthorized,
    RateLimited,
    StorageFull,
    TokenNotFound,
    UserNotFound,
    VibeMQError,
)
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.model.accounts import StoredUser
from vibemq.model.commands import ChangeAccounts
from vibemq.model.effects import Counted
from vibemq.model.records import TokenStored, UserRemoved, UserStored
from vibemq.operations import OPERATIONS
from vibemq.operations.registry import Registry
from vibemq.operations.tokens import TOKEN_RULES_MAX, USER_RULES_MAX, Tokens
from vibemq.operations.users import Users

ROOT = Account("root", cheap_hash(), superuser=True)


@dataclass
class World:
    """Users of one broker; the store and the hashes are the test's."""

    accounts: Accounts = field(default_factory=lambda: Accounts([ROOT]))
    clock: FakeClock = field(default_factory=FakeClock)
    stored: list[list[Any]] = field(default_factory=list)
    full: bool = False
    makes_hashes: bool = False
    """Whether a new password is being hashed."""
    hashing: Callable[[], None] = field(default=lambda: None)
    """What happens while a password is hashed."""

    def __post_init__(self) -> None:
        self.users = Users(self.accounts, self, self, self._end, self.clock)
        services = (self.users, Tokens(self.accounts, self.users, self.clock))
        known = [operation for operation in OPERATIONS if operation.service in map(type, services)]
        self.registry = Registry(
            self.accounts.policy, known, services, ended=lambda who: self.accounts.ended(who, self.clock.now())
        )

    async def ask(self, make: Callable[[int, int], Any]) -> Any:
        command = make(0, 1)
        assert isinstance(command, ChangeAccounts)
        if self.full:
            raise StorageFull("the disk is full")
        self.stored.append(command.records)
        return Counted(len(command.records))

    async def hash_password(self, password: str) -> str:
        self.hashing()
        return cheap_hash(password)

    async def _end(self, users: Collection[str]) -> None:
        pass

    def log_in(self, name: str) -> Principal:
        return self.accounts.authenticate(name, "pw", "", self.clock.now())

    def carry_out(self, principal: Principal, operation: str, arguments: Mapping[str, Any]) -> Any:
        return asyncio.run(self.registry.admit(principal, operation, arguments).run())

    def store(self, *changes: Any) -> None:
        self.accounts.apply(changes)


def user(name: str, *, superuser: bool = False, made_at: int = 1) -> UserStored:
    return UserStored(StoredUser(name, cheap_hash(), superuser, (), made_at, made_at))


CHANGES: dict[str, dict[str, Any]] = {
    "user.add": {"user": "eve", "password": "pw"},
    "user.change": {"user": "bob", "superuser": True},
    "user.remove": {"user": "bob"},
    "user.password": {"user": "bob", "password": "new"},
    "user.grant": {"user": "bob", "queues": "*", "actions": ["*"]},
    "user.revoke": {"user": "bob", "queues": "a"},
    "token.create": {"user": "bob"},
    "token.revoke": {"token_id": "0" * 12},
}
LOSSES: dict[str, tuple[list[Any], type[VibeMQError]]] = {
    "demoted": ([user("ann")], NotAuthorized),
    "removed": ([UserRemoved("ann")], AuthFailed),
}


@pytest.mark.parametrize("operation", CHANGES)
@pytest.mark.parametrize(("loss", "error"), LOSSES.values(), ids=LOSSES)
def test_who_has_lost_the_right_while_the_request_waited_has_nothing_changed(
    operation: str, loss: list[Any], error: type[VibeMQError]
) -> None:
    world = World()
    world.store(user("ann", superuser=True), user("bob"))
    call = world.registry.admit(world.log_in("ann"), operation, CHANGES[operation])

    async def behind_another() -> None:
        async with world.users.changing:
            waiting = asyncio.ensure_future(call.run())
            while not waiting.done() and not world.users.changing.statistics().tasks_waiting:
                await asyncio.sleep(0)
            world.store(*loss)
        await waiting

    with pytest.raises(error):
        asyncio.run(behind_another())
    assert world.stored == []


def test_a_password_is_not_given_to_who_was_given_the_name_meanwhile() -> None:
    world = World()
    world.store(user("ann"))
    world.hashing = lambda: world.store(UserRemoved("ann"), user("ann", made_at=2))
    with pytest.raises(UserNotFound, match="made anew"):
        world.carry_out(world.log_in("root"), "user.password", {"user": "ann", "password": "new"})
    assert world.stored == []


def test_a_new_user_has_no_tokens_of_a_user_of_the_settings_who_had_the_name() -> None:
    world = World(Accounts([ROOT, Account("ann", cheap_hash())]))
    text, kept = make_token("ann", label="", now=1, expires_at=0, rules=None)
    world.store(TokenStored(kept))
    world.accounts.replace([ROOT], token=None)
    world.carry_out(world.log_in("root"), "user.add", {"user": "ann", "password": "pw", "superuser": True})
    with pytest.raises(AuthFailed, match="not valid"):
        world.accounts.authenticate("", "", text, 1)
    assert [type(record).__name__ for record in world.stored[0]] == ["TokenRemoved", "UserStored"]


@pytest.mark.parametrize("keep", [True, False])
def test_a_refused_change_of_a_password_ends_no_login_and_lets_none_stay(keep: bool) -> None:
    world = World()
    world.store(user("ann"))
    root, first = world.log_in("root"), world.log_in("ann")
    change = {"user": "ann", "password": "new", "keep_connections": True}
    world.carry_out(root, "user.password", change)
    assert world.accounts.ended(first, 1) == ""
    second = world.accounts.authenticate("ann", "new", "", 1)
    world.full = True
    with pytest.raises(StorageFull):
        world.carry_out(root, "user.password", {**change, "password": "newer", "keep_connections": keep})
    assert [world.accounts.ended(login, 1) for login in (first, second)] == ["", ""]
    world.full = False
    world.carry_out(root, "user.change", {"user": "ann", "superuser": False})
    world.store(UserStored(StoredUser("ann", cheap_hash("other"), False, (), 1, 2)))
    assert world.accounts.ended(second, 1), "nobody has asked to keep it"


def test_a_change_of_a_password_says_how_many_tokens_outlive_it() -> None:
    world = World()
    world.store(user("ann"))
    for whose, expires_at in (("ann", 0), ("ann", 10**15), ("ann", 1), ("root", 0)):
        world.store(TokenStored(make_token(whose, label="", now=1, expires_at=expires_at, rules=None)[1]))
    told = world.carry_out(world.log_in("root"), "user.password", {"user": "ann", "password": "new"})
    assert told == {"user": "ann", "tokens": 2}


def test_whoever_makes_a_superuser_hears_which_tokens_become_one_with_it() -> None:
    world = World()
    world.store(user("ann"), user("root", superuser=True))
    narrow = (Rule(ResourceKind.QUEUE, "q", frozenset({"publish"})),)
    for expires_at, rules in ((0, None), (10**15, None), (1, None), (0, narrow)):
        world.store(TokenStored(make_token("ann", label="", now=1, expires_at=expires_at, rules=rules)[1]))
    root = world.log_in("root")
    for superuser, count in ((True, 2), (True, 0), (False, 0)):
        told = world.carry_out(root, "user.change", {"user": "ann", "superuser": superuser})
        assert told == {"user": "ann", "superuser": superuser, "tokens": count}


def test_who_is_no_superuser_has_one_new_password_hashed_at_a_time() -> None:
    world = World()
    world.store(user("ann"), user("root", superuser=True))
    held = asyncio.Event()
    begun: list[str] = []

    async def hash_later(password: str) -> str:
        begun.append(password)
        await held.wait()
        return cheap_hash(password)

    world.hash_password = hash_later  # type: ignore[method-assign]
    ann, root = world.log_in("ann"), world.log_in("root")

    async def change(caller: Principal, password: str) -> Any:
        wanted = {"user": "ann", "password": password}
        return await world.registry.admit(caller, "user.password", wanted).run()

    async def all_at_once() -> list[Any]:
        waiting = [asyncio.create_task(change(ann, f"own {number}")) for number in range(30)]
        waiting += [asyncio.create_task(change(root, f"root's {number}")) for number in range(2)]
        for _ in range(5):
            await asyncio.sleep(0)
        held.set()
        return await asyncio.gather(*waiting, return_exceptions=True)

    answers = asyncio.run(all_at_once())
    assert begun == ["own 0", "root's 0", "root's 1"]
    assert [type(answer) for answer in answers[1:30]] == [RateLimited] * 29
    assert answers[31] == {"user": "ann", "tokens": 0}
    assert answers[0] == answers[31] or isinstance(answers[0], AuthFailed)


@pytest.mark.parametrize(
    ("named", "said"), [({}, "nobody has a token 'x'"), ({"user": "ann"}, "user 'ann' has no token 'x'")]
)
def test_a_token_that_is_not_there_is_said_to_be_nobodys(named: dict[str, str], said: str) -> None:
    world = World()
    with pytest.raises(TokenNotFound, match=said):
        world.carry_out(world.log_in("root"), "token.revoke", {**named, "token_id": "x"})


def test_a_whole_token_is_revoked_by_its_id_and_its_secret_is_not_repeated() -> None:
    world = World()
    world.store(user("ann"))
    root = world.log_in("root")
    made = world.carry_out(root, "token.create", {"user": "ann"})
    call = world.registry.admit(root, "token.revoke", {"token_id": made["token"]})
    assert call.told(None)["token_id"] == made["token_id"]
    assert asyncio.run(call.run())["token_id"] == made["token_id"]
    assert world.accounts.token_ids() == []
    with pytest.raises(TokenNotFound) as refused:
        world.carry_out(root, "token.revoke", {"token_id": f"{made['token']} "})
    assert made["token"][17:40] not in str(refused.value)
    assert made["token_id"] in str(refused.value)


def test_the_permissions_of_tokens_are_bounded_for_each_and_for_each_user() -> None:
    world = World()
    world.store(user("ann"), user("bob"))
    root = world.log_in("root")
    rules = [{"queues": f"q{number}", "actions": ["publish"]} for number in range(TOKEN_RULES_MAX + 1)]
    with pytest.raises(InvalidPayload, match=r"permissions of token\.create must have at most 50 items"):
        world.carry_out(root, "token.create", {"user": "ann", "permissions": rules})
    # Kept by an older version, which had another bound: it counts, and is valid.
    many = tuple(map(make_rule, rules)) * (USER_RULES_MAX // len(rules))
    text, old = make_token("ann", label="", now=1, expires_at=0, rules=many)
    world.store(TokenStored(old))
    assert world.accounts.authenticate("", "", text, world.clock.now()).name == "ann"
    left = USER_RULES_MAX - len(many)
    world.carry_out(root, "token.create", {"user": "ann", "permissions": rules[:left]})
    with pytest.raises(Forbidden, match=f"have {USER_RULES_MAX} permissions, and 1 more would be more than"):
        world.carry_out(root, "token.create", {"user": "ann", "permissions": rules[:1]})
    world.carry_out(root, "token.create", {"user": "ann"})
    world.carry_out(root, "token.create", {"user": "bob", "permissions": rules[:1]})
    world.carry_out(root, "token.revoke", {"token_id": old.token_id})
    world.carry_out(root, "token.create", {"user": "ann", "permissions": rules[:1]})


def test_a_password_that_was_right_is_hashed_again_when_nobody_waits_for_a_new_one() -> None:
    world, hashed = World(), []
    world.store(user("ann"))
    world.hashing = lambda: hashed.append("ann")
    stored = world.accounts.stored_user("ann")
    assert stored is not None
    world.makes_hashes = True
    asyncio.run(world.users.rehash("ann", "pw", stored.password_hash))
    assert (hashed, world.stored) == ([], [])
    world.makes_hashes = False
    asyncio.run(world.users.rehash("ann", "pw", stored.password_hash))
    assert (hashed, len(world.stored)) == (["ann"], 1)
