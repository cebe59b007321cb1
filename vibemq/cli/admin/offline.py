"""Opening a data directory without a broker."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vibemq.cli.exits import CommandFailed, ExitCode, NotFound, Usage
from vibemq.plugins import find
from vibemq.storage.interface import IStorageProvider, StoragePlugin, StoreInspection
from vibemq.storage.local.ballast import BALLAST_FILE, START_FILE
from vibemq.storage.local.store_file import read_store_info


def provider_name(data_dir: Path, wanted: str | None, *, is_backup: bool = False) -> str:
    """The provider asked for, else the one that the store names.

    Raises:
        NotFound: there is no such directory, or nothing of ours in it.
        StorageDamaged: the file that names the provider makes no sense.
    """
    if not data_dir.is_dir():
        raise NotFound(f"there is no backup in {data_dir}" if is_backup else f"there is no data directory {data_dir}")
    if wanted is not None:
        return wanted
    info = read_store_info(data_dir)
    if info is None:
        raise NotFound(f"{data_dir} holds no store of VibeMQ")
    return info.provider


def plugin_of(name: str) -> StoragePlugin:
    try:
        plugin: StoragePlugin = find("storage", name)
    except LookupError as error:
        raise Usage(str(error)) from error
    return plugin


def settings_of(plugin: StoragePlugin, data_dir: Path, *, looks: bool = False) -> Any:
    """The provider's default settings, but for what only the broker's own settings say, which are not known here.

    A remote file system is accepted; a backup on a share is looked at where it lies, too. The ballast stays as big as
    it is, and none is made; who `looks` is told what keeps one of the default size from being taken.
    """
    known: dict[str, Any] = {"allow_remote": True}
    if not looks or (data_dir / BALLAST_FILE).exists():
        # Of one that was given up the small one may be left, which stays, too.
        files = (data_dir / BALLAST_FILE, data_dir / START_FILE)
        known["ballast_bytes"] = max((file.stat().st_size for file in files if file.exists()), default=0)
    return plugin.settings(**{name: value for name, value in known.items() if name in plugin.settings.model_fields})


def made(plugin: StoragePlugin, data_dir: Path) -> IStorageProvider:
    """The provider with `settings_of`, not yet opened.

    Raises:
        Usage: it keeps nothing, so that what is written would be gone when the command ends.
    """
    if not plugin.durable:
        raise Usage(f"the {plugin.name} provider keeps nothing; name the one of the store with --storage")
    return plugin.create(data_dir, settings_of(plugin, data_dir))


@contextmanager
def opened(data_dir: Path, storage: str | None) -> Iterator[IStorageProvider]:
    """The store, owned by us while the block runs.

    Raises:
        StorageLocked: a broker is at work on it.
        StorageDamaged, StoreVersionError: see the sentence.
    """
    provider = made(plugin_of(provider_name(data_dir, storage)), data_dir)
    provider.open()
    try:
        yield provider
    finally:
        provider.close()


@contextmanager
def looked_at(data_dir: Path, storage: str | None) -> Iterator[StoreInspection]:
    """The store as it lies there; nothing of it is changed, and brokers are kept out while the block runs.

    Raises:
        StorageLocked: a broker is at work on it.
        StorageDamaged, StoreVersionError: see the sentence.
    """
    name = provider_name(data_dir, storage)
    plugin = plugin_of(name)
    if plugin.inspect is None:
        raise CommandFailed(f"a store of the {name} provider cannot be looked at: it keeps nothing in {data_dir}")
    with plugin.inspect(data_dir, settings_of(plugin, data_dir, looks=True)) as found:
        yield found


def refuse_unless_empty(folder: Path) -> None:
    if folder.exists() and any(folder.iterdir()):
        raise CommandFailed(
            f"{folder} is not empty; name a new or an empty folder", code="NOT_EMPTY", exit_code=ExitCode.FAILED
        )


def as_plain(value: Any) -> Any:
    """Dataclasses that only travel to JSON."""
    return {name: getattr(value, name) for name in value.__dataclass_fields__}
