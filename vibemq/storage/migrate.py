"""Numbered, forward-only steps that bring a store to the layout this VibeMQ speaks.

    migrations/<provider>/NNNN_name.py      def upgrade(transaction): ...     one docstring line says what it does
                                            def build(kv) -> bool: ...        optional, see below

A step changes the store inside one transaction of its provider, which also records the new version under the key
`mversion`; so a crash leaves the store before or after the step, never between. `store.json` follows; when a crash came
before it did, the next run sees that the step is done. The steps lie in `migrations/` of a source checkout and in
`vibemq/migrations/` of an installed package. A new store is made by running all of them on an empty one.

What follows from the rest of a store (an index) may be too much for one transaction. A step that makes such a thing has
a function `build`, which is called before `upgrade`, each time in a transaction of its own, until it answers False. It
writes nothing that an older VibeMQ reads, and goes on where a crash has left it.

A provider takes part with a module `vibemq.storage.<provider>.migration`:

    VERSION                                     version that the provider's code speaks
    open_store(data_dir) -> context manager     of a MigrationStore, made if it is missing; the directory is locked
    need_store(data_dir, dry_run=)              complete an interrupted repair; StorageDamaged when its file is missing
"""

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol

import vibemq
from vibemq.errors import StoreVersionError
from vibemq.storage.interface import Progress
from vibemq.storage.kvstore import keys
from vibemq.storage.kvstore.encoding import seal, unseal
from vibemq.storage.kvstore.integrity import TalliedKV
from vibemq.storage.kvstore.store import KV
from vibemq.storage.local.lock import DirectoryLock
from vibemq.storage.local.store_file import StoreInfo, newer_store, read_store_info, write_store_info

VERSION_KEY = keys.VERSION
_VERSION = struct.Struct("!I")


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One migration; it turns version `number - 1` into version `number`."""

    number: int
    name: str
    summary: str
    upgrade: Callable[[Any], None]
    build: Callable[[KV], bool] | None = None


@dataclass(frozen=True, slots=True)
class Status:
    provider: str
    version: int
    latest: int
    pending: tuple[MigrationStep, ...]


class MigrationStore(Protocol):
    """A store opened for nothing but migration."""

    def transaction(self) -> AbstractContextManager[Any]:
        """The provider's own kind of transaction: durable on leaving, undone by an exception."""

    def kv(self, transaction: Any) -> KV: ...


def find_steps(provider: str, folder: Path | None = None) -> list[MigrationStep]:
    """The provider's steps, ascending from 1 without a gap; none for a provider that keeps nothing."""
    folder = (folder or migrations_folder()) / provider
    steps = [_load_step(provider, path) for path in sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.py"))]
    if [step.number for step in steps] != list(range(1, len(steps) + 1)):
        raise StoreVersionError(f"the migrations in {folder} are not numbered 1, 2, 3 …; the installation is broken")
    return steps


def migrations_folder() -> Path:
    """Inside the installed package, else beside it in a source checkout."""
    package = Path(vibemq.__file__).parent
    for folder in (package / "migrations", package.parent / "migrations"):
        if folder.is_dir():
            return folder
    raise StoreVersionError(f"the migrations are missing beside {package}; the installation is broken")


def _load_step(provider: str, path: Path) -> MigrationStep:
    number, _, name = path.stem.partition("_")
    spec = spec_from_file_location(f"vibemq_migrations.{provider}.{path.stem}", path)
    if spec is None or spec.loader is None:
        raise StoreVersionError(f"the migration {path} cannot be loaded; the installation is broken")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    summary = (module.__doc__ or name).strip().splitlines()[0]
    return MigrationStep(int(number), name, summary, module.upgrade, getattr(module, "build", None))


# -- status and applying ------------------------------------------------------------------------------------------


def status(data_dir: Path, folder: Path | None = None) -> Status:
    """Where the store stands. Reads `store.json` only, so it may be asked while a broker runs.

    Raises:
        StoreVersionError: there is no store, or a newer VibeMQ wrote it.
    """
    info = _info(data_dir)
    steps = find_steps(info.provider, folder)
    if info.version > len(steps):
        raise newer_store(data_dir, info.version, len(steps))
    return Status(info.provider, info.version, len(steps), tuple(steps[info.version :]))


def migrate(data_dir: Path, progress: Progress | None = None, folder: Path | None = None) -> list[MigrationStep]:
    """Apply the pending steps, each in a transaction of its own; return those that were applied.

    Raises:
        StorageLocked: a broker is using the store.
        StoreVersionError: there is no store, or a newer VibeMQ wrote it.
        StorageDamaged: the store's file is missing, or there is damage in the way of a step.
        StorageFull: no room for a step; the steps before it stay applied.
    """
    info = _info(data_dir)
    lock = DirectoryLock(data_dir)
    lock.acquire()
    try:
        module = provider_module(info.provider)
        module.need_store(data_dir, dry_run=False)
        with module.open_store(data_dir) as store:
            return _apply(data_dir, info, store, find_steps(info.provider, folder), progress)
    finally:
        lock.release()


def refuse_missing(data_dir: Path) -> None:
    """Raise StorageDamaged where `migrate` would, for a store whose file is missing. Changes nothing."""
    provider_module(_info(data_dir).provider).need_store(data_dir, dry_run=True)


def create_store(data_dir: Path, provider: str, created_at: int) -> None:
    """Make a new, empty store of the latest version; the caller holds the directory's lock.

    A crash in here leaves a directory without `store.json`, where the next call goes on. A store that only lost that
    file gets it back and keeps its content.
    """
    steps = find_steps(provider)
    with provider_module(provider).open_store(data_dir) as store, store.transaction() as transaction:
        version = _noted_version(store.kv(transaction), 0)
        if version > len(steps):
            raise newer_store(data_dir, version, len(steps))
        for step in steps[version:]:
            _build_whole(step, store.kv(transaction))
            step.upgrade(transaction)
        _note_version(store.kv(transaction), len(steps))
    write_store_info(data_dir, StoreInfo(provider, len(steps), created_at))


def create_tables(provider: str, transaction: Any) -> None:
    """The latest layout in an empty store, inside the caller's transaction."""
    for step in find_steps(provider):
        step.upgrade(transaction)


def _apply(
    data_dir: Path, info: StoreInfo, store: MigrationStore, steps: list[MigrationStep], progress: Progress | None
) -> list[MigrationStep]:
    with store.transaction() as transaction:
        version = _noted_version(store.kv(transaction), info.version)
    if version > len(steps):
        raise newer_store(data_dir, version, len(steps))
    pending = steps[version:]
    for done, step in enumerate(pending):
        if progress is not None:
            progress(done, len(pending))
        _build(step, store)
        with store.transaction() as transaction:
            step.upgrade(transaction)
            _note_version(store.kv(transaction), step.number)
        write_store_info(data_dir, replace(info, version=step.number))
    if not pending and version != info.version:
        write_store_info(data_dir, replace(info, version=version))
    if progress is not None:
        progress(len(pending), len(pending))
    return pending


def _build(step: MigrationStep, store: MigrationStore) -> None:
    more = step.build is not None
    while more:
        with store.transaction() as transaction:
            more = _build_part(step, store.kv(transaction))


def _build_whole(step: MigrationStep, kv: KV) -> None:
    """In the caller's transaction: of a store that is nearly always empty."""
    more = step.build is not None
    while more:
        more = _build_part(step, kv)


def _build_part(step: MigrationStep, kv: KV) -> bool:
    assert step.build is not None
    tallied = TalliedKV(kv)
    more = step.build(tallied)
    tallied.save()
    return more


def _info(data_dir: Path) -> StoreInfo:
    info = read_store_info(data_dir)
    if info is None:
        raise StoreVersionError(f"{data_dir} holds no store; a broker makes one when it starts")
    return info


def provider_module(provider: str) -> Any:
    """Its module `migration`: see above."""
    try:
        return import_module(f"vibemq.storage.{provider}.migration")
    except ModuleNotFoundError as exc:
        raise StoreVersionError(f"the store is of the {provider!r} provider, which is not installed: {exc}") from exc


def _noted_version(kv: KV, fallback: int) -> int:
    """What the store itself says; a store from before the first migration says nothing."""
    value = kv.get(VERSION_KEY)
    return fallback if value is None else int(_VERSION.unpack(unseal(VERSION_KEY, value, kv.where))[0])


def _note_version(kv: KV, version: int) -> None:
    kv.put(VERSION_KEY, seal(VERSION_KEY, _VERSION.pack(version)))
