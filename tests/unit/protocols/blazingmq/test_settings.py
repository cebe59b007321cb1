"""Domains, and what their queues are."""

from typing import Any

import pytest
from pydantic import ValidationError

from vibemq.model.options import DeliveryMode, Durability, LostConnection, Overflow
from vibemq.model.selector import Selector
from vibemq.protocols.blazingmq.queue_names import QueueUri
from vibemq.protocols.blazingmq.settings import BlazingmqSettings, Domain, DomainMode


def settings(**domains: dict[str, Any]) -> BlazingmqSettings:
    return BlazingmqSettings.model_validate({"domains": domains})


def test_a_domain_decides_what_its_queues_are() -> None:
    priority = Domain().queue_options()
    assert (priority.mode, priority.durability) == (DeliveryMode.ROUND_ROBIN, Durability.STRONG)
    assert (priority.overflow, priority.lost_connection) == (Overflow.DROP_NEWEST, LostConnection.RELEASE)
    fanout = Domain.model_validate({"mode": "fanout", "app_ids": ["a"], "durability": "weak"}).queue_options()
    assert (fanout.mode, fanout.durability) == (DeliveryMode.FAN_OUT_WITH_ACK, Durability.WEAK)
    broadcast = Domain.model_validate({"mode": "broadcast"}).queue_options()
    assert (broadcast.mode, broadcast.durability) == (DeliveryMode.FAN_OUT_WITHOUT_ACK, Durability.TRANSIENT)


def test_applications_have_subscriptions() -> None:
    domain = Domain(mode=DomainMode.FANOUT, app_ids=("a", "b"), subscriptions={"a": "x > 1"})
    # What "b" was told before, when it had a subscription too, counts no longer.
    assert domain.filters() == {"a": Selector.parse("x > 1"), "b": None}
    for app_id, expression in (("c", "x > 1"), ("a", "x >"), ("a", "1 == 1")):
        with pytest.raises(ValidationError, match=app_id):
            Domain(mode=DomainMode.FANOUT, app_ids=("a", "b"), subscriptions={app_id: expression})


def test_attempts_count_only_where_they_are_limited() -> None:
    limited = Domain(max_delivery_attempts=3).queue_options()
    assert (limited.max_attempts, limited.lost_connection) == (3, LostConnection.FAIL)
    assert (limited.hold_behind_failed, limited.retry_base_ms, limited.retry_max_ms) == (True, 1_000, 3_000)
    assert not Domain().queue_options().hold_behind_failed
    assert Domain().queue_options().max_attempts >= 1_000_000


def test_a_name_wins_over_patterns_and_the_longest_pattern_over_others() -> None:
    made = settings(
        **{"bmq.*": {"max_messages": 1}, "bmq.test.*": {"max_messages": 2}, "bmq.test.x": {"max_messages": 3}}
    )
    found = [made.domain_of(name) for name in ("bmq.a", "bmq.test.a", "bmq.test.x", "other")]
    assert [domain and domain.max_messages for domain in found] == [1, 2, 3, None]


def test_a_uri_leads_to_a_queue_and_its_domain() -> None:
    made = settings(**{"here": {"plain_names": True}, "d*": {}})
    assert made.queue_of(QueueUri("here", "orders")) == ("orders", made.domains["here"])
    assert made.queue_of(QueueUri("deep", "orders")) == ("deep..orders", made.domains["d*"])
    assert made.queue_of(QueueUri("x", "orders")) is None


@pytest.mark.parametrize(
    "domains",
    [
        {"d": {"mode": "fanout"}},
        {"d": {"mode": "queue"}},
        {"d": {"app_ids": ["a"]}},
        {"d": {"mode": "fanout", "app_ids": ["a", "a"]}},
        {"d": {"mode": "fanout", "app_ids": ["__default"]}},
        {"d": {"mode": "fanout", "app_ids": ["a b"]}},
        {"d": {"durability": "sure"}},
        {"d": {"max_messages": -1}},
        {"d": {"unknown": 1}},
        {"a..b": {}},
        {"a b": {}},
        {"a": {"plain_names": True}, "b": {"plain_names": True}},
        {"a*": {"plain_names": True}},
    ],
)
def test_what_cannot_be_is_refused(domains: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        settings(**domains)
