"""What an open stream writes, without a socket."""

import asyncio
from typing import Any

import pytest

from vibemq.web.api.streams.frames import bye, frame, hello
from vibemq.web.api.streams.stream import EventStream, OpenStreams

pytestmark = pytest.mark.anyio
EVENT = frame("message", b"{}")


class Source:
    """Tells its events one by one; at the last of them the reader loses its rights."""

    def __init__(self, events: int) -> None:
        self.left = events
        self.reason = ""
        self.closed = False

    async def take(self, seconds: float) -> bytes:
        self.left -= 1
        if not self.left:
            self.reason = "your permissions have changed"
        return EVENT

    def close(self) -> None:
        self.closed = True


async def test_what_comes_as_the_rights_go_is_not_shown() -> None:
    source, written = Source(3), list[bytes]()
    stream = EventStream(source, lambda: source.reason, OpenStreams(lambda work: None))

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            written.append(message["body"])

    async def receive() -> Any:
        return await asyncio.get_running_loop().create_future()

    await stream({"type": "http", "method": "GET"}, receive, send)
    assert written == [hello(), EVENT, EVENT, bye(source.reason), b""]
    assert source.closed
