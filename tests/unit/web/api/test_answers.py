"""Answers of operations are read again in parts."""

import asyncio

import pytest

from vibemq.web.api.answers import ITEMS_PER_TURN, plain

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("named", [True, False])
async def test_the_loop_has_a_turn_between_the_parts_of_a_long_list(named: bool) -> None:
    listed = [{"number": number, "dead_at": 0} for number in range(4 * ITEMS_PER_TURN + 1)]
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    result = await plain({"items": listed, "next": 5} if named else listed, "items")
    counting.cancel()
    read = result["items"] if named else result
    assert [each["number"] for each in read] == list(range(len(listed)))
    assert not named or result["next"] == 5
    assert turns >= 4


async def test_a_short_answer_is_read_at_once() -> None:
    assert await plain([1], "items") == [1]
    assert await plain({"items": [1], "next": None}, "items") == {"items": [1], "next": None}
    assert await plain(None) is None
