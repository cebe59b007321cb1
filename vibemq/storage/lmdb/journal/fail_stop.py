"""The first failure of a journal: what its files hold is unknown from then on, to every part and every thread."""

from vibemq.errors import StorageFailed
from vibemq.storage.local.file_limit import remedy_of


class FailStop:
    """Remembers the first failure; nothing is tried again after it."""

    __slots__ = ("_folder", "_why")

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._why: str | None = None

    @property
    def failed(self) -> bool:
        return self._why is not None

    def check(self) -> None:
        """Raises StorageFailed once something has failed, or the journal is closed."""
        if self._why is not None:
            raise StorageFailed(self._why)

    def fail(self, action: str, error: OSError) -> StorageFailed:
        """The error to raise in place of this one."""
        self._why = f"journal {action} failed in {self._folder}: {error}; {remedy_of(error)}"
        return StorageFailed(self._why)

    def close(self) -> None:
        """Every later call is refused."""
        self._why = self._why or "the journal is closed"
