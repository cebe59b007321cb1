"""Permissions as text."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vibemq.auth.rules import ACTIONS, NAME_OF
from vibemq.cli.admin.access.rules import narrowing, resource, rule, rule_of
from vibemq.cli.exits import Usage
from vibemq.model.access import ResourceKind

PATTERNS = st.text("abAB09.-_*/=: ", min_size=1, max_size=40)


@st.composite
def rules(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(list(NAME_OF)))
    pattern = draw(PATTERNS)
    if kind is ResourceKind.QUEUE:
        pattern = pattern.replace(":", "")
    if kind is ResourceKind.GROUP and not {"/", "*"} & set(pattern):
        pattern += "/g"
    actions = draw(st.sets(st.sampled_from([str(action) for action in ACTIONS[kind]]), min_size=1) | st.just({"*"}))
    return {NAME_OF[kind]: pattern or "*", "actions": sorted(actions)}


@given(rules())
def test_what_is_shown_can_be_typed(shown: dict[str, Any]) -> None:
    assert narrowing(rule_of(shown)) == shown


def test_the_kind_may_be_left_out_for_queues_alone() -> None:
    assert resource("orders.*") == resource("queues:orders.*") == {"queues": "orders.*"}
    assert resource("groups:orders/etl") == {"groups": "orders/etl"}
    assert rule("all", "transactions:nightly*") == {"transactions": "nightly*", "actions": ["*"]}


def test_an_action_that_there_is_not_is_refused_with_the_words_of_the_command_line() -> None:
    with pytest.raises(Usage, match=r"^'foo' is not an action on queues; choose among publish, .*, manage, all$"):
        rule("publish,foo", "x")
    with pytest.raises(Usage, match=r"^'publish' is not an action on groups; choose among .*, all$"):
        narrowing("groups:q/g=publish")


@pytest.mark.parametrize("text", ["", "topics:x", "queues:", "a\nb", "x" * 257, ":x"])
def test_what_is_no_resource(text: str) -> None:
    with pytest.raises(Usage):
        resource(text)


@pytest.mark.parametrize("text", ["orders", "=publish", "orders=", "orders=,", "orders=transact", "groups:a/b=publish"])
def test_what_is_no_rule(text: str) -> None:
    with pytest.raises(Usage):
        narrowing(text)
