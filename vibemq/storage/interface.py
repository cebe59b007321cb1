"""The contract of every storage provider, and what a provider folder exports.

storage/state/reducer.py       `apply(state, record)`: the pure reducer; every provider and the checkpointer use it
storage/kvstore/encoding.py    records, state values and blocks as bytes, each with its CRC32C
storage/<provider>/    PLUGIN = StoragePlugin(...)
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from vibemq.errors import ConfigInvalid
from vibemq.model.dead.groups import DeadGroupPage, DeadGroupsWanted
from vibemq.model.records import Record
from vibemq.model.rows import LargeRow
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
    full: str = ""
    """Why new messages are refused, so that what room is left serves the drain: a full disk, or a limit of the process,
    and how to repair it. Empty while they are not."""
    unapplied_bytes: int = 0
    """Of the journal, what no checkpoint has moved into the store yet."""
    checkpoint_interval_s: float = 0.0
    """How long a change waits for its checkpoint at most when all is well; 0 = no change waits."""
    journal_bytes_max: int = 0
    """More than this is never left unapplied: publishes are refused before; 0 = no bound."""
    reusable_bytes: int = 0
    """Room in the store's own files: unused pages, journal that nothing needs any more, and the ballast."""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def writable_bytes(self) -> int:
        """What can still be written: the disk's free bytes, and those of the store's files that can be used again."""
        return self.disk_free_bytes + self.reusable_bytes


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """Where a store is: a folder of this machine, or the address of a service on another one."""

    folder: Path | None = None
    url: str = ""

    @classmethod
    def of(cls, text: str | Path) -> "StoreLocation":
        """A path, or an address with a scheme (`postgresql://…`). Raises ConfigInvalid when it is empty."""
        if isinstance(text, Path):
            return cls(text)
        if not text.strip():
            raise ConfigInvalid("a store has no place; name a folder, or the address of a service")
        scheme, separator, _ = text.partition("://")
        return cls(url=text) if separator and scheme.isalnum() else cls(Path(text))

    def local(self, provider: str) -> Path:
        """The folder. Raises ConfigInvalid for a service: this provider keeps its files itself."""
        if self.folder is None:
            raise ConfigInvalid(f"the {provider} provider keeps its store in a folder; {self} is none, set data_dir")
        return self.folder

    def __str__(self) -> str:
        return str(self.folder) if self.folder is not None else _without_password(self.url)


def _without_password(url: str) -> str:
    scheme, _, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    people, at, host = authority.rpartition("@")
    return f"{scheme}://{people.partition(':')[0]}{at}{host}{slash}{path}".partition("?")[0]


@dataclass(frozen=True, slots=True)
class StoreInspection:
    """A store as it lies there, looked at without a broker. No file of it is changed, whatever opening would change."""

    state: StoredState
    """With what a killed broker left in the journal."""
    stats: StorageStats
    check: Callable[[], list[Problem]]
    """Everything that is stored, as `IStorageProvider.check`."""


class IStorageProvider(Protocol):
    """Keeps records and rows. Blocking calls; not for use from two threads at once, except as said below.

    A provider instance opens one store and owns it until `close()`. What only a store in a folder has is the provider's
    own affair: the lock on the folder, the ballast, the disk's size (0 in `stats` where there is no disk to watch).
    """

    name: str
    blocking_append: bool
    """True: `append` may wait for the disk, so the server calls it (and `read`) from its storage thread.
    False: `append` is quick enough for the event loop."""
    in_flight_max: int
    """How many calls of `sync` may be under way at the same time, each in a thread of its own. 1: a flush is quick, and
    the next one covers whatever gathers meanwhile. More: a flush is a round trip to another machine."""
    concurrent_reads: bool
    """True: `read`, `dead_letters` and `dead_letter` may run in a thread of their own, beside all other verbs."""
    epoch: int
    """Which ownership of the store this is, from `open` on: greater than that of every owner before. Every commit
    carries it, and is refused with StorageFenced once the store has a greater one. 0: the store has no epochs, its lock
    cannot be lost."""

    def open(self) -> StoredState:
        """Take the store over, recover, and return the state without the backlog.

        The state is a view until the next `append`: the caller reads it, and neither changes nor keeps it.

        Raises:
            StorageLocked: another process owns the directory; names its pid and host.
            StoreVersionError: newer store, or migrations are pending.
            StorageDamaged: durable bytes are broken; suggests the repair verb.
        """

    def append(self, records: Sequence[Record]) -> int:
        """Write one batch, all or nothing, and return its lsn. Survives `kill -9` when it returns.

        Raises:
            StorageFull: nothing was written; the caller may go on. Never of a batch that has nothing but messages of
                transient queues: no room on a disk is needed for these.
            StorageFenced: the store has another owner; nothing was written. Every later call raises the same.
            StorageFailed: outcome unknown; the process must stop. Every later call raises the same.
        """

    def sync(self) -> int:
        """Make everything appended before the call survive a power cut; return the lsn up to which it does.

        One flush, however many batches. May run in a worker thread while `append` and `read` go on in another. Of
        several calls under way each covers what was appended before it; none says anything about a later one.
        Raises StorageFailed; a failed flush is never tried again.
        """

    def read(self, queue_id: int, first: int, last: int, max_bytes: int) -> list[Slice]:
        """Rows of the sequences in [first, last] that are stored, ascending, at least one if any, up to max_bytes.

        Many small slices may end it earlier: see `Slice.cost`.
        Sequences that nothing keeps any more may be left out (slices break there). Appended rows are readable at once.
        Raises StorageDamaged naming the queue and sequences when a checksum fails, or when a message that must be there
        has no row; nothing damaged is returned. Its `run`, where the provider knows it, is within [first, last]: all of
        these are damaged, and what stands before them is sound as far as one read reaches.
        """

    def dead_letters(self, *, after: int = 0, limit: int = 100, queue: str | None = None) -> list[DeadLetter]:
        """Dead letters with dead_id > after, ascending, with their rows."""

    def dead_page(self, wanted: DeadPageWanted) -> DeadPage:
        """A stretch of the DLQ, of bounded work. Raises nothing for damaged letters: the page names them."""

    def dead_groups(self, wanted: DeadGroupsWanted) -> DeadGroupPage:
        """A stretch of the groups of dead letters, ascending by key, of bounded work. Counts are exact, also of what no
        checkpoint has written. Raises StorageDamaged."""

    def dead_queues(self, after: int = 0, limit: int = 100, name: str | None = None) -> list[tuple[int, str]]:
        """(queue_id, name) of the queues with ids > after that have dead letters, deleted ones too, ascending; with
        `name`, of all queues that have or had it. A queue whose letters are newer than the last call of `dead_groups`
        may be left out, and one whose letters have gone since the last checkpoint may be there."""

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


@runtime_checkable
class FlushesAtOnce(Protocol):
    """A provider whose `sync` is one quick system call on a good disk, so that it may be called on the event loop."""

    def try_sync(self) -> int | None:
        """As `sync`; None, and nothing is done, while another flush is under way in any thread."""


@runtime_checkable
class MaintainsInTurns(Protocol):
    """A provider of whose housekeeping `maintain` does a part of bounded length, so that appends come in between."""

    def maintain_on(self) -> bool:
        """Go on for some milliseconds with the round that the last `maintain` has begun; return whether it has more.
        Called as `maintain` is."""


@runtime_checkable
class PreparesRows(Protocol):
    """A provider that writes large rows ahead of their record, so that their commit is as short as any other."""

    def prepare(self, row: LargeRow) -> None:
        """Write the row where `append` will find it (`row.prepared`), or leave it as it is when there is no room. May
        run in any thread, beside all other verbs. Raises StorageFailed."""


@runtime_checkable
class PicksRows(Protocol):
    """A provider that reads rows far apart from each other by the blocks in which they stand."""

    def picks(self, queue_id: int) -> bool:
        """Whether it does so for this queue: no row of it is above `LARGE_ROW_BYTES`."""

    def pick(self, queue_id: int, sequences: Sequence[int], max_bytes: int) -> tuple[list[Slice], int]:
        """Rows of these sequences, which ascend, each on its own; and how many of the sequences were looked at before
        `max_bytes` had come.

        May run in any thread, beside all other verbs. What nothing keeps any more is left out. Raises StorageDamaged
        as `read` does.
        """


@runtime_checkable
class RefusesBackups(Protocol):
    """A provider whose store cannot be copied: `backup` raises the same whenever it is called."""

    def refuse_backup(self) -> None:
        """For dry runs, and before a folder is made for the copy. Raises InvalidOptions."""


@dataclass(frozen=True, slots=True)
class StoragePlugin:
    """What `vibemq.storage.<name>` exports as PLUGIN."""

    name: str
    settings: type[Any]
    """A pydantic model of the provider's own options (`extra="forbid"`, frozen); all with defaults."""
    connect: Callable[[StoreLocation, Any], IStorageProvider]
    """(location, settings) -> provider, not yet opened. Imports of optional dependencies happen in here."""
    durable: bool = True
    """False: keeps nothing over a restart; only transient queues are allowed, unless `allows_durable_queues`."""
    local: bool = True
    """False: the store is a service's, and needs no data directory."""
    allows_durable_queues: Callable[[Any], bool] | None = None
    """Of a provider that is not durable: whether its settings allow durable queues all the same."""
    salvage: Callable[[StoreLocation, Any], list[Problem]] | None = None
    """Offline: save what is valid, return what could not be saved."""
    look: Callable[[StoreLocation, Any], AbstractContextManager[StoreInspection]] | None = None
    """Offline: keep brokers out, and look at the store without changing it; for `check` and for dry runs.
    Raises what `open` raises. None: the provider keeps nothing to look at, or cannot look without changing it."""

    def create(self, data_dir: Path, settings: Any) -> IStorageProvider:
        """A provider of the store in a folder."""
        return self.connect(StoreLocation(data_dir), settings)

    def accepts_durable_queues(self, settings: Any) -> bool:
        """Whether queues may be other than transient."""
        return self.durable or (self.allows_durable_queues is not None and self.allows_durable_queues(settings))

    @property
    def inspect(self) -> Callable[[Path, Any], AbstractContextManager[StoreInspection]] | None:
        """`look` at the store in a folder; None when the provider cannot."""
        look = self.look
        return None if look is None else lambda data_dir, settings: look(StoreLocation(data_dir), settings)

    @property
    def repair(self) -> Callable[[Path, Any], list[Problem]] | None:
        """`salvage` of the store in a folder; None when the provider cannot repair."""
        salvage = self.salvage
        return None if salvage is None else lambda data_dir, settings: salvage(StoreLocation(data_dir), settings)
