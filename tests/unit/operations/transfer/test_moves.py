"""Steps of a move that are under way together."""

import asyncio

import pytest

from vibemq.errors import NotAuthorized
from vibemq.model.effects import Moved
from vibemq.operations.transfer.moves import _all_of


def test_a_refused_step_waits_for_those_that_were_decided_before_it() -> None:
    ended: list[int] = []

    async def decided() -> Moved:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append(1)
        return Moved(1, 0)

    async def refused() -> Moved:
        raise NotAuthorized("not any more")

    with pytest.raises(NotAuthorized):
        asyncio.run(_all_of([decided(), refused(), decided()]))
    assert ended == [1, 1]
