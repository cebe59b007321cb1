"""The threads that check passwords: their priority, and a system that does not let it be lowered."""

import asyncio
import errno
import logging
import os
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest

from vibemq.auth.passwords import verify_password
from vibemq.errors import RateLimited
from vibemq.server.access import hashing as hashing_module
from vibemq.server.access.hashing import NICENESS, TO_BE_MADE_MAX, HashingThreads

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a priority for each thread")


@pytest.fixture
def hashing() -> Iterator[HashingThreads]:
    threads = HashingThreads()
    yield threads
    threads.close()


def _niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@pytest.mark.parametrize("missing", ["sched_getscheduler", "getpriority"])
def test_a_system_that_lowers_no_priority_hashes_with_that_of_the_broker(
    hashing: HashingThreads, missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def absent(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, missing, absent)

    async def hash_four() -> list[str]:
        stored: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def hash_one() -> None:
                stored.append(await hashing.hash_password("secret"))

            for _ in range(4):
                tasks.start_soon(hash_one)
        return stored

    with caplog.at_level(logging.WARNING, "vibemq.broker"):
        stored = anyio.run(hash_four)
    assert [verify_password("secret", each) for each in stored] == [True] * 4
    [told] = caplog.messages
    assert "Function not implemented" in told


@pytest.mark.parametrize(("own", "expected"), [(0, NICENESS), (NICENESS + 5, NICENESS + 5)])
def test_a_thread_is_as_nice_as_the_process_at_least(hashing: HashingThreads, own: int, expected: int) -> None:
    """Whoever may not lower it could not hash a password otherwise."""

    def run() -> int:
        # As of a broker that was started by `nice`: threads have what the thread has that makes them.
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), max(own, before))

        async def ask() -> int:
            return await hashing.run(_niceness)

        return anyio.run(ask)

    before = _niceness()
    with ThreadPoolExecutor(1) as made:
        assert made.submit(run).result() == max(expected, before)


def test_logins_are_checked_while_new_passwords_are_hashed(
    hashing: HashingThreads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many are to be hashed; more than a few are refused, and what nobody waits for is not begun."""
    held = threading.Event()
    made: list[str] = []

    def hash_slowly(password: str) -> str:
        made.append(password)
        held.wait()
        return password

    monkeypatch.setattr(hashing_module, "hash_password", hash_slowly)

    async def main() -> list[object]:
        waiting = [asyncio.create_task(hashing.hash_password(str(number))) for number in range(TO_BE_MADE_MAX)]
        await asyncio.sleep(0)
        with pytest.raises(RateLimited):
            await hashing.hash_password("one more")
        assert await hashing.run(lambda: "checked") == "checked"
        for task in waiting[10:]:
            task.cancel()
        await asyncio.sleep(0)
        held.set()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        assert await hashing.hash_password("later") == "later"
        return list(found)

    found = asyncio.run(main())
    assert found[:10] == [str(number) for number in range(10)]
    assert made == [*map(str, range(10)), "later"]
