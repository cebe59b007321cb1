"""Which queues of a client may be gone when it has connected again, and are created anew. The clock is an argument."""

import logging
from collections.abc import Callable, Container
from dataclasses import dataclass

from vibemq.model.options import QueueOptions

logger = logging.getLogger(__name__)

REMEMBERED_MAX = 10_000
LOOK_S = 10.0
"""How often what has expired is looked for; it is forgotten so much too late at most."""


@dataclass(slots=True)
class _Created:
    request: bytes
    """Creates it."""
    exclusive: bool
    expires_s: float
    """0 = never."""
    used_at: float
    """When a subscription of this client was last seen."""


class PassingQueues:
    """Queues that the broker deletes by itself, and that this client has created.

    Args:
        subscribed: names of the queues that have a subscription of this client.
    """

    def __init__(self, subscribed: Callable[[], Container[str]]) -> None:
        self._subscribed = subscribed
        self._created: dict[str, _Created] = {}
        self._look_at = 0.0

    def __len__(self) -> int:
        return len(self._created)

    def created(self, queue: str, options: QueueOptions, request: bytes, now: float) -> None:
        """The broker has carried out `request`. Of too many, the oldest that would not be created anew is forgotten."""
        known = self._created.pop(queue, None) is not None
        if not known and len(self._created) >= REMEMBERED_MAX and not self._forget_one():
            logger.warning(
                "queue %r will not be created anew after a lost connection: this client has %d exclusive or subscribed"
                " queues of this kind already, and remembers no more",
                queue,
                REMEMBERED_MAX,
            )
            return
        self._created[queue] = _Created(request, options.exclusive, options.expires_ms / 1_000, now)

    def deleted(self, queue: str) -> None:
        self._created.pop(queue, None)

    def used(self, queue: str, now: float) -> None:
        """A subscription of it begins."""
        found = self._created.get(queue)
        if found is not None:
            found.used_at = now

    def tick(self, now: float) -> None:
        """Forget those that nobody has used for so long that the broker has deleted them."""
        if now < self._look_at or not self._created:
            return
        self._look_at = now + LOOK_S
        subscribed = self._subscribed()
        for queue, found in list(self._created.items()):
            if queue in subscribed:
                found.used_at = now
            elif found.expires_s and now - found.used_at > found.expires_s + LOOK_S:
                del self._created[queue]

    def request_of(self, queue: str) -> bytes | None:
        found = self._created.get(queue)
        return None if found is None else found.request

    def to_create(self) -> list[tuple[str, bytes]]:
        """On a new connection: queue and request. Without a subscription only exclusive ones, to which others reply;
        nothing might ever delete another one again."""
        subscribed = self._subscribed() if self._created else ()
        return [(queue, c.request) for queue, c in self._created.items() if c.exclusive or queue in subscribed]

    def _forget_one(self) -> bool:
        subscribed = self._subscribed()
        for queue, found in self._created.items():
            if not found.exclusive and queue not in subscribed:
                del self._created[queue]
                return True
        return False
