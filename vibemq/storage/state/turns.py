"""Long work on a store by the thread of its housekeeping."""

import time
from collections.abc import Callable


def in_turns(step: Callable[[], bool]) -> None:
    """Call `step` until it has nothing left to do. Each takes the locks that it needs, and appends and reads, which are
    called in the event loop's thread, may have them in between."""
    while step():
        time.sleep(0)
