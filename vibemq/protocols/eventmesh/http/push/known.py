"""What is subscribed at one listener, in memory. Pure."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from vibemq.protocols.eventmesh.http.push.registry import GroupKey, KeptSubscription, SubscriptionKey
from vibemq.protocols.eventmesh.messages.json_scan import STEP_WORK, Steps
from vibemq.protocols.session import Principal

LOOKED_AT_ONCE = 1_000
"""Subscriptions, when a client asks for its own."""


class KnownSubscriptions:
    """By their keys, and by their groups."""

    def __init__(self) -> None:
        self._by_key: dict[SubscriptionKey, KeptSubscription] = {}
        self._by_group: dict[GroupKey, dict[SubscriptionKey, KeptSubscription]] = {}
        self._by_user = Counter[str]()
        self._by_tokens: dict[SubscriptionKey, dict[SubscriptionKey, None]] = {}
        """Those that were made with access tokens, by their keys without these."""

    def __len__(self) -> int:
        return len(self._by_key)

    def __iter__(self) -> Iterator[KeptSubscription]:
        return iter(self._by_key.values())

    def __contains__(self, key: SubscriptionKey) -> bool:
        return key in self._by_key

    def get(self, key: SubscriptionKey) -> KeptSubscription | None:
        return self._by_key.get(key)

    def count_of(self, user: str) -> int:
        return self._by_user[user]

    def holds(self, kept: KeptSubscription) -> bool:
        """It is subscribed still, and as it is here."""
        return self._by_key.get(kept.key) is kept

    def add(self, kept: KeptSubscription) -> None:
        """In the place of the one with the same key, if there is one."""
        if kept.key not in self._by_key:
            self._by_user[kept.key.user] += 1
        self._by_key[kept.key] = kept
        self._by_group.setdefault(kept.key.of_group, {})[kept.key] = kept
        if kept.key.token_id:
            self._by_tokens.setdefault(_without_token(kept.key), {})[kept.key] = None

    def remove(self, key: SubscriptionKey) -> bool:
        """Whether it was there."""
        if self._by_key.pop(key, None) is None:
            return False
        self._by_user[key.user] -= 1
        if not self._by_user[key.user]:
            del self._by_user[key.user]
        others = self._by_group[key.of_group]
        del others[key]
        if not others:
            del self._by_group[key.of_group]
        if key.token_id:
            alike = self._by_tokens[_without_token(key)]
            del alike[key]
            if not alike:
                del self._by_tokens[_without_token(key)]
        return True

    def ended_with(self, key: SubscriptionKey, principal: Principal) -> list[SubscriptionKey]:
        """Those that end when the principal unsubscribes this one: whoever has the user's own login ends also what was
        subscribed with an access token, which may not be there any more."""
        if principal.token_id or principal.rules is not None:
            return [key]
        return [key, *self._by_tokens.get(key, ())]

    def of_group(self, group_key: GroupKey) -> list[KeptSubscription]:
        return list(self._by_group.get(group_key, {}).values())

    def first_of_group(self, group_key: GroupKey) -> SubscriptionKey | None:
        return next(iter(self._by_group.get(group_key, {})), None)

    def topics_of(self, principal: Principal) -> Steps[list[str]]:
        """In steps, in the order in which they were first subscribed. Whoever has an access token, which may be for
        very little, is not told what the user has subscribed without it."""
        mine: dict[str, None] = {}
        for number, key in enumerate(list(self._by_key), 1):
            is_same = (key.user, key.since) == (principal.name, principal.since)
            if is_same and principal.token_id in ("", key.token_id):
                mine[key.topic] = None
            if number % LOOKED_AT_ONCE == 0:
                yield STEP_WORK
        return list(mine)


def _without_token(key: SubscriptionKey) -> SubscriptionKey:
    return replace(key, token_id="")
