"""Answers of operations are read again in parts."""

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest
from starlette.datastructures import Headers
from starlette.responses import Response

from tests.simulation.engine_driver import Driver
from vibemq.model.effects import QueuePage
from vibemq.web.api.answers import ITEMS_PER_TURN, LONG_CHARACTERS, json_answer, knows, plain
from vibemq.web.api.contract import Exchange

pytestmark = pytest.mark.anyio


async def test_the_groups_of_a_queue_count_as_parts() -> None:
    driver = Driver()
    driver.create()
    info = driver.engine.queue_info("q")
    assert info is not None
    info = replace(info, groups=info.groups * 2 * ITEMS_PER_TURN)
    result, turns = await turns_of(plain(QueuePage([], [info] * 4, "q"), "queues"))
    assert [len(one["groups"]) for one in result["queues"]] == [2 * ITEMS_PER_TURN] * 4
    assert result["next"] == "q"
    assert turns >= 4


async def turns_of(work: Awaitable[Any]) -> tuple[Any, int]:
    """Its result, and how many turns others had meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    result = await work
    counting.cancel()
    return result, turns


@pytest.mark.parametrize("named", [True, False])
async def test_the_loop_has_a_turn_between_the_parts_of_a_long_list(named: bool) -> None:
    listed = [{"number": number, "dead_at": 0} for number in range(4 * ITEMS_PER_TURN + 1)]
    result, turns = await turns_of(plain({"items": listed, "next": 5} if named else listed, "items"))
    read = result["items"] if named else result
    assert [each["number"] for each in read] == list(range(len(listed)))
    assert not named or result["next"] == 5
    assert turns >= 4


@pytest.mark.parametrize("character", ["a", "\x01", '"', "ж", "\U0001f600"])
async def test_the_loop_has_a_turn_between_the_parts_of_a_long_body(character: str) -> None:
    letter = {"dead_id": 1, "payload": character * (4 * LONG_CHARACTERS + 1), "dead_at": 0}
    result, turns = await turns_of(plain(letter))
    assert turns >= 4
    told = answer(result)
    assert told.body == orjson.dumps({**letter, "dead_at": None})
    assert len(result["payload"].digest) == 24
    others = [
        await plain({**letter, **change}) for change in ({}, {"dead_id": 2}, {"payload": letter["payload"] + "b"})
    ]
    assert [answer(other).headers["etag"] == told.headers["etag"] for other in others] == [True, False, False]


def answer(value: Any) -> Response:
    endpoint = SimpleNamespace(status=200, reads=True, conditional=True)
    request = SimpleNamespace(headers=Headers())
    return json_answer(value, cast(Exchange, SimpleNamespace(endpoint=endpoint, request=request, headers={}, status=0)))


async def test_a_short_answer_is_read_at_once() -> None:
    assert await plain([1], "items") == [1]
    assert await plain({"items": [1], "next": None}, "items") == {"items": [1], "next": None}
    assert await plain(None) is None


@pytest.mark.parametrize("known", ['"ab"', 'W/"ab"', '"ab-gzip"', 'W/"ab-br"', '"x", W/"ab"', "*"])
def test_a_tag_is_known_whatever_a_proxy_has_made_of_it(known: str) -> None:
    assert knows(Headers({"if-none-match": known}), 'W/"ab"')


@pytest.mark.parametrize("known", ["", '"a"', '"ab-x"', "ab", '"-gzip"', '"ab" "ab"', ","])
def test_another_tag_is_not(known: str) -> None:
    assert not knows(Headers({"if-none-match": known}), 'W/"ab"')
