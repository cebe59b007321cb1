"""The checkpointer's process, which runs this module with the data directory as its argument.

The only writer of the store. Orders come as JSON lines on stdin, answers go to stdout (the protocol is drawn in
`checkpointer_process.py`). The end of stdin ends it at once, also in the middle of a transaction: nothing uncommitted
is missed, the journal has it.
"""

import ctypes
import json
import logging
import os
import queue
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import lmdb

from vibemq.errors import StorageDamaged, StorageError, StorageFailed, StorageFull
from vibemq.storage.lmdb.checkpoint.checkpoint import Checkpoint, SegmentToApply
from vibemq.storage.lmdb.compaction import need_room, write_compacted
from vibemq.storage.lmdb.environment.env import flush_again, open_writer
from vibemq.storage.lmdb.environment.free_pages import unused_pages
from vibemq.storage.lmdb.environment.tables import translated
from vibemq.storage.lmdb.environment.writer_lock import WriterLock
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.local.disk import RealDisk

logger = logging.getLogger(__name__)

EXIT_FAILED = 70
NICENESS = 5
PROGRESS_S = 1.0
"""How often a long order says that it goes on."""


class Checkpointer:
    """Carries out one order at a time."""

    def __init__(self, layout: Layout, env: lmdb.Environment) -> None:
        self._layout = layout
        self._env = env
        self._spoken_at = time.monotonic()
        # What a killed checkpointer committed may be in the page cache only. Journal is released upon what is loaded
        # here, so it must not be lost later.
        flush_again(RealDisk(), layout.store)
        self._checkpoint = Checkpoint(env, self._progress)

    @property
    def applied_lsn(self) -> int:
        return self._checkpoint.applied_lsn

    def carry_out(self, order: dict[str, Any]) -> dict[str, Any]:
        """Raises StorageError; the process must end then."""
        if "apply" in order:
            return self._apply(order)
        if "backup" in order:
            return self._copy(order["backup"])
        if "compact" in order:
            return self._compact()
        raise ValueError(f"unknown order {order!r}")

    def _apply(self, order: dict[str, Any]) -> dict[str, Any]:
        segments = [SegmentToApply(*segment) for segment in order["segments"]]
        self._checkpoint.apply_segments(
            RealDisk(), segments, up_to_lsn=order["apply"], at_once=order["at_once"], short=order["short"]
        )
        applied = {"applied": self._checkpoint.applied_lsn}
        return {**applied, "unused": unused_pages(self._layout.data_file)} if order["count"] else applied

    def _copy(self, folder: str) -> dict[str, Any]:
        """What the folder's disk does not take is an answer like another: the store is as it was."""
        try:
            with translated(folder, str(self._layout.data_file)):
                self._env.copy(folder, compact=True)
        except StorageFailed as error:
            return {"refused": "backup", "error": str(error.__cause__)}
        except StorageFull as error:
            return {"refused": "backup", "error": str(error), "code": error.code.value}
        except StorageDamaged as error:
            return {"refused": "backup", "error": str(error.__cause__), "code": error.code.value, "path": error.path}
        except (StorageError, OSError) as error:
            return {"refused": "backup", "error": str(error)}
        return {"done": "backup"}

    def _compact(self) -> dict[str, Any]:
        """No room for the copy is an answer like another: the store is as it was."""
        try:
            need_room(self._layout, self._env, shutil.disk_usage(self._layout.store).free)
            write_compacted(self._layout, self._env)
        except StorageFull as error:
            return {"refused": "compact", "error": str(error)}
        return {"done": "compact"}

    def _progress(self) -> None:
        if time.monotonic() - self._spoken_at >= PROGRESS_S:
            self._spoken_at = time.monotonic()
            _answer({"working": self._checkpoint.applied_lsn})


def main(arguments: list[str]) -> int:
    """Run until stdin ends. Exit code 70: an order failed, the outcome was reported."""
    # A signal to the whole process group is the broker's to handle; it closes our stdin when it is done.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    layout = Layout(Path(arguments[0]))
    lock = WriterLock(layout.store)
    orders: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(orders,), name="orders", daemon=True).start()
    try:
        lock.acquire(wait_s=10.0)
        checkpointer = Checkpointer(layout, open_writer(layout.store))
        _answer({"ready": checkpointer.applied_lsn})
        while True:
            _answer(checkpointer.carry_out(orders.get()))
            _give_memory_back()
    except StorageFull as error:
        _answer({"failed": error.code.value, "error": str(error), "limit": error.limit})
    except StorageError as error:
        _answer({"failed": error.code.value, "error": str(error)})
    except (lmdb.Error, OSError) as error:
        _answer({"failed": "STORAGE_FAILED", "error": str(error)})
    return EXIT_FAILED


def _listen(orders: "queue.SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    # Not sys.exit: the main thread may be deep inside a transaction, and there is nobody left to work for.
    os._exit(0)


def _give_memory_back() -> None:
    """What an order took, to the system. Only glibc keeps it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _answer(answer: dict[str, Any]) -> None:
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
