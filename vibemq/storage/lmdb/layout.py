"""What lies where in a data directory.

store.json         provider and version                          (vibemq.storage.local.store_file)
lock, owner.json   who owns the directory                        (vibemq.storage.local.lock)
journal/           segments                                      (journal/segment.py)
journal-durable    how far the journal was flushed               (vibemq.storage.local.high_water)
store/             the LMDB environment, keys as everywhere      (environment/env.py, vibemq.storage.kvstore.keys)
ballast            blocks kept for a full disk                   (vibemq.storage.local.ballast)
"""

from dataclasses import dataclass
from pathlib import Path

from vibemq.storage.lmdb.environment.env import DATA_FILE
from vibemq.storage.local.high_water import note_of

PROVIDER = "lmdb"
VERSION = 10
"""Store version that this code reads and writes: the number of the last migration."""


_ENVIRONMENT = (DATA_FILE, "lock.mdb", "*.lock")
FILES = (
    "journal",
    "journal-durable",
    *(f"journal/{'?' * 16}.journal{suffix}" for suffix in ("", ".new")),
    *(
        f"{folder}{file}"
        for folder in (
            "store",
            "store.repaired",
            "store.damaged-*",
            *(f"{place}compacting" for place in ("", "store/", "store.damaged-*/")),
        )
        for file in ("", *(f"/{name}" for name in _ENVIRONMENT))
    ),
)
"""Everything that this provider keeps in a data directory, besides what every store has; `*` and `?` as in a shell."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside one data directory."""

    data_dir: Path

    @property
    def journal(self) -> Path:
        return self.data_dir / "journal"

    @property
    def note(self) -> Path:
        return note_of(self.journal)

    @property
    def store(self) -> Path:
        return self.data_dir / "store"

    @property
    def data_file(self) -> Path:
        return self.store / DATA_FILE
