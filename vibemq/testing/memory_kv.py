"""`storage.kvstore.store.KV` over a sorted list: what the tests compare real stores with."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping

from vibemq.model.stored import StoredState
from vibemq.storage.kvstore.store import write_state


class MemoryKV:
    where = "memory"

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._values: dict[bytes, bytes] = {}

    @classmethod
    def of_state(cls, state: StoredState) -> "MemoryKV":
        """A store with this state and nothing else."""
        kv = cls()
        write_state(kv, state)
        return kv

    def fill(self, pairs: Mapping[bytes, bytes]) -> None:
        """Hold these pairs and no others."""
        self._values = dict(pairs)
        self._keys = sorted(self._values)

    def count(self) -> int:
        return len(self._keys)

    def get(self, key: bytes) -> bytes | None:
        return self._values.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._values:
            self._keys.insert(bisect_left(self._keys, key), key)
        self._values[key] = value

    def delete(self, key: bytes) -> None:
        if self._values.pop(key, None) is not None:
            del self._keys[bisect_left(self._keys, key)]

    def delete_range(self, start: bytes, stop: bytes) -> None:
        low, high = bisect_left(self._keys, start), bisect_left(self._keys, stop)
        for key in self._keys[low:high]:
            del self._values[key]
        del self._keys[low:high]

    def scan(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        keys = self._keys[bisect_left(self._keys, start) : bisect_left(self._keys, stop)]
        for key in keys:
            assert key in self._values, "the store was changed during a scan"
            yield key, self._values[key]

    def scan_back(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        return reversed(list(self.scan(start, stop)))

    def floor(self, start: bytes, key: bytes) -> tuple[bytes, bytes] | None:
        index = bisect_right(self._keys, key) - 1
        if index < 0 or self._keys[index] < start:
            return None
        return self._keys[index], self._values[self._keys[index]]
