"""From other threads into the event loop of a client."""

import asyncio
from collections.abc import Callable
from typing import Any


def call_soon(loop: Any, call: Callable[[], object]) -> None:
    """In any thread: have it called in the loop, which is one of asyncio or a token of trio's. Raises RuntimeError:
    that has ended."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.call_soon_threadsafe(call)
    else:
        loop.run_sync_soon(call)
