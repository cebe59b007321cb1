"""Who holds the memory for large messages, and who gets it next."""

import asyncio
import threading

import pytest

from vibemq.server.commit.message_memory import MemoryShare, MessageMemory

pytestmark = pytest.mark.anyio


async def a_turn() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def test_who_asks_first_gets_it_first() -> None:
    memory = MessageMemory(100)
    told: list[tuple[str, MemoryShare]] = []
    first = memory.take("a", 60, print)
    assert first is not None
    assert memory.take("b", 60, lambda share: told.append(("b", share))) is None
    # It would fit, but not before those who have asked before.
    assert memory.take("c", 10, lambda share: told.append(("c", share))) is None
    # Who asks again keeps its place.
    assert memory.take("b", 60, print) is None
    assert memory.waits("b")
    assert (memory.bytes_held, memory.waiting) == (60, 2)
    first.release()
    await a_turn()
    assert [(who, share.size) for who, share in told] == [("b", 60), ("c", 10)]
    assert (memory.bytes_held, memory.waiting) == (70, 0)
    assert not memory.waits("b")


async def test_one_body_always_gets_on_however_large_it_is() -> None:
    memory = MessageMemory(100)
    told: list[MemoryShare] = []
    small = memory.take("a", 1, print)
    assert memory.take("b", 1_000, told.append) is None
    assert small is not None
    small.release()
    await a_turn()
    assert [share.size for share in told] == [1_000]
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


def wants_it_no_more(share: MemoryShare) -> None:
    pass


async def test_who_has_gone_neither_waits_nor_holds() -> None:
    memory = MessageMemory(100)
    held = memory.take("a", 100, print)
    assert memory.take("b", 50, wants_it_no_more) is None
    assert memory.take("c", 50, wants_it_no_more) is None
    memory.forget("b")
    assert held is not None
    held.release()
    # It is on its way.
    memory.forget("c")
    await a_turn()
    assert memory.bytes_held == 0
    assert memory.take("d", 100, print) is not None
