import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest

from vibemq.errors import Forbidden, ShuttingDown
from vibemq.server.background_tasks import BackgroundTasks

pytestmark = pytest.mark.anyio


async def refuse() -> None:
    raise Forbidden("no")


async def fail() -> None:
    raise ZeroDivisionError


async def outcome(work: Callable[[], Awaitable[object]]) -> tuple[object, list[BaseException]]:
    """What the work answers or raises, and what was fatal."""
    fatal: list[BaseException] = []
    async with anyio.create_task_group() as tasks:
        background_tasks = BackgroundTasks(tasks, fatal.append)
        tasks.start_soon(background_tasks.run)
        found = await asyncio.gather(background_tasks.outcome_of(work), return_exceptions=True)
        tasks.cancel_scope.cancel()
    return found[0], fatal


async def test_an_outcome_is_what_the_work_answers() -> None:
    assert await outcome(lambda: asyncio.sleep(0, "done")) == ("done", [])


async def test_a_refusal_is_that_of_who_waits_alone(caplog: pytest.LogCaptureFixture) -> None:
    refused, fatal = await outcome(refuse)
    assert (type(refused), fatal, caplog.records) == (Forbidden, [], [])


async def test_a_fault_is_told_to_who_waits_and_to_the_log(caplog: pytest.LogCaptureFixture) -> None:
    failed, fatal = await outcome(fail)
    assert (type(failed), fatal) == (ZeroDivisionError, [])
    assert "ZeroDivisionError" in caplog.text


async def test_work_goes_on_when_nobody_waits_for_it_any_more() -> None:
    done, may_end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        await may_end.wait()
        done.set()

    async with anyio.create_task_group() as tasks:
        background_tasks = BackgroundTasks(tasks, tasks.cancel_scope.cancel)
        tasks.start_soon(background_tasks.run)
        with anyio.CancelScope() as waiting:
            waiting.cancel()
            await asyncio.shield(background_tasks.outcome_of(work))
        may_end.set()
        await done.wait()
        tasks.cancel_scope.cancel()


async def test_who_waits_is_told_that_the_broker_stops_and_is_not_cancelled() -> None:
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        await anyio.sleep_forever()

    async with anyio.create_task_group() as tasks:
        background_tasks = BackgroundTasks(tasks, lambda error: None)
        tasks.start_soon(background_tasks.run)
        stopped = background_tasks.outcome_of(work)
        await begun.wait()
        tasks.cancel_scope.cancel()
    with pytest.raises(ShuttingDown, match="may not have been carried out"):
        await stopped
