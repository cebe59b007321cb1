import asyncio
from random import Random
from unittest.mock import patch

import anyio
import pytest

from vibemq.client.waiting.latch import Latch

pytestmark = pytest.mark.anyio


def test_it_is_made_and_set_without_an_event_loop() -> None:
    latch = Latch()
    assert not latch.is_set()
    latch.set()
    assert latch.is_set()


async def test_many_who_wait_are_cancelled_in_any_order_at_little_cost() -> None:
    """Each looks at no other one who waits: a list of them made the loop stand still."""
    compared = 0

    class Waiting(asyncio.Future[None]):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return self is other

        __hash__ = asyncio.Future.__hash__

    latch, loop = Latch(), asyncio.get_running_loop()
    with patch.object(loop, "create_future", lambda: Waiting(loop=loop)):
        tasks = [asyncio.ensure_future(latch.wait()) for _ in range(200)]
        await anyio.wait_all_tasks_blocked()
    Random(0).shuffle(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)
    assert all(task.cancelled() for task in tasks)
    assert compared <= 2 * len(tasks)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_all_who_wait_go_on_and_later_ones_do_not_wait(anyio_backend: str) -> None:
    latch = Latch()
    passed = []

    async def wait(name: str) -> None:
        await latch.wait()
        passed.append(name)

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, "first")
            tasks.start_soon(wait, "second")
            await anyio.wait_all_tasks_blocked()
            assert passed == []
            latch.set()
        await wait("late")
    assert sorted(passed) == ["first", "late", "second"]
