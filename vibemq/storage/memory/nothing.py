"""A key-value store in which nothing is: what a provider without a disk has in place of one."""

from collections.abc import Iterator


class Nothing:
    """See `storage.kvstore.store.KV`."""

    where = "memory"

    def get(self, key: bytes) -> bytes | None:
        return None

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(())

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        return None

    def put(self, key: bytes, value: bytes) -> None:
        raise NotImplementedError("nothing is written")

    def delete(self, key: bytes) -> None:
        raise NotImplementedError("nothing is written")

    def delete_range(self, start: bytes, stop: bytes) -> None:
        raise NotImplementedError("nothing is written")
