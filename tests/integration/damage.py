"""Messages that cannot be read, whatever reads them."""

from collections.abc import Callable
from typing import Any

from vibemq.errors import StorageDamaged
from vibemq.model.stored import Slice

Read = Callable[[int, int, int, int], list[Slice]]


def damage(provider: Any, sequence: int, queue_id: int | None = None) -> None:
    """Whoever reads that message through the provider finds it damaged. `queue_id` None: that of any queue."""

    def but_one(sound_read: Read) -> Read:
        def read(number: int, first: int, last: int, max_bytes: int) -> list[Slice]:
            if queue_id in (None, number) and first <= sequence <= last:
                raise StorageDamaged("bad checksum", path="journal", offset=4096)
            return sound_read(number, first, last, max_bytes)

        return read

    provider.read = but_one(provider.read)
    letters = provider._letters
    letters.read = but_one(letters.read)
    if hasattr(letters, "read_beside"):
        # Large letters may be among them, which are read beside everything else.
        letters.read_beside = but_one(letters.read_beside)
