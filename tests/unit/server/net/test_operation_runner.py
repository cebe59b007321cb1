"""Operations that wait until others have read enough."""

import asyncio
from typing import Any, cast

import pytest

from tests.unit.server.access.test_audit import Somebody
from vibemq.auth.policy import Policy
from vibemq.errors import NotAuthorized
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.operations import Registry
from vibemq.operations.arguments import Arguments
from vibemq.operations.registry import Caller, Operation
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.command_audit import CommandAudit
from vibemq.server.monitoring.metrics import Metrics
from vibemq.server.net.operation_runner import SCANS_TOGETHER_MAX, OperationRunner

pytestmark = pytest.mark.anyio
EVERY_QUEUE = (Rule(ResourceKind.QUEUE, "*", frozenset({"purge"})),)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SlowPurge:
    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.begun = 0

    async def purge(self, caller: Caller, wanted: Arguments) -> int:
        self.begun += 1
        await self.may_end.wait()
        return 1


async def test_who_loses_the_right_while_others_read_has_nothing_done() -> None:
    policy, slow = Policy({"ann": EVERY_QUEUE}), SlowPurge()
    operation = Operation("dlq.purge", "Slow.", Arguments, SlowPurge, task=SlowPurge.purge, scans=True)
    registry, audit = Registry(policy, [operation], [slow]), AuditLog(lambda: 0.0)
    runner = OperationRunner(registry, cast(Any, None), Metrics(), audit, CommandAudit(audit, {}), lambda error: None)
    calls = [registry.admit(Principal("ann"), "dlq.purge", {}) for _ in range(SCANS_TOGETHER_MAX + 1)]
    running = [asyncio.ensure_future(runner.carried_out(Somebody(), call)) for call in calls]
    while slow.begun < SCANS_TOGETHER_MAX:
        await asyncio.sleep(0)
    policy.put("ann", (), superuser=False)
    slow.may_end.set()
    answers = await asyncio.gather(*running)
    assert answers[:-1] == [1] * SCANS_TOGETHER_MAX
    assert isinstance(answers[-1], NotAuthorized)
    assert slow.begun == SCANS_TOGETHER_MAX
