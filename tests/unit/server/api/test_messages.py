"""Downloads of messages and dead letters: rights are asked before one waits for its turn, and when the body is read."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.auth.users import ANONYMOUS
from vibemq.errors import NotAuthorized
from vibemq.server.api.downloads import UNCOUNTED_MAX
from vibemq.server.api.messages import ApiMessages
from vibemq.server.commit.message_memory import MessageMemory
from vibemq.server.net.large_turns import LargeTurns
from vibemq.web.api.services import Asker

pytestmark = pytest.mark.anyio


class Runner:
    """Admits nobody any more once `revoked`; its bodies are read when the test wants it."""

    def __init__(self) -> None:
        self.revoked = False
        self.read = asyncio.Event()
        self.noted = 0

    def admit_for(self, *asked: Any) -> Any:
        if self.revoked:
            raise NotAuthorized("the right has gone")
        return SimpleNamespace(service=self, arguments=None)

    async def body(self, arguments: Any) -> memoryview:
        await self.read.wait()
        return memoryview(b"body")

    def note_read(self, asker: Asker, call: Any) -> None:
        self.noted += 1


@pytest.mark.parametrize("what", ["body", "letter_body"])
async def test_who_loses_the_right_before_the_body_is_read_is_refused(what: str) -> None:
    runner = Runner()
    table = SimpleNamespace(large_turns=LargeTurns(MessageMemory(1), MessageMemory(1)))
    messages = ApiMessages(*cast(Any, (runner, None, None, table)))
    asker = Asker(ANONYMOUS, "127.0.0.1", "1")
    download = getattr(messages, what)
    tasks = [asyncio.create_task(download(asker, {})) for _ in range(UNCOUNTED_MAX + 1)]
    await asyncio.sleep(0)
    runner.revoked = True
    runner.read.set()
    *before, after = await asyncio.gather(*tasks, return_exceptions=True)
    assert [found.body for found in before] == [b"body"] * UNCOUNTED_MAX
    assert isinstance(after, NotAuthorized)
    assert runner.noted == UNCOUNTED_MAX


@pytest.mark.parametrize("what", ["body", "letter_body"])
async def test_who_has_no_right_does_not_wait_for_the_downloads_of_others(what: str) -> None:
    runner = Runner()
    table = SimpleNamespace(large_turns=LargeTurns(MessageMemory(1), MessageMemory(1)))
    messages = ApiMessages(*cast(Any, (runner, None, None, table)))
    asker = Asker(ANONYMOUS, "127.0.0.1", "1")
    download = getattr(messages, what)
    tasks = [asyncio.create_task(download(asker, {})) for _ in range(UNCOUNTED_MAX)]
    await asyncio.sleep(0)
    runner.revoked = True
    refused = asyncio.create_task(download(asker, {}))
    await asyncio.sleep(0)
    assert refused.done()
    assert isinstance(refused.exception(), NotAuthorized)
    runner.read.set()
    await asyncio.gather(*tasks)
