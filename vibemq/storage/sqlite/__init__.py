"""Everything in one SQLite file: slower than lmdb, without a second process, and readable by other tools.

settings.py    what can be set
connection.py  opening, errors, the table as a key-value store
provider.py    the provider
inspection.py  looking at a store, and changing nothing
check.py       walking and repairing a store
migration.py   what `vibemq.storage.migrate` opens
"""

from contextlib import AbstractContextManager

from vibemq.storage.interface import IStorageProvider, Problem, StoragePlugin, StoreInspection, StoreLocation
from vibemq.storage.sqlite.settings import SqliteSettings


def _connect(location: StoreLocation, settings: SqliteSettings) -> IStorageProvider:
    from vibemq.storage.sqlite.provider import SqliteStorage

    return SqliteStorage(location.local("sqlite"), settings)


def _look(location: StoreLocation, settings: SqliteSettings) -> AbstractContextManager[StoreInspection]:
    from vibemq.storage.sqlite.inspection import inspect

    return inspect(location.local("sqlite"), settings)


def _repair(location: StoreLocation, settings: SqliteSettings) -> list[Problem]:
    from vibemq.storage.sqlite.check import repair

    return repair(location.local("sqlite"), settings)


PLUGIN = StoragePlugin(name="sqlite", settings=SqliteSettings, connect=_connect, salvage=_repair, look=_look)
