"""Giving the unused pages of LMDB's file back to the disk: a compacted copy takes the file's place.

LMDB uses freed pages again and never makes its file shorter. A drained backlog would keep its disk space for ever,
where nothing but LMDB can use it. The copy is written by the only writer, or while there is none.
"""

import os
import shutil
from pathlib import Path

import lmdb

from vibemq.errors import StorageFull
from vibemq.storage.lmdb.environment.env import DATA_FILE
from vibemq.storage.lmdb.environment.tables import translated
from vibemq.storage.lmdb.layout import Layout
from vibemq.storage.local.store_file import fsync_file, fsync_folder

COMPACTING = "compacting"
MARGIN_BYTES = 256 << 10
"""What the disk must have free beyond the copy."""


def store_size(env: lmdb.Environment) -> tuple[int, int]:
    """(bytes of the data file, bytes of its pages that nothing uses)."""
    stat, info = env.stat(), env.info()
    size = (info["last_pgno"] + 1) * stat["psize"]
    used = stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] + 2
    return size, max(0, size - used * stat["psize"])


def map_used_ratio(env: lmdb.Environment) -> float:
    """Part of the map that the file takes; LMDB refuses to grow beyond it."""
    stat, info = env.stat(), env.info()
    return float((info["last_pgno"] + 1) * stat["psize"] / info["map_size"])


def need_room(layout: Layout, env: lmdb.Environment, free: int) -> None:
    """Raise StorageFull, with what is missing, when the copy would not fit into the disk's `free` bytes."""
    size, unused = store_size(env)
    needed = size - unused + MARGIN_BYTES
    if free < needed:
        raise StorageFull(
            f"compacting the store in {layout.data_dir} needs {needed} bytes beside it and {free} are free; "
            f"free {needed - free} bytes on its disk, or drain queues, and compact again"
        )


def copying_folder(layout: Layout) -> Path:
    """In the store's own folder, which may be on another disk than the others: a rename gives the copy its place."""
    return layout.store / COMPACTING


def write_compacted(layout: Layout, env: lmdb.Environment) -> None:
    """Write a compacted copy of the store beside it. Nobody writes the store until `flush_swap`.

    Raises:
        StorageFull: no room for the copy; nothing changed.
    """
    remove_leftover(layout)
    folder = copying_folder(layout)
    folder.mkdir(mode=0o700)
    try:
        with translated(str(folder / DATA_FILE)):
            env.copy(str(folder), compact=True)
        fsync_file(folder / DATA_FILE)
    except BaseException:
        remove_leftover(layout)
        raise


def swap_compacted(layout: Layout) -> None:
    """Put the copy in the store's place. Nobody has the store open meanwhile.

    A crash leaves the old file or the new one, both whole: the rename is what counts. They hold the same until somebody
    writes the store, which nobody does before `flush_swap`.
    """
    folder = copying_folder(layout)
    os.chmod(folder / DATA_FILE, 0o600)
    os.rename(folder / DATA_FILE, layout.data_file)


def flush_swap(layout: Layout) -> None:
    """Have the new file stay in the old one's place from here on. May take as long as the disk needs for what others
    have written; appends and reads may go on."""
    fsync_folder(layout.store)
    remove_leftover(layout)


def remove_leftover(layout: Layout) -> None:
    """Remove an unfinished copy: it takes room, and nothing reads it."""
    # Earlier versions made it beside the store.
    for folder in (copying_folder(layout), layout.data_dir / COMPACTING):
        shutil.rmtree(folder, ignore_errors=True)
