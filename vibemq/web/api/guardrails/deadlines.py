"""How long an answer may take."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from vibemq.errors import ErrorCode
from vibemq.web.api.errors import Problem
from vibemq.web.limits import extender

LATE_S = 30.0
"""What the connection leaves an answer beyond its time."""


@asynccontextmanager
async def in_time(request: Request, timeout_s: float | None, *, keeps_answer: bool = False) -> AsyncIterator[None]:
    """What is waited for within may take so long, and its connection is kept for so long. None: for ever.

    `keeps_answer`: under the Idempotency-Key of the request.

    Raises:
        Problem: it has taken longer, and goes on without whoever has asked.
    """
    if timeout_s is not None:
        extender(request.scope)(timeout_s + LATE_S)
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError:
        again = (
            "; repeat it with the same Idempotency-Key, which has its answer once it has ended" if keeps_answer else ""
        )
        raise Problem(
            ErrorCode.TIMEOUT,
            f"there was no answer within {timeout_s:g} s; what was asked for may still be carried out{again}",
        ) from None
