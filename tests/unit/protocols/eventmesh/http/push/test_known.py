"""Whose subscriptions are told to whom."""

import pytest

from vibemq.model.access import Principal
from vibemq.protocols.eventmesh.http.push.known import KnownSubscriptions
from vibemq.protocols.eventmesh.http.push.registry import KeptSubscription, SubscriptionKey
from vibemq.protocols.eventmesh.messages.json_scan import Steps


@pytest.mark.parametrize(
    ("principal", "told"),
    [
        (Principal("ann", since=5), ["a", "b", "c"]),
        (Principal("ann", since=5, token_id="narrow"), ["b"]),
        (Principal("ann", since=6), []),
        (Principal("bob", since=5), ["b", "d"]),
    ],
)
def test_an_access_token_is_told_what_was_subscribed_with_it(principal: Principal, told: list[str]) -> None:
    known = KnownSubscriptions()
    keys = [("ann", "", "a"), ("ann", "narrow", "b"), ("ann", "other", "c"), ("bob", "", "b"), ("bob", "", "d")]
    for user, token_id, topic in keys:
        known.add(KeptSubscription(SubscriptionKey(user, token_id, 5, "g", topic, "http://u")))
    heard = list[list[str]]()

    def hear() -> Steps[None]:
        heard.append((yield from known.topics_of(principal)))

    assert not list(hear())
    assert heard == [told]
