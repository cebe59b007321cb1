"""The default provider: a journal in front of LMDB. Start reading at `provider.py`, then `journal.py`."""

from pathlib import Path

from vibemq.storage.interface import IStorageProvider, Plugin, Problem
from vibemq.storage.lmdb.settings import LmdbSettings

__all__ = ["PLUGIN"]


def _create(data_dir: Path, settings: LmdbSettings) -> IStorageProvider:
    from vibemq.storage.lmdb.provider import LmdbProvider

    return LmdbProvider(data_dir, settings)


def _repair(data_dir: Path, settings: LmdbSettings) -> list[Problem]:
    from vibemq.storage.lmdb.repair import repair

    return repair(data_dir, settings)


PLUGIN = Plugin(name="lmdb", settings=LmdbSettings, create=_create, repair=_repair)
