"""What the parts of an open `lmdb` provider share: LMDB itself, the state, and the locks that guard them."""

import threading

import lmdb

from vibemq.errors import StorageFailed
from vibemq.model.stored import StoredState
from vibemq.storage.lmdb.layout import Layout


class OpenStore:
    """`env`, `state` and `applied_lsn` are there once the provider has opened them."""

    env: lmdb.Environment
    """A compacted copy takes its place: whoever reads it has `lock` or `large_lock`."""
    state: StoredState
    applied_lsn: int
    """Checkpointed up to here."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.where = str(layout.data_file)
        self.lock = threading.RLock()
        """Never held for a flush or a checkpoint."""
        self.large_lock = threading.Lock()
        """Held while a large row is read from LMDB; taken before `lock`."""
        self.closed = True

    def require_open(self) -> None:
        if self.closed:
            raise StorageFailed(f"the store in {self.layout.data_dir} is not open")

    def end(self) -> None:
        """Nobody reads any more: who is reading comes to its end, and who waits for its turn finds the store closed."""
        with self.large_lock, self.lock:
            self.closed = True
