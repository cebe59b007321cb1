"""The overview: what it names of very many queues and groups, its sentences, and the turns of the loop in between."""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.operations.monitoring.pictures import Cursor, Picture, Shown, Whole, picture, reading
from vibemq.auth.policy import Actor, Policy
from vibemq.auth.users import ANONYMOUS
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.operations.arguments import Arguments
from vibemq.operations.dead_letters.reader import DeadLetterReader
from vibemq.operations.monitoring import turns
from vibemq.operations.monitoring.death_errors import DeathErrors
from vibemq.operations.monitoring.death_tolls import DEATHS_ALARM
from vibemq.operations.monitoring.overview import LISTED_MAX, Overview
from vibemq.operations.monitoring.readings import STUCK_MS
from vibemq.operations.registry import Caller

pytestmark = pytest.mark.anyio
MANY = 500
ALL = Caller(ANONYMOUS, Actor(""))


class Errors:
    async def told(self, died: Sequence[Any], since_ms: int) -> list[Any]:
        return list(died)


async def overview_of_many(principal: Principal, policy: Policy) -> dict[str, Any]:
    names = [f"{'ab'[number % 2]}.{number}" for number in range(MANY)]
    now = picture(
        {name: {"ready": number} for number, name in enumerate(names)} | {"a.read": {}, "b.read": {}},
        *(Cursor(f"{'ab'[number % 2]}.read", f"g{number}", number) for number in range(MANY)),
    )
    shown = Overview(
        Shown(reading(now, now)),
        Whole({name: number for number, name in enumerate(names)} | {"gone": MANY}),
        cast(Any, Errors()),
        policy,
    )
    return await shown.show(Caller(principal, cast(Any, None)), Arguments())


async def test_those_with_most_are_named_of_what_the_user_sees() -> None:
    root, ann = Principal("root", True), Principal("ann", True)
    policy = Policy({"ann": [Rule(ResourceKind.QUEUE, "a.*", frozenset({"inspect"}))]}, superusers=["root"])
    told = await overview_of_many(root, policy)
    last = range(MANY - 1, MANY - 1 - LISTED_MAX, -1)
    assert [cursor["backlog"] for cursor in told["cursors_behind"]] == list(last)
    assert [row["ready"] for row in told["no_consumer"]] == list(last)
    assert told["dead_recent"][:2] == [("gone", None, MANY), (f"b.{MANY - 1}", MANY - 1, MANY - 1)]
    about = [sentence for sentence in told["sentences"] if sentence["link"]["page"] != "dead-letters"]
    assert len(about) == LISTED_MAX + 1
    assert told["died_recent"] == sum(range(MANY)) + MANY
    assert told["sentences"][-1]["text"] == f"{MANY - 1 - LISTED_MAX:,} more queues: no consumer"
    seen = await overview_of_many(ann, policy)
    assert {row["queue"][:2] for row in seen["no_consumer"]} == {"a."}
    assert [row.letters for row in seen["dead_recent"]] == list(range(MANY - 2, MANY - 2 - 2 * LISTED_MAX, -2))
    assert {cursor["queue"] for cursor in seen["cursors_behind"]} == {"a.read"}


async def test_the_loop_has_its_turn_between_groups_queues_and_deaths(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = count()
    monkeypatch.setattr(turns, "time", SimpleNamespace(monotonic=lambda: float(next(clock)), thread_time=float))
    had = 0

    async def others() -> None:
        nonlocal had
        while True:
            had += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    policy = Policy({}, superusers=["root"])
    await overview_of_many(Principal("root", True), policy)
    beside.cancel()
    # States, the walk over the queues, groups, deaths: one turn for each of them.
    assert had >= 4 * MANY


async def overview(now: Picture, deaths: Mapping[str, int] | None = None) -> dict[str, Any]:
    # The queues of these deaths are gone, so the index is not looked at.
    errors = DeathErrors(cast(DeadLetterReader, None))
    seen = Shown(reading(now, now, still_ms={0: STUCK_MS}))
    return await Overview(seen, Whole(deaths or {}), errors, Policy({}, enabled=False)).show(ALL, Arguments())


async def test_all_deaths_are_counted_though_ten_rows_are_told() -> None:
    found = await overview(picture({}), {f"gone-{number}": number for number in range(1, 13)})
    assert (len(found["dead_recent"]), found["died_recent"]) == (10, 78)


@pytest.mark.parametrize(("deaths", "level"), [(DEATHS_ALARM, "alarm"), (DEATHS_ALARM - 1, "warning")])
async def test_deaths_are_a_warning_and_many_of_one_queue_an_alarm(deaths: int, level: str) -> None:
    found = await overview(picture({}), {"mail": 1, "jobs": deaths})
    assert found["state"] == level
    first, second = found["sentences"]
    assert found["died_recent"] == deaths + 1
    assert first["text"] == f"{deaths:,} messages became dead letters in the last 15 minutes in queue jobs"
    assert first["link"] == {"page": "dead-letters", "queue": "jobs"}
    assert (second["level"], second["text"][:29]) == ("warning", "1 message became a dead lette")


async def test_the_rest_of_many_queues_has_one_sentence() -> None:
    found = await overview(picture({}), {f"q{number}": 5 for number in range(9)})
    assert [told["link"]["queue"] for told in found["sentences"]] == ["q0", None]
    assert found["sentences"][-1]["text"] == "40 messages became dead letters in the last 15 minutes in 8 more queues"


async def test_a_cursor_that_does_not_move_is_named() -> None:
    queues = {"clicks": {"ready": 300}}
    found = await overview(picture(queues, Cursor("clicks", "idle", 3), Cursor("clicks", "spark", 300)))
    [told] = found["sentences"]
    assert "its cursor spark has not moved for a minute and is 300 messages behind" in told["text"]
    assert told["link"] == {"page": "cursors", "queue": "clicks"}


@pytest.mark.parametrize(
    ("held", "text"),
    [
        (0, "no message is taken or settled"),
        (1, "consumers hold 1 message and do not settle it"),
        (5, "consumers hold 5 messages and settle none"),
    ],
)
async def test_a_stuck_queue_is_told_with_what_its_consumers_hold(held: int, text: str) -> None:
    [told] = (await overview(picture({"jobs": {"ready": 3, "consumers": 1, "in_flight": held}})))["sentences"]
    assert told["text"] == f"queue jobs is stuck with 3 messages: {text}"
    assert told["remedy"].endswith("vibemq-admin consumer ls jobs")


async def test_one_message_is_one() -> None:
    [told] = (await overview(picture({"jobs": {"ready": 1}})))["sentences"]
    assert told["text"] == "queue jobs has 1 message and no consumer"
    assert told["remedy"].startswith("start a consumer;")


async def test_queues_near_their_limits_are_named_before_they_are_full() -> None:
    queues = {"near": {"filled": 96}, "full": {"filled": 100}, "half": {"filled": 89}, "nearer": {"filled": 99}}
    queues["alone"] = {"ready": 1}
    told = (await overview(picture(queues)))["sentences"]
    assert [one["text"] for one in told] == [
        "queue full is full with 0 messages",
        "queue nearer is 99% full",
        "queue near is 96% full",
        "queue alone has 1 message and no consumer",
    ]
    assert {one["remedy"] for one in told[:3]} == {"add consumers, or raise max_messages or max_bytes"}
    many = await overview(picture({f"q{number}": {"filled": 90} for number in range(LISTED_MAX + 2)}))
    assert many["sentences"][-1]["text"] == "2 more queues: nearly full"
