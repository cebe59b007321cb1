"""A broker's life in a task of its own: who starts it, who stops it, and what each of them hears."""

import asyncio
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.abc import TaskGroup

from vibemq.errors import StorageFailed
from vibemq.server.life import BrokerLife

pytestmark = pytest.mark.anyio


class Body:
    """What lives, and what was done to it."""

    def __init__(self, *, begin: Callable[[TaskGroup], Awaitable[None]] | None = None) -> None:
        self.done: list[str] = []
        self.tasks: TaskGroup | None = None
        self.may_finish = asyncio.Event()
        self.may_finish.set()
        self._beginning = begin
        self.life = BrokerLife(self._begin, self._finish, self._abandon, self._last)

    async def _begin(self, tasks: TaskGroup) -> None:
        self.tasks = tasks
        if self._beginning is not None:
            await self._beginning(tasks)
        self.done.append("begun")

    async def _finish(self) -> None:
        await self.may_finish.wait()
        self.done.append("finished")

    async def _abandon(self) -> None:
        self.done.append("abandoned")

    async def _last(self) -> None:
        self.done.append("last")


async def in_a_task(work: Callable[[], Awaitable[None]]) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(work)


async def test_each_verb_may_come_from_a_task_of_its_own() -> None:
    body = Body()

    async def stop() -> None:
        await body.life.stop()

    for work in (body.life.start, stop, body.life.ended):
        await in_a_task(work)
    assert body.done == ["begun", "finished", "last"]


async def test_stopping_twice_finishes_once_and_both_wait_for_the_end() -> None:
    body = Body()
    body.may_finish.clear()
    await body.life.start()
    heard: list[int] = []

    async def stop(number: int) -> None:
        await body.life.stop()
        heard.append(number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(stop, 1)
        tasks.start_soon(stop, 2)
        await anyio.wait_all_tasks_blocked()
        assert heard == []
        body.may_finish.set()
    await body.life.stop()
    assert sorted(heard) == [1, 2]
    assert body.done == ["begun", "finished", "last"]


async def test_who_gives_up_waiting_for_the_end_does_not_stop_it() -> None:
    body = Body()
    body.may_finish.clear()
    await body.life.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(body.life.ended)
        body.life.stop()
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    body.may_finish.set()
    await body.life.ended()
    assert body.done == ["begun", "finished", "last"]


async def test_a_stop_before_the_start_is_nothing() -> None:
    body = Body()
    await body.life.stop()
    await body.life.start()
    assert body.done == ["begun"]
    await body.life.stop()


async def test_an_error_of_the_start_reaches_who_starts_and_nobody_else() -> None:
    async def begin(tasks: TaskGroup) -> None:
        tasks.start_soon(asyncio.Event().wait)
        raise ValueError("the port is taken")

    body = Body(begin=begin)
    with pytest.raises(ValueError, match="taken"):
        await body.life.start()
    assert body.done == ["abandoned", "last"]
    await body.life.stop()
    with pytest.raises(RuntimeError, match="started once"):
        await body.life.start()


async def test_storage_that_fails_while_the_broker_starts_is_what_the_start_raises() -> None:
    async def begin(tasks: TaskGroup) -> None:
        body.life.fail(StorageFailed("the disk is gone"))
        await asyncio.Event().wait()

    body = Body(begin=begin)
    with pytest.raises(StorageFailed, match="gone"):
        await body.life.start()
    assert body.done == ["abandoned", "last"]


async def test_a_task_that_fails_while_the_broker_starts_leaves_nothing_behind() -> None:
    async def fault() -> None:
        raise ValueError("a fault")

    async def begin(tasks: TaskGroup) -> None:
        tasks.start_soon(fault)
        await asyncio.Event().wait()

    body = Body(begin=begin)
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a fault")):
        await body.life.start()
    assert body.done == ["abandoned", "last"]


async def test_who_gives_up_starting_leaves_nothing_behind() -> None:
    async def begin(tasks: TaskGroup) -> None:
        await asyncio.Event().wait()

    body = Body(begin=begin)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(body.life.start)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert body.done == ["abandoned", "last"]
    await body.life.stop()


async def test_who_waits_hears_of_a_storage_that_has_failed() -> None:
    body = Body()
    await body.life.start()
    told: list[str] = []
    body.life.when_broken(lambda: told.append("broken"))
    body.life.fail(StorageFailed("the disk is gone"))
    for _ in range(2):
        with pytest.raises(StorageFailed, match="gone"):
            await body.life.ended()
    with pytest.raises(StorageFailed, match="gone"):
        await body.life.stop()
    assert body.done == ["begun", "abandoned", "last"]
    assert told == ["broken"]
    # And who asks to be told later is told at once.
    body.life.when_broken(lambda: told.append("late"))
    assert told == ["broken", "late"]


async def test_an_unforeseen_failure_of_storage_is_wrapped() -> None:
    body = Body()
    await body.life.start()
    body.life.fail(KeyError("what"))
    with pytest.raises(StorageFailed, match="unforeseen") as caught:
        await body.life.ended()
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_task_that_fails_ends_the_broker_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    body = Body()
    await body.life.start()

    async def fault() -> None:
        raise ValueError("a fault")

    assert body.tasks is not None
    body.tasks.start_soon(fault)
    with pytest.RaisesGroup(pytest.RaisesExc(ValueError, match="a fault")):
        await body.life.ended()
    assert body.done == ["begun", "finished", "last"]
    assert [record.levelname for record in caplog.records if record.name == "vibemq.broker"] == ["CRITICAL"]


def test_a_loop_that_ends_finishes_what_nobody_has_stopped() -> None:
    async def main() -> Body:
        body = Body()
        await body.life.start()
        return body

    assert asyncio.run(main()).done == ["begun", "finished", "last"]


def test_who_waits_in_another_loop_is_told_so() -> None:
    async def begin() -> Body:
        body = Body()
        await body.life.start()
        return body

    body = asyncio.run(begin())
    with pytest.raises(RuntimeError, match="another event loop"):
        asyncio.run(body.life.ended())
