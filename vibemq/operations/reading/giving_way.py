"""Work that can wait, such as a search or an export, gives way to messages. Without settings, sockets or threads."""

import asyncio
from time import monotonic

SHARE = 12
"""Of the loop's time, such work has one part in so many while others want all of it."""
WORKED_S_MAX = 0.002
"""A step that took longer was held up by something else."""
IDLE_TURN_S = 0.0002
"""A turn of the loop that was shorter had nothing to do for anybody."""
IDLE_S = 0.0005
"""So long there are none but such turns when nobody wants the loop: also a busy one has one between two longer ones."""


async def give_way(worked_s: float) -> None:
    """Let others have the loop for as long as their share is of a step that took so long, or until they want nothing
    more of it. At least one turn."""
    idle_since = at = monotonic()
    end = at + (SHARE - 1) * min(worked_s, WORKED_S_MAX)
    while True:
        await asyncio.sleep(0)
        now = monotonic()
        if now - at >= IDLE_TURN_S:
            idle_since = now
        if now >= end or now - idle_since >= IDLE_S:
            return
        at = now
