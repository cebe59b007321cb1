"""The table of queues: what is shown, in which order, in pages that fit together."""

from typing import Any

import pytest

from tests.unit.operations.monitoring.pictures import NOW_MS, Shown, picture, reading
from vibemq.auth.policy import Actor, Policy
from vibemq.auth.rules import make_rule
from vibemq.auth.users import ANONYMOUS
from vibemq.errors import InvalidPayload
from vibemq.model.access import Principal
from vibemq.operations.monitoring.kept_lists import KEPT_S
from vibemq.operations.monitoring.queue_rows import QueueRows, QueueRowsArguments
from vibemq.operations.registry import Caller

pytestmark = pytest.mark.anyio


ALL = Caller(ANONYMOUS, Actor(""))
ANN = Caller(Principal("ann"), Actor("ann"))
OPEN = Policy({}, enabled=False)


class Table:
    def __init__(self, queues: dict[str, dict[str, int]], policy: Policy = OPEN) -> None:
        self.now_s = 100.0
        self.shown = Shown(reading(picture(queues)))
        self.rows = QueueRows(self.shown, policy, monotonic=lambda: self.now_s)

    def change(self, queues: dict[str, dict[str, int]]) -> None:
        self.shown.now = reading(picture(queues))

    async def page(self, caller: Caller = ALL, **arguments: Any) -> dict[str, Any]:
        return await self.rows.page(caller, QueueRowsArguments(**arguments))

    async def names(self, caller: Caller = ALL, **arguments: Any) -> list[str]:
        return [row["queue"] for row in (await self.page(caller, **arguments))["queues"]]


async def test_a_row_has_figures_rates_and_a_state() -> None:
    table = Table({})
    now = {"ready": 3, "size": 99, "in_flight": 1, "delayed": 2, "dead": 4, "consumers": 1, "durability": 3}
    counted = {"published": 50, "delivered": 40, "settled": 30, "oldest_at": NOW_MS - 7_000}
    table.shown.now = reading(picture({"jobs": {**now, **counted}}), picture({"jobs": {"ready": 3, "published": 40}}))
    assert await table.page() == {
        "queues": [
            {
                "queue": "jobs",
                "state": "flowing",
                "oldest_age_ms": 7_000,
                "ready": 3,
                "in_flight": 1,
                "delayed": 2,
                "dead": 4,
                "in_rate": 1.0,
                "out_rate": 4.0,
                "ack_rate": 3.0,
                "consumers": 1,
                "bytes": 99,
                "durability": "strong",
            }
        ],
        "next": None,
        "sampled_at": NOW_MS,
    }


async def test_every_column_sorts_both_ways_and_names_decide_between_equals() -> None:
    table = Table({"b": {"ready": 1}, "c": {"ready": 2}, "a": {"ready": 1}})
    assert await table.names() == ["a", "b", "c"]
    assert await table.names(sort="-queue") == ["c", "b", "a"]
    assert await table.names(sort="queue") == ["a", "b", "c"]
    assert await table.names(sort="ready") == ["a", "b", "c"]
    assert await table.names(sort="-ready") == ["c", "a", "b"]
    [row] = (await Table({"a": {}}).page())["queues"]
    for column in row:
        assert await table.names(sort=f"-{column}"), column


async def test_an_unknown_column_and_a_forged_place_are_refused() -> None:
    table = Table({"a": {}})
    with pytest.raises(InvalidPayload, match="must be one of queue, state"):
        await table.page(sort="color")
    for forged in ("", "x", "1:2", "0:0:0.0:", "1:-1:0.0:a", "1:1:nan:a", "a:1:0.0:b"):
        with pytest.raises(InvalidPayload, match="as it was"):
            await table.page(after=forged)


async def test_chosen_by_a_part_of_the_name_and_by_the_state() -> None:
    table = Table({"orders.eu": {"ready": 1}, "Orders.us": {}, "jobs": {}})
    assert await table.names(name="ORD") == ["Orders.us", "orders.eu"]
    assert await table.names(state="no_consumer") == ["orders.eu"]
    assert await table.names(state="idle", name="rs.") == ["Orders.us"]


async def test_one_queue_by_its_whole_name_for_those_who_may_inspect_it() -> None:
    queues = {"jobs": {}, "b": {}, "jobs.eu": {"ready": 1}}
    table = Table(queues)
    assert await table.names(queue="jobs") == ["jobs"]
    assert await table.names(queue="job") == await table.names(queue="z") == []
    assert (await table.page(queue="jobs.eu"))["queues"][0]["state"] == "no_consumer"
    limited = Table(queues, Policy({"ann": [make_rule({"queues": "jobs.*", "actions": ["inspect"]})]}, enabled=True))
    assert await limited.names(ANN, queue="jobs.eu") == ["jobs.eu"]
    assert await limited.names(ANN, queue="jobs") == []


def many(shift: int = 0) -> dict[str, dict[str, int]]:
    return {f"q{number:03}": {"ready": (number * 37 + shift) % 100} for number in range(250)}


@pytest.mark.parametrize("sort", ["queue", "-queue", "ready", "-ready", "state", "-in_rate"])
async def test_pages_neither_repeat_nor_lose_a_queue_while_the_figures_move(sort: str) -> None:
    table = Table(many())
    found: list[str] = []
    after = None
    while True:
        page = await table.page(sort=sort, limit=60, after=after)
        found += [row["queue"] for row in page["queues"]]
        after = page["next"]
        if after is None:
            break
        table.change(many(len(found)))
    assert sorted(found) == sorted(many())


async def test_a_list_that_is_gone_goes_on_behind_its_last_row() -> None:
    table = Table(many())
    first = await table.page(sort="-ready", limit=100)
    rest = await table.names(sort="-ready", limit=500, after=first["next"])
    table.now_s += KEPT_S + 1
    assert await table.names(sort="-ready", limit=500, after=first["next"]) == rest
    # Of another broker, or of another list.
    assert await Table(many()).names(sort="-ready", limit=500, after=first["next"]) == rest


async def test_users_see_queues_that_they_may_inspect() -> None:
    rules = [make_rule({"queues": "a.*", "actions": ["inspect"]}), make_rule({"queues": "b", "actions": ["publish"]})]
    policy = Policy({"ann": rules})
    table = Table({"a.1": {}, "b": {}, "a.2": {}, "c": {}}, policy)
    assert await table.names(ANN) == ["a.1", "a.2"]
    narrow = Principal("ann", rules=(make_rule({"queues": "a.2", "actions": ["inspect"]}),))
    assert await table.names(Caller(narrow, Actor("ann"))) == ["a.2"]
    policy.replace({"ann": [*rules[:1], make_rule({"queues": "c", "actions": ["inspect"]})]})
    assert await table.names(ANN) == ["a.1", "a.2", "c"]


async def test_nobody_goes_on_in_the_list_of_somebody_else() -> None:
    policy = Policy({"ann": [make_rule({"queues": "q00*", "actions": ["inspect"]})]}, superusers=["root"])
    table = Table(many(), policy)
    root = Caller(Principal("root", superuser=True), Actor(""))
    whole = await table.page(root, sort="ready", limit=1)
    assert set(await table.names(ANN, sort="ready", limit=500, after=whole["next"])) <= {f"q00{n}" for n in range(10)}
