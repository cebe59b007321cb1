"""What the overview says of dead letters and of queues that nobody moves."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from tests.unit.operations.monitoring.pictures import Cursor, Picture, Shown, picture, reading
from vibemq.auth.policy import Actor, Policy
from vibemq.auth.users import ANONYMOUS
from vibemq.operations.arguments import Arguments
from vibemq.operations.dead_letters.reader import DeadLetterReader
from vibemq.operations.monitoring.death_errors import DeathErrors
from vibemq.operations.monitoring.death_tolls import DEATHS_ALARM
from vibemq.operations.monitoring.overview import Overview
from vibemq.operations.monitoring.readings import STUCK_MS
from vibemq.operations.registry import Caller

pytestmark = pytest.mark.anyio
ALL = Caller(ANONYMOUS, Actor(""))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Quiet:
    """A broker of which only deaths are told."""

    def __init__(self, deaths: Mapping[str, int]) -> None:
        self._deaths = deaths

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

    def deaths(self) -> Mapping[str, int]:
        return self._deaths


async def overview(now: Picture, deaths: Mapping[str, int] | None = None) -> dict[str, Any]:
    # The queues of these deaths are gone, so the index is not looked at.
    errors = DeathErrors(cast(DeadLetterReader, None))
    seen = Shown(reading(now, now, still_ms={0: STUCK_MS}))
    return await Overview(seen, Quiet(deaths or {}), errors, Policy({}, enabled=False)).show(ALL, Arguments())


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


async def test_one_message_is_one() -> None:
    [told] = (await overview(picture({"jobs": {"ready": 1}})))["sentences"]
    assert told["text"] == "queue jobs has 1 message and no consumer"
    assert told["remedy"].startswith("start a consumer;")
