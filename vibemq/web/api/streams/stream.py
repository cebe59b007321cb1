"""One open stream: what it writes, and when it ends."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from starlette.responses import Response

from vibemq.web.api.streams.frames import HEARTBEAT, bye, hello
from vibemq.web.limits import LIVE, Receive, Scope, Send, extender

MEDIA_TYPE = "text/event-stream"
HEARTBEAT_S = 15.0
UNREAD_S = 30.0
"""A reader that takes nothing for so long is cut off."""
LOOK_S = 1.0
"""How often a stream asks whether it may go on."""


class StreamSource(Protocol):
    """What a stream tells."""

    async def take(self, seconds: float) -> bytes:
        """Events that have come, at most so much later; b"" when there are none. What was not taken in time is left
        out, not kept.

        Raises:
            StreamOver: there will be no more.
        """

    def close(self) -> None:
        """Nobody reads any more."""


class StreamOver(Exception):
    """The last word is the text."""


class OpenStreams:
    """Wakes all streams when the broker stops, so that they say goodbye before the connections are closed.

    Args:
        begin: runs a task until it ends or the broker stops.
    """

    def __init__(self, begin: Callable[[Callable[[], Coroutine[Any, Any, None]]], None]) -> None:
        self._begin = begin
        self._open: set[asyncio.Future[None]] = set()
        self._watching = False

    def enter(self) -> "asyncio.Future[None]":
        """Done when the stream shall ask whether it may go on."""
        if not self._watching:
            self._watching = True
            self._begin(self._watch)
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.add(woken)
        return woken

    def leave(self, woken: "asyncio.Future[None]") -> None:
        self._open.discard(woken)

    async def _watch(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            for woken in self._open:
                if not woken.done():
                    woken.set_result(None)


class EventStream(Response):
    """Args:
    why_over: asked every second; why the stream may not go on, "" = it may.
    """

    def __init__(self, source: StreamSource, why_over: Callable[[], str], streams: OpenStreams) -> None:
        super().__init__(media_type=MEDIA_TYPE, headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._source = source
        self._why_over = why_over
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._run(scope, receive, send)
        finally:
            self._source.close()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        extend = extender(scope)
        scope.get(LIVE, _nothing)()
        gone = asyncio.ensure_future(until_gone(receive))
        woken = self._streams.enter()
        try:
            extend(UNREAD_S)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body", "body": b""})
                return
            await self._write(send, hello(), extend)
            await self._tell(send, extend, gone, woken)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._streams.leave(woken)
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _tell(
        self,
        send: Send,
        extend: Callable[[float], None],
        gone: "asyncio.Future[None]",
        woken: "asyncio.Future[None]",
    ) -> None:
        silent_s = 0.0
        loop = asyncio.get_running_loop()
        while not gone.done():
            if reason := self._why_over():
                await self._write(send, bye(reason), extend)
                return
            began = loop.time()
            try:
                events = await _unless(self._source.take(LOOK_S), gone, woken)
            except StreamOver as over:
                await self._write(send, bye(str(over)), extend)
                return
            if events and (reason := self._why_over()):
                # What came after the stream was ruled out is for nobody.
                await self._write(send, bye(reason), extend)
                return
            silent_s += loop.time() - began
            if not events and silent_s >= HEARTBEAT_S:
                events = HEARTBEAT
            if events and not gone.done():
                silent_s = 0.0
                await self._write(send, events, extend)

    async def _write(self, send: Send, data: bytes, extend: Callable[[float], None]) -> None:
        """The connection is cut when this takes too long."""
        await send({"type": "http.response.body", "body": data, "more_body": True})
        extend(UNREAD_S)


async def _unless(taking: Coroutine[Any, Any, bytes], *ends: "asyncio.Future[None]") -> bytes:
    """What was taken; b"" as soon as one of the ends is there."""
    task = asyncio.ensure_future(taking)
    waiting: list[asyncio.Future[Any]] = [task, *(end for end in ends if not end.done())]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else b""
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _nothing(*arguments: float) -> None:
    """A server without deadlines, and without connections that it knows."""
