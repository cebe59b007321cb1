"""Python's cycle collector while a broker starts."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """What is made meanwhile is there to stay: it is not looked through while it is made, nor in any later collection.

    With many queues a full collection would otherwise hold the loop for as long as it takes to look at all of them.
    For a process of the broker's own; an embedding program's objects are not ours to freeze.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
