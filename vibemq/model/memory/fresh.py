"""Memory for a large row, which is filled once from its beginning to its end and stays where it is.

The system finds pages for it when it is touched. Of 4 KiB each, that takes longer than the copy of the bytes that are
put there: of huge pages a 16 MiB row needs eight. Where the system has none, all is as without.
"""

import ctypes
import mmap
from collections.abc import Callable
from io import BytesIO

HUGE_PAGE_BYTES = 2 << 20
"""A row of less has no such page."""


def fresh_memory(size: int) -> BytesIO:
    """Room for `size` bytes, which takes hardly any memory before it is written to. Cut it where the bytes end
    (`truncate`): then `getvalue` is these bytes, and no copy of them."""
    memory = BytesIO(bytes(size))
    if size >= HUGE_PAGE_BYTES and _advise is not None:
        with memory.getbuffer() as buffer:
            _want_huge_pages(_advise, buffer)
    return memory


def _want_huge_pages(advise: Callable[..., int], buffer: memoryview) -> None:
    """A wish: whether the system grants it makes no difference to what the memory holds."""
    first = ctypes.c_char.from_buffer(buffer)
    start = ctypes.addressof(first)
    # It holds on to the buffer.
    del first
    begin = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (start + len(buffer)) // mmap.PAGESIZE * mmap.PAGESIZE
    advise(ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_HUGEPAGE)


def _find_advise() -> Callable[..., int] | None:
    """The C library's; None: the system has no such wish."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return None
    try:
        found: Callable[..., int] = ctypes.CDLL(None).madvise
    except (AttributeError, OSError):
        return None
    return found


_advise = _find_advise()
