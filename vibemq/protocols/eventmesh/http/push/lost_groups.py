"""Groups that have lost their subscriptions, or never got them, and ask again."""

from collections import defaultdict
from collections.abc import Callable, Collection
from functools import partial

from vibemq.protocols.eventmesh.http.push.inner_session import InnerSession
from vibemq.protocols.eventmesh.http.push.registry import GroupKey

AGAIN_MS = 30_000
"""A group that has lost its subscription, or did not get it, asks again so often; and when its user has changed, at
once, for so may a permission."""
AGAIN_SOON_MS = 500
"""A group whose queue has gone asks after so long, and twice as long each time: whoever had deleted the queue may make
it anew, and what is published before the group consumes it does not come to the group."""


class LostGroups:
    """
    Args:
        own: the session that all users share, as it is now.
        ask: have a group ask for its subscription.
    """

    def __init__(self, own: Callable[[], InnerSession], ask: Callable[[GroupKey], None]) -> None:
        self._own = own
        self._ask = ask
        self._by_user: defaultdict[str, dict[GroupKey, None]] = defaultdict(dict)
        self._tries: dict[GroupKey, int] = {}
        """Of those whose queue has gone, how often they have asked."""
        self._timed: set[GroupKey] = set()
        """Those with a timer. It stays when the group has asked meanwhile, and serves it if it is lost again."""

    def add(self, key: GroupKey, wait_ms: int) -> None:
        own = self._own()
        self._by_user[key[0]][key] = None
        if not wait_ms:
            own.call_soon(partial(self._again, key))
        elif key not in self._timed:
            self._timed.add(key)
            own.call_at(own.now + wait_ms, partial(self._again_in_time, key))

    def add_soon(self, key: GroupKey) -> None:
        tries = self._tries.get(key, 0)
        if key not in self._timed:
            self._tries[key] = tries + 1
        self.add(key, min(AGAIN_SOON_MS << min(tries, 16), AGAIN_MS))

    def forget(self, key: GroupKey) -> None:
        """It consumes again, or nobody wants it to."""
        self._tries.pop(key, None)

    def users_changed(self, names: Collection[str]) -> None:
        for user in [user for user in self._by_user if user in names]:
            self._own().call_for_each(list(self._by_user[user]), self._again)

    def _again_in_time(self, key: GroupKey) -> None:
        self._timed.discard(key)
        self._again(key)

    def _again(self, key: GroupKey) -> None:
        """Whichever comes first, the time or a change of the user."""
        lost = self._by_user.get(key[0], {})
        if key not in lost:
            return
        del lost[key]
        if not lost:
            del self._by_user[key[0]]
        self._ask(key)
