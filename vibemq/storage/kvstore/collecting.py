"""Pausing Python's cyclic garbage collector while a state is loaded."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 200_000
"""Objects made inside, from which on they are kept out of every later collection."""


@contextmanager
def uncollected() -> Iterator[None]:
    """Nothing that is made inside is garbage; looking for some in it again and again takes longer than making it all.

    A big state lives as long as its store, so it is kept out of later collections as well: one look at the state of
    100,000 queues stops the process for a second. Reference counts free it all the same.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        if gc.get_count()[0] >= MANY:
            gc.freeze()
    finally:
        gc.enable()
