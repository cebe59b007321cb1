"""From other threads into the event loop of a client."""

import asyncio
from collections.abc import Callable
from typing import Any


def running_of(loop: Any) -> Callable[[], object]:
    """What says which loop of the same kind runs in the thread that asks; None in none. Who opened a client does not
    tell: another thread may run the loop later."""
    if loop is None:
        return lambda: None
    return asyncio._get_running_loop if isinstance(loop, asyncio.AbstractEventLoop) else _running_trio


def _running_trio() -> object:
    import trio.lowlevel

    try:
        return trio.lowlevel.current_trio_token()
    except RuntimeError:
        return None


def call_soon(loop: Any, call: Callable[[], object]) -> None:
    """In any thread: have it called in the loop, which is one of asyncio or a token of trio's. Raises RuntimeError:
    that has ended."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        loop.call_soon_threadsafe(call)
    else:
        loop.run_sync_soon(call)
