"""The C library's heap: large buffers go back to the system when they are freed.

glibc raises the size from which a buffer gets a mapping of its own whenever such a one is freed, up to 32 MiB. After
the first message of 16 MiB the next ones would come from the heap, be copied as they grow, and stay resident.
"""

import ctypes
import logging

log = logging.getLogger("vibemq.broker")

MAPPED_FROM_BYTES = 1 << 20
_M_MMAP_THRESHOLD = -3


def give_large_buffers_back() -> None:
    """Fix that size. Without effect where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    if not mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES):
        log.debug("the C library keeps its own size from which buffers are mapped")
