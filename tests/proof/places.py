"""Where stores lie whose flushes prove nothing."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEMORY = Path("/dev/shm")


@contextmanager
def in_memory(work: Path) -> Iterator[Path]:
    """A folder in memory, or else below `work`: on a disk, flushes cost most of the time."""
    parent = MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else work
    place = Path(tempfile.mkdtemp(prefix="vibemq-proof-", dir=parent))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
