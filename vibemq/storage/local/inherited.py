"""Descriptors that a forked child has of its parent and must not keep."""

import os
from collections.abc import Iterable


def let_go_of(descriptors: Iterable[int]) -> None:
    """Put the null device in their place. A descriptor is not closed by number, which a later finalizer would do again
    to whatever has the number then."""
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in descriptors:
            os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)
