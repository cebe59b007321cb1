"""The contract of every storage provider, and what a provider folder exports.

storage/state/reducer.py       `apply(state, record)`: the pure reducer; every provider and the checkpointer use it
storage/kvstore/encoding.py    records, state values and blocks as bytes, each with its CRC32C
storage/<provider>/    PLUGIN = Plugin(...)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from vibemq.model.records import Record
from vibemq.model.stored import DeadLetter, DeadPage, DeadPageWanted, Slice, StoredState

Progress = Callable[[int, int], None]
"""Called with (done, total) now and then during long work; total 0 = unknown."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding of `check()`."""

    what: str
    path: str
    offset: int | None = None
    queue: str = ""
    first_sequence: int = 0
    last_sequence: int = 0
    repairable: bool = False


@dataclass(frozen=True, slots=True)
class StorageStats:
    provider: str
    last_lsn: int
    durable_lsn: int
    applied_lsn: int
    """Checkpointed up to here."""
    journal_bytes: int
    store_bytes: int
    reclaimable_bytes: int
    buffered_bytes: int
    """Rows held in memory by the write buffer."""
    disk_free_bytes: int
    disk_total_bytes: int
    torn_tail_bytes: int = 0
    """Cut off at the last start."""
    full: bool = False
    """The disk was found full; new messages are refused, so that what room is left serves the drain."""
    details: dict[str, Any] = field(default_factory=dict)


class IStorageProvider(Protocol):
    """Keeps records and rows. Blocking calls; not for use from two threads at once, except as said below.

    A provider instance opens one data directory and owns it until `close()`.
    """

    name: str
    blocking_append: bool
    """True: `append` may wait for the disk, so the server calls it (and `read`) from its storage thread.
    False: `append` is quick enough for the event loop."""

    def open(self) -> StoredState:
        """Lock, recover, and return the state without the backlog. The caller owns it (a copy, not a view).

        Raises:
            StorageLocked: another process owns the directory; names its pid and host.
            StoreVersionError: newer store, or migrations are pending.
            StorageDamaged: durable bytes are broken; suggests the repair verb.
        """

    def append(self, records: Sequence[Record]) -> int:
        """Write one batch, all or nothing, and return its lsn. Survives `kill -9` when it returns.

        Raises:
            StorageFull: nothing was written; the caller may go on.
            StorageFailed: outcome unknown; the process must stop. Every later call raises the same.
        """

    def sync(self) -> int:
        """Make everything appended before the call survive a power cut; return the lsn up to which it does.

        One flush, however many batches. May run in a worker thread while `append` and `read` go on in another.
        Raises StorageFailed; a failed flush is never tried again.
        """

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """Rows of the sequences in [first, last] that are stored, ascending, at least one if any, up to max_bytes.

        Sequences that nothing keeps any more may be left out (slices break there). Appended rows are readable at once.
        Raises StorageDamaged naming the queue and sequences when a checksum fails, or when a message that must be there
        has no row; nothing damaged is returned.
        """

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        """Dead letters with dead_id > after, ascending, with their rows."""

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """A stretch of the DLQ, of bounded work. Raises nothing for damaged letters: the page names them."""

    def dead_letter(self, dead_id: int) -> DeadLetter | None: ...

    def maintain(self) -> None:
        """Housekeeping, called about every second from the server's storage thread: checkpoints, spare segments,
        ballast, supervision. May run beside `append`, `read` and `sync`."""

    def stats(self) -> StorageStats: ...

    def check(self) -> Iterator[Problem]:
        """Walk everything; yield nothing when sound. The provider is open, or (offline) opened for checking."""

    def backup(self, target: Path, progress: Progress | None = None) -> None:
        """Write a consistent copy that `open()` accepts into the empty or new folder `target`, while live."""

    def compact(self, progress: Progress | None = None) -> int:
        """Give unused disk space back; return the bytes freed. No other verb runs meanwhile."""

    def close(self) -> None:
        """Make everything durable, checkpoint if the provider does so, release the lock. Idempotent."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """What `vibemq.storage.<name>` exports as PLUGIN."""

    name: str
    settings: type[Any]
    """A pydantic model of the provider's own options (`extra="forbid"`, frozen); all with defaults."""
    create: Callable[[Path, Any], IStorageProvider]
    """(data_dir, settings) -> provider, not yet opened. Imports of optional dependencies happen in here."""
    durable: bool = True
    """False: keeps nothing over a restart; only transient queues are allowed unless configured otherwise."""
    repair: Callable[[Path, Any], list[Problem]] | None = None
    """Offline: save what is valid, return what could not be saved."""
