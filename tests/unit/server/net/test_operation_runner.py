"""Operations that wait until others have read enough."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.unit.server.access.test_audit import Kept, Somebody
from vibemq.auth.policy import Policy
from vibemq.auth.users import ANONYMOUS
from vibemq.errors import NotAuthorized, QueueNotFound, RateLimited, VibeMQError
from vibemq.model.access import LoginKind, Principal, ResourceKind, Rule
from vibemq.operations import OPERATIONS, OwnLimit, Registry
from vibemq.operations.arguments import Arguments, CanBeTried
from vibemq.operations.registry import Caller, Operation
from vibemq.operations.users import OfUser
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.operation_runner import (
    OWN_CHANGE_EVERY_S,
    OWN_CHANGES_AT_ONCE,
    SCANS_TOGETHER_MAX,
    OperationRunner,
)

pytestmark = pytest.mark.anyio
EVERY_QUEUE = (Rule(ResourceKind.QUEUE, "*", frozenset({"purge"})),)


class SlowPurge:
    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun = 0

    async def purge(self, caller: Caller, wanted: Arguments) -> int:
        self.begun += 1
        await self.may_end.wait()
        return 1


def runner_of(registry: Registry, audit: AuditLog, monotonic: Callable[[], float] = lambda: 0.0) -> OperationRunner:
    """Nothing is begun in tasks of its own."""
    nothing = cast(Any, None)
    return OperationRunner(
        registry, nothing, Metrics(), audit, CommandAudit(audit, {}), lambda error: None, monotonic=monotonic
    )


async def test_who_loses_the_right_while_others_read_has_nothing_done() -> None:
    policy, slow = Policy({"ann": EVERY_QUEUE}), SlowPurge()
    operation = Operation("dlq.purge", "Slow.", Arguments, SlowPurge, task=SlowPurge.purge, scans=True)
    registry, audit = Registry(policy, [operation], [slow]), AuditLog(lambda: 0.0)
    runner = runner_of(registry, audit)
    calls = [registry.admit(Principal("ann"), "dlq.purge", {}) for _ in range(SCANS_TOGETHER_MAX // 2 + 1)]
    running = [asyncio.ensure_future(runner.carried_out(Somebody(), call)) for call in calls]
    while slow.begun < SCANS_TOGETHER_MAX // 2:
        await asyncio.sleep(0)
    policy.put("ann", (), superuser=False)
    slow.may_end.set()
    answers = await asyncio.gather(*running)
    assert answers[:-1] == [1] * (SCANS_TOGETHER_MAX // 2)
    assert isinstance(answers[-1], NotAuthorized)
    assert slow.begun == SCANS_TOGETHER_MAX // 2


@pytest.mark.parametrize("open_broker", [False, True])
async def test_who_reads_much_leaves_places_for_others(open_broker: bool) -> None:
    """Of a broker without users it is the address."""
    policy, slow = Policy({"ann": EVERY_QUEUE, "bob": EVERY_QUEUE}, superusers=["anonymous"]), SlowPurge()
    operation = Operation("dlq.purge", "Slow.", Arguments, SlowPurge, task=SlowPurge.purge, scans=True)
    registry = Registry(policy, [operation], [slow])
    runner = runner_of(registry, AuditLog(lambda: 0.0))

    def ask(name: str, host: str) -> asyncio.Future[object]:
        who = ANONYMOUS if open_broker else Principal(name)
        return asyncio.ensure_future(runner.carried_out(Somebody(host=host), registry.admit(who, "dlq.purge", {})))

    running = [ask("ann", "192.0.2.1") for _ in range(3 * SCANS_TOGETHER_MAX)]
    await asyncio.sleep(0.0)
    running.append(ask("bob", "192.0.2.2"))
    while slow.begun < SCANS_TOGETHER_MAX // 2 + 1:
        await asyncio.sleep(0)
    slow.may_end.set()
    assert await asyncio.gather(*running) == [1] * len(running)


class OwnThings:
    def __init__(self) -> None:
        self.changes = 0

    async def change(self, caller: Caller, wanted: Arguments) -> None:
        self.changes += 1


async def test_what_users_change_of_themselves_without_any_right_is_limited() -> None:
    now_s, own, kept = 0.0, OwnThings(), Kept()
    operations = [
        Operation(name, "Own.", OfUser, OwnThings, task=OwnThings.change, audited=True, limited_per=limit)
        for name, limit in (("token.create", OwnLimit.USER), ("token.revoke", OwnLimit.USER_AND_ADDRESS))
    ]
    registry = Registry(Policy({"ann": (), "bob": ()}, superusers=["root"]), operations, [own])
    runner = runner_of(registry, AuditLog(lambda: now_s, file=kept), lambda: now_s)

    async def change(user: Principal, operation: str = "token.create", **place: str) -> object:
        call = registry.admit(user, operation, {"user": user.name})
        return await runner.carried_out(Somebody(**place), call)

    ann = Principal("ann", login=LoginKind.PASSWORD)
    for _ in range(OWN_CHANGES_AT_ONCE):
        assert await change(ann) is None
    for place in ({"protocol": "native"}, {"protocol": "http"}, {"host": "192.0.2.7"}):
        refusal = await change(ann, **place)
        assert isinstance(refusal, RateLimited)
        assert "'ann' asks for token.create too often" in str(refusal)
        assert refusal.wait_s == OWN_CHANGE_EVERY_S
    assert own.changes == len(kept.records) == OWN_CHANGES_AT_ONCE, "what was refused so leaves nothing behind"
    assert await change(Principal("bob", login=LoginKind.PASSWORD)) is None
    for _ in range(2 * OWN_CHANGES_AT_ONCE):
        assert await change(Principal("root", True)) is None
    now_s += OWN_CHANGE_EVERY_S
    assert await change(ann) is None
    assert isinstance(await change(ann), RateLimited)


class Tried(CanBeTried, OfUser):
    pass


class TriedThings:
    async def change(self, caller: Caller, wanted: Arguments) -> dict[str, bool]:
        return {}


async def test_dry_runs_use_up_nothing_of_what_users_may_change() -> None:
    create = Operation("token.create", "Own.", Tried, TriedThings, task=TriedThings.change, limited_per=OwnLimit.USER)
    registry = Registry(Policy({"ann": ()}), [create], [TriedThings()])
    runner = runner_of(registry, AuditLog(lambda: 0.0), lambda: 0.0)
    ann = Principal("ann", login=LoginKind.PASSWORD)

    async def ask(**arguments: bool) -> object:
        call = registry.admit(ann, "token.create", {"user": "ann", **arguments})
        return await runner.carried_out(Somebody(), call)

    for _ in range(OWN_CHANGES_AT_ONCE):
        await ask(dry_run=True)
    assert isinstance(await ask(dry_run=True), RateLimited)
    assert not isinstance(await ask(), RateLimited)


async def test_who_has_a_leaked_password_does_not_use_up_what_its_owner_may_do() -> None:
    own = OwnThings()
    operations = [
        Operation(name, "Own.", OfUser, OwnThings, task=OwnThings.change, audited=True, limited_per=limit)
        for name, limit in (("token.create", OwnLimit.USER), ("user.password", OwnLimit.USER_AND_ADDRESS))
    ]
    registry = Registry(Policy({"ann": ()}, superusers=["root"]), operations, [own])
    runner = runner_of(registry, AuditLog(lambda: 0.0, file=Kept()), lambda: 0.0)

    async def change(operation: str, host: str) -> object:
        call = registry.admit(Principal("ann", login=LoginKind.PASSWORD), operation, {"user": "ann"})
        return await runner.carried_out(Somebody(host=host), call)

    for _ in range(2 * OWN_CHANGES_AT_ONCE):
        last = [await change(operation, "192.0.2.66") for operation in ("token.create", "user.password")]
    assert all(isinstance(answer, RateLimited) for answer in last)
    assert isinstance(await change("token.create", "192.0.2.1"), RateLimited)
    assert await change("user.password", "192.0.2.1") is None


class Shelf:
    def __init__(self) -> None:
        self.error: VibeMQError | None = None

    async def work(self, caller: Caller, wanted: Arguments) -> dict[str, bool]:
        if self.error is not None:
            raise self.error
        return {}


async def test_the_log_names_what_changes_something_or_was_refused(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "vibemq.requests")
    shelf = Shelf()
    operations = [
        Operation("dlq.list", "Look.", Arguments, Shelf, task=Shelf.work, logged=True),
        Operation("dlq.purge", "Change.", CanBeTried, Shelf, task=Shelf.work, logged=True, audited=True),
    ]
    registry = Registry(Policy({}, superusers=["root"]), operations, [shelf])
    kept = Kept()
    runner = runner_of(registry, AuditLog(lambda: 0.0, file=kept))

    async def told(operation: str, **arguments: bool) -> list[tuple[str, str]]:
        caplog.clear()
        await runner.carried_out(Somebody(), registry.admit(Principal("root", True), operation, arguments))
        records = [record for record in caplog.records if record.name == "vibemq.requests"]
        return [(record.levelname, record.getMessage()) for record in records]

    assert await told("dlq.list") == [("DEBUG", "admin dlq.list: done")]
    tried = "admin dlq.purge: would be done; it was a dry run"
    assert await told("dlq.purge", dry_run=True) == [("INFO", tried)]
    assert kept.records == []
    assert await told("dlq.purge") == [("INFO", "admin dlq.purge: done")]
    assert len(kept.records) == 1
    shelf.error = QueueNotFound("q")
    assert [level for level, _ in await told("dlq.list")] == ["INFO"]


def test_what_is_limited_for_each_user() -> None:
    limited = {operation.name: operation.limited_per for operation in OPERATIONS if operation.limited_per is not None}
    assert limited == {
        "token.create": OwnLimit.USER,
        "token.revoke": OwnLimit.USER_AND_ADDRESS,
        "user.password": OwnLimit.USER_AND_ADDRESS,
    }
