"""The C library's heap: large buffers go back to the system when they are freed, those of batches stay for the next.

glibc raises the size from which a buffer gets a mapping of its own whenever such a one is freed, up to 32 MiB. After
the first message of 16 MiB the next ones would come from the heap, be copied as they grow, and stay resident.

Once that size is fixed, glibc no longer adapts either how much free memory it keeps at the end of the heap: 128 KiB, so
that the memory of nearly each batch was given back and faulted in again. That took a quarter of the processor time of
messages of 1 KiB that are published, delivered and acknowledged.
"""

import ctypes
import logging

log = logging.getLogger("vibemq.broker")

MAPPED_FROM_BYTES = 1 << 20
KEPT_BYTES = 4 << 20
"""A few batches on their way. With 8 MiB they took the same time."""
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3


def tune_heap() -> None:
    """Fix both sizes. Without effect where the C library has no such settings."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for setting, size in ((_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES), (_M_TRIM_THRESHOLD, KEPT_BYTES)):
        if not mallopt(setting, size):
            log.debug("the C library keeps its own sizes for buffers that are mapped and memory that is kept")
