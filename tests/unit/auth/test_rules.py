"""Rules with fewer actions."""

import pytest

from vibemq.auth.rules import ACTIONS, less
from vibemq.model.access import ResourceKind, Rule


def queue(*actions: str) -> Rule:
    return Rule(ResourceKind.QUEUE, "orders.*", frozenset(actions))


@pytest.mark.parametrize(
    ("rule", "taken", "left"),
    [
        (queue("publish", "inspect"), {"inspect"}, queue("publish")),
        (queue("publish"), {"inspect"}, queue("publish")),
        (queue("publish"), {"publish", "inspect"}, None),
        (queue("publish", "inspect"), {"*"}, None),
        (queue("*"), {"*"}, None),
        (queue("*"), {"purge"}, queue(*(str(each) for each in ACTIONS[ResourceKind.QUEUE] if each != "purge"))),
        (Rule(ResourceKind.GROUP, "q/g", frozenset({"*"})), {"manage"}, None),
    ],
)
def test_what_is_left_of_a_rule(rule: Rule, taken: set[str], left: Rule | None) -> None:
    found = less(rule, frozenset(taken))
    assert found == left
    if found is not None:
        assert all(type(action) is str for action in found.actions)
