import anyio
import pytest

from vibemq.client.waiting.latch import Latch

pytestmark = pytest.mark.anyio


def test_it_is_made_and_set_without_an_event_loop() -> None:
    latch = Latch()
    assert not latch.is_set()
    latch.set()
    assert latch.is_set()


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
