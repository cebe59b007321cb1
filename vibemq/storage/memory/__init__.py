"""Keeps everything in memory and nothing over a restart: for tests and for transient queues."""

from pathlib import Path

from vibemq.storage.interface import IStorageProvider, Plugin
from vibemq.storage.memory.settings import MemorySettings


def _create(data_dir: Path, settings: MemorySettings) -> IStorageProvider:
    from vibemq.storage.memory.provider import MemoryStorage

    return MemoryStorage()


PLUGIN = Plugin(name="memory", settings=MemorySettings, create=_create, durable=False)
