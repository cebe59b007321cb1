"""What lies where in a data directory.

store.json         provider and version                          (vibemq.storage.local.store_file)
lock, owner.json   who owns the directory                        (vibemq.storage.local.lock)
journal/           segments                                      (journal/segment.py)
store/             the LMDB environment, keys as everywhere      (environment/env.py, vibemq.storage.kvstore.keys)
ballast            blocks kept for a full disk                   (vibemq.storage.local.ballast)
"""

from dataclasses import dataclass
from pathlib import Path

from vibemq.storage.lmdb.environment.env import DATA_FILE

PROVIDER = "lmdb"
VERSION = 2
"""Store version that this code reads and writes: the number of the last migration."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one data directory."""

    data_dir: Path

    @property
    def journal(self) -> Path:
        return self.data_dir / "journal"

    @property
    def store(self) -> Path:
        return self.data_dir / "store"

    @property
    def data_file(self) -> Path:
        return self.store / DATA_FILE
