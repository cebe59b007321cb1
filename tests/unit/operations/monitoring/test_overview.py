"""The overview of very many queues and groups: what it names, and that the loop has its turn in between."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.operations.monitoring.pictures import Cursor, Shown, picture, reading
from vibemq.auth.policy import Policy
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.operations.arguments import Arguments
from vibemq.operations.monitoring import turns
from vibemq.operations.monitoring.overview import LISTED_MAX, Overview
from vibemq.operations.registry import Caller

pytestmark = pytest.mark.anyio
MANY = 500


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Whole:
    """A broker in which messages have died."""

    def __init__(self, deaths: Mapping[str, int]) -> None:
        self.deaths = lambda: deaths

    def sentences(self) -> list[dict[str, Any]]:
        return []

    def resources(self) -> dict[str, Any]:
        return {}

    def latency(self) -> dict[str, float | None]:
        return {}

    def started_at_ms(self) -> int:
        return 0

    def jobs_running(self) -> int:
        return 0


class Errors:
    async def told(self, died: Sequence[Any], since_ms: int) -> list[Any]:
        return list(died)


async def overview(principal: Principal, policy: Policy) -> dict[str, Any]:
    names = [f"{'ab'[number % 2]}.{number}" for number in range(MANY)]
    now = picture(
        {name: {"ready": number} for number, name in enumerate(names)} | {"a.read": {}, "b.read": {}},
        *(Cursor(f"{'ab'[number % 2]}.read", f"g{number}", number) for number in range(MANY)),
    )
    shown = Overview(
        Shown(reading(now, now)),
        cast(Any, Whole({name: number for number, name in enumerate(names)} | {"gone": MANY})),
        cast(Any, Errors()),
        policy,
    )
    return await shown.show(Caller(principal, cast(Any, None)), Arguments())


async def test_those_with_most_are_named_of_what_the_user_sees() -> None:
    root, ann = Principal("root", True), Principal("ann", True)
    policy = Policy({"ann": [Rule(ResourceKind.QUEUE, "a.*", frozenset({"inspect"}))]}, superusers=["root"])
    told = await overview(root, policy)
    last = range(MANY - 1, MANY - 1 - LISTED_MAX, -1)
    assert [cursor["backlog"] for cursor in told["cursors_behind"]] == list(last)
    assert [row["ready"] for row in told["no_consumer"]] == list(last)
    assert told["dead_recent"][:2] == [("gone", None, MANY), (f"b.{MANY - 1}", MANY - 1, MANY - 1)]
    assert len(told["sentences"]) == LISTED_MAX + 1
    assert told["sentences"][-1]["text"] == f"{MANY - 1 - LISTED_MAX:,} more queues: no consumer"
    seen = await overview(ann, policy)
    assert {row["queue"][:2] for row in seen["no_consumer"]} == {"a."}
    assert [row.letters for row in seen["dead_recent"]] == list(range(MANY - 2, MANY - 2 - 2 * LISTED_MAX, -2))
    assert {cursor["queue"] for cursor in seen["cursors_behind"]} == {"a.read"}


async def test_the_loop_has_its_turn_between_groups_queues_and_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
    had = 0

    async def others() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    policy = Policy({}, superusers=["root"])
    await overview(Principal("root", True), policy)
    beside.cancel()
    # States, the walk over the queues, groups, deaths: one turn for each of them.
    assert had >= 4 * MANY
