"""Everything in one SQLite file: slower than lmdb, without a second process, and readable by other tools.

settings.py    what can be set
connection.py  opening, errors, the table as a key-value store
provider.py    the provider
check.py       walking and repairing a store
migration.py   what `vibemq.storage.migrate` opens
"""

from pathlib import Path

from vibemq.storage.interface import IStorageProvider, Plugin, Problem
from vibemq.storage.sqlite.settings import SqliteSettings


def _create(data_dir: Path, settings: SqliteSettings) -> IStorageProvider:
    from vibemq.storage.sqlite.provider import SqliteStorage

    return SqliteStorage(data_dir, settings)


def _repair(data_dir: Path, settings: SqliteSettings) -> list[Problem]:
    from vibemq.storage.sqlite.check import repair

    return repair(data_dir, settings)


PLUGIN = Plugin(name="sqlite", settings=SqliteSettings, create=_create, repair=_repair)
