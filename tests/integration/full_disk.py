"""A disk that has no room for some of what a running broker writes."""

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from vibemq.errors import StorageFull
from vibemq.server.broker import Broker


class FullDisk:
    """The broker's store refuses batches with a record of a kind, while `is_full`, and no more than `times`."""

    def __init__(
        self,
        broker: Broker,
        monkeypatch: pytest.MonkeyPatch,
        has_no_room_for: Callable[[Any], bool],
        *,
        is_full: bool = True,
        times: float = inf,
    ) -> None:
        self.is_full = is_full
        self.times = times
        self.refused = 0
        """So many batches."""
        self._has_no_room_for = has_no_room_for
        provider = broker._running().store.provider
        self._append = provider.append
        monkeypatch.setattr(provider, "append", self._append_or_refuse)

    def _append_or_refuse(self, records: Any, *more: Any) -> Any:
        if self.is_full and self.refused < self.times and any(map(self._has_no_room_for, records)):
            self.refused += 1
            raise StorageFull("no space left on the disk; free some")
        return self._append(records, *more)
