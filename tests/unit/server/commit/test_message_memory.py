"""Who holds the memory for large messages, and who gets it next."""

import asyncio
import threading

import pytest

from vibemq.server.commit.message_memory import MessageMemory

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The server uses asyncio's transports."""
    return "asyncio"


async def a_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_who_asks_first_gets_it_first() -> None:
    memory, told = MessageMemory(100), []
    first = memory.take("a", 60, lambda: told.append("a"))
    assert first is not None
    assert memory.take("b", 60, lambda: told.append("b")) is None
    # It would fit, but not before those who have asked before.
    assert memory.take("c", 10, lambda: told.append("c")) is None
    assert memory.waits("b")
    assert memory.bytes_held == 60
    first.release()
    await a_turn()
    assert told == ["b", "c"]
    shares = [memory.take("b", 60, print), memory.take("c", 10, print)]
    assert [share.size for share in shares if share is not None] == [60, 10]
    assert memory.bytes_held == 70
    assert not memory.waits("b")


async def test_one_body_always_gets_on_however_large_it_is() -> None:
    memory, told = MessageMemory(100), []
    small = memory.take("a", 1, print)
    assert memory.take("b", 1_000, lambda: told.append("b")) is None
    assert small is not None
    small.release()
    await a_turn()
    assert told == ["b"]
    assert memory.bytes_held == 1_000


async def test_what_is_dropped_is_given_back_once_and_in_any_thread() -> None:
    memory = MessageMemory(100)
    share = memory.take("a", 40, print)
    other = memory.take("b", 30, print)
    assert share is not None
    share.release()
    share.release()
    assert memory.bytes_held == 30
    thread = threading.Thread(target=other.release if other is not None else print)
    thread.start()
    thread.join()
    await a_turn()
    assert memory.bytes_held == 0
    del share, other
    held = memory.take("c", 10, print)
    assert memory.bytes_held == 10
    del held
    assert memory.bytes_held == 0


async def test_who_has_gone_neither_waits_nor_holds() -> None:
    memory, told = MessageMemory(100), []
    held = memory.take("a", 100, print)
    assert memory.take("b", 50, lambda: told.append("b")) is None
    assert memory.take("c", 50, lambda: told.append("c")) is None
    memory.forget("b")
    assert held is not None
    held.release()
    memory.forget("c")
    assert memory.bytes_held == 0
    await a_turn()
    assert memory.take("d", 100, print) is not None
