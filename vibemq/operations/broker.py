"""The broker itself and its store."""

import errno
import logging
import os
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from anyio import CapacityLimiter
from pydantic import Field

from vibemq.errors import InvalidOptions, InvalidPayload, StorageError
from vibemq.operations.arguments import Arguments, CanBeTried, Text
from vibemq.operations.contracts import BrokerReport, InstantSource, StoreAccess
from vibemq.operations.registry import Caller, Operation
from vibemq.storage.interface import RefusesBackups
from vibemq.storage.local.backup_folder import refuse_inside
from vibemq.storage.local.store_file import make_folder

log = logging.getLogger("vibemq.backup")

BACKUPS_TOGETHER_MAX = 4


class BackupArguments(CanBeTried):
    target: Text = Field(description="An absolute path of a new or empty folder on the broker's machine.")


class KeptBackups(Protocol):
    """Which backups the broker has written (`vibemq.server.around.backup_log`). Everything here blocks."""

    def add(self, backup: Mapping[str, Any]) -> None:
        """Raises OSError."""

    def latest_first(self) -> list[dict[str, Any]]:
        """Raises OSError."""

    def size_of(self, folder: Path) -> int:
        """Bytes of all files of a backup. Raises OSError."""


class BrokerOperations:
    def __init__(
        self,
        store: StoreAccess,
        report: BrokerReport,
        place: Mapping[str, Any],
        backups: KeptBackups,
        clock: InstantSource,
        reload: Callable[[Caller], Awaitable[dict[str, Any]]],
    ) -> None:
        """`place`: where the data is, for broker.info. `reload`: reads the settings again, see broker.reload."""
        self._store = store
        self._report = report
        self._place = place
        self._backups = backups
        self._clock = clock
        self._reload = reload
        self._backup_slots = CapacityLimiter(BACKUPS_TOGETHER_MAX)

    async def info(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        stats = await self._store.call(self._store.provider.stats)
        return {**self._report.info(), **self._place, "storage": asdict(stats)}

    async def metrics(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        return dict(await self._report.latest_metrics())

    async def reload(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        """Names of settings and files, never values. `files` is None when there is nothing to read settings from.
        Raises ConfigInvalid; then nothing has changed."""
        return await self._reload(caller)

    async def backup(self, caller: Caller, wanted: BackupArguments) -> dict[str, Any]:
        target = Path(wanted.target)
        if not target.is_absolute():
            raise InvalidPayload("argument target must be an absolute path on the broker's machine")
        if isinstance(self._store.provider, RefusesBackups):
            self._store.provider.refuse_backup()
        if wanted.dry_run:
            await self._store.aside(_check, target, self._data_dir)
            return {}
        # It may last for an hour: it has no place among what only reads much.
        async with self._backup_slots:
            # It may have waited for long.
            caller.check_again()
            return await self._backed_up(caller, target)

    @property
    def _data_dir(self) -> Path | None:
        place = self._place.get("data_dir")
        return Path(place) if place else None

    async def _backed_up(self, caller: Caller, target: Path) -> dict[str, Any]:
        await self._store.aside(_prepare, target, self._data_dir)
        begun = self._clock.now()
        try:
            await self._store.aside(self._store.provider.backup, target)
        except OSError as error:
            raise StorageError(
                f"the backup into {target} failed: {_cause(error)}; remove what it has left there and repair the cause "
                "before the next try"
            ) from error
        user = caller.principal.name if caller.principal is not None else ""
        made = {"at": begun, "target": str(target), "user": user, "took_ms": self._clock.now() - begun}
        try:
            size = await self._store.aside(self._backups.size_of, target)
            await self._store.aside(self._backups.add, {**made, "size_bytes": size})
        except OSError as error:
            # The backup is there all the same.
            log.warning("the backup into %s is not in the list of backups: %s", target, error)
        return {}

    async def backups(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        """Raises StorageError."""
        try:
            return {"backups": await self._store.aside(self._backups.latest_first)}
        except OSError as error:
            raise StorageError(f"the list of backups cannot be read: {error.strerror or error}") from error


def _cause(error: OSError) -> str:
    """With the file or the program that it is about."""
    told = error.strerror or str(error)
    return f"{told} ({error.filename})" if error.filename is not None else told


def _prepare(target: Path, data_dir: Path | None) -> None:
    """Raises InvalidOptions when no backup can be written there."""
    with _explained(target):
        if data_dir is not None:
            refuse_inside(target, data_dir)
        make_folder(target)
        occupied = any(target.iterdir())
    _refuse_occupied(target, occupied=occupied)


def _check(target: Path, data_dir: Path | None) -> None:
    """The same, and nothing is made."""
    with _explained(target):
        if data_dir is not None:
            refuse_inside(target, data_dir)
        there = next(level for level in (target, *target.parents) if level.exists())
        occupied = any(there.iterdir()) and there == target
        if not os.access(there, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(there))
    _refuse_occupied(target, occupied=occupied)


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    """Raises InvalidOptions in place of OSError, and of ValueError, which a path with a null character gives."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise InvalidOptions(f"the backup folder {str(target)!r} cannot be used: {why}; choose another one") from error


def _refuse_occupied(target: Path, *, occupied: bool) -> None:
    if occupied:
        raise InvalidOptions(f"the backup folder {target} is not empty; choose a new or empty one")


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "broker.info",
        "Version, uptime, data directory, alarms and storage of the broker.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.info,
        logged=True,
    ),
    Operation(
        "broker.metrics",
        "Counters of the broker.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.metrics,
        logged=True,
    ),
    Operation(
        "broker.reload",
        "Read the settings and the TLS files of the listeners again. What cannot change at run time is named.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.reload,
        logged=True,
        audited=True,
    ),
    Operation(
        "storage.backup",
        "Write a consistent copy of the store while the broker serves.",
        BackupArguments,
        BrokerOperations,
        task=BrokerOperations.backup,
        logged=True,
        audited=True,
    ),
    Operation(
        "backup.list",
        "The latest 100 backups that the broker has written, and whether their folders are still there.",
        Arguments,
        BrokerOperations,
        task=BrokerOperations.backups,
        logged=True,
    ),
]
