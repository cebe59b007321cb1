"""Measures the flush time of a disk."""

import os
import tempfile
import time
from pathlib import Path

ROUNDS = 32
WRITE_BYTES = 4096


def fsync_latencies_ms(folder: Path, rounds: int = ROUNDS) -> list[float]:
    """Write a block and flush it, so many times, over blocks that exist already (as the journal does); sorted.

    Raises:
        OSError: the folder cannot be written.
    """
    descriptor, name = tempfile.mkstemp(prefix=".fsync-", dir=folder)
    try:
        os.pwrite(descriptor, b"\0" * WRITE_BYTES * rounds, 0)
        os.fsync(descriptor)
        latencies = []
        for number in range(rounds):
            os.pwrite(descriptor, b"\1" * WRITE_BYTES, number * WRITE_BYTES)
            began = time.perf_counter()
            os.fdatasync(descriptor)
            latencies.append(1000 * (time.perf_counter() - began))
        return sorted(latencies)
    finally:
        os.close(descriptor)
        os.unlink(name)
