"""A provider that stores everything in memory only: for tests and for transient queues."""

from vibemq.storage.interface import IStorageProvider, StoragePlugin, StoreLocation
from vibemq.storage.memory.settings import MemorySettings


def _connect(location: StoreLocation, settings: MemorySettings) -> IStorageProvider:
    from vibemq.storage.memory.provider import MemoryStorage

    return MemoryStorage()


def _allows_durable_queues(settings: MemorySettings) -> bool:
    return settings.allow_durable_queues


PLUGIN = StoragePlugin(
    name="memory",
    settings=MemorySettings,
    connect=_connect,
    durable=False,
    local=False,
    allows_durable_queues=_allows_durable_queues,
)
