"""Who is told that a connection was made or lost."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from vibemq.model.arguments import check_callable

logger = logging.getLogger(__name__)


class ConnectionChange(NamedTuple):
    """What has become of a client's connection."""

    connected: bool
    reason: str
    """Why it was lost; empty when it was made."""
    final: bool
    """There will be no further one: the client is closed, or has given up."""


Listener = Callable[[ConnectionChange], object]


class ConnectionListeners:
    """Callbacks, called one after the other. What they raise is logged."""

    def __init__(self) -> None:
        self._callbacks: dict[object, Listener] = {}

    def add(self, callback: Listener) -> Callable[[], None]:
        """Returns what removes it; the same callback may be added several times."""
        check_callable("callback", callback)
        key = object()
        self._callbacks[key] = callback

        def remove() -> None:
            self._callbacks.pop(key, None)

        return remove

    def tell(self, *, connected: bool, reason: str = "", final: bool = False) -> None:
        change = ConnectionChange(connected, reason, final)
        for callback in list(self._callbacks.values()):
            try:
                callback(change)
            except Exception:
                logger.exception("a callback of on_connection_change has failed")
