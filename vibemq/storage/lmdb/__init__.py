"""The default provider: a journal in front of LMDB. Start reading at `provider.py`, then `journal/journal.py`."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vibemq.storage.interface import IStorageProvider, Problem, StoragePlugin, StoreInspection, StoreLocation
    from vibemq.storage.lmdb.settings import LmdbSettings

__all__ = ["PLUGIN"]


def __getattr__(name: str) -> "StoragePlugin":
    # Not at the import: the checkpointer, a process of its own, imports this package too, and pydantic would be half
    # of what it needs before its first order. Nor does it need the contract of providers.
    if name != "PLUGIN":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from vibemq.storage.interface import StoragePlugin
    from vibemq.storage.lmdb.settings import LmdbSettings

    return StoragePlugin(name="lmdb", settings=LmdbSettings, connect=_connect, salvage=_repair, look=_look)


def _connect(location: "StoreLocation", settings: "LmdbSettings") -> "IStorageProvider":
    from vibemq.storage.lmdb.provider import LmdbProvider

    return LmdbProvider(location.local("lmdb"), settings)


def _look(location: "StoreLocation", settings: "LmdbSettings") -> "AbstractContextManager[StoreInspection]":
    from vibemq.storage.lmdb.inspection import inspect

    return inspect(location.local("lmdb"), settings)


def _repair(location: "StoreLocation", settings: "LmdbSettings") -> "list[Problem]":
    from vibemq.storage.lmdb.repair import repair

    return repair(location.local("lmdb"), settings)
