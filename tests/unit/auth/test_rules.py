"""Rules with fewer actions, and rules as they are kept."""

import pytest

from vibemq.auth.rules import ACTIONS, less, make_rule, merged
from vibemq.model.access import ResourceKind, Rule
from vibemq.storage.kvstore.encoding import load_rules


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


def test_rules_with_the_same_actions_share_them() -> None:
    """A hundred thousand rules are kept in memory."""
    one = make_rule({"queues": "a.*", "actions": ["publish", "create"]})
    other = make_rule({"transactions": "a-*", "actions": ["transact"]})
    (loaded,) = load_rules([["queue", "b.*", ["create", "publish"]]])
    assert loaded.actions is one.actions is merged(one, loaded, frozenset(("create",))).actions
    assert other.actions is not one.actions


@pytest.mark.parametrize(
    "value",
    [["castle", "a", ["publish"]], ["queue", "a", [["publish"]]], ["queue", "a", [1]], ["queue", "a"], ["queue"]],
)
def test_a_stored_rule_that_makes_no_sense_is_refused(value: list[object]) -> None:
    with pytest.raises(ValueError, match="expected"):
        load_rules([value])


def test_a_pattern_that_fits_no_group_is_refused() -> None:
    with pytest.raises(ValueError, match=r"QUEUE/GROUP.*'noslash' has no / and fits none"):
        make_rule({"groups": "noslash", "actions": ["manage"]})
    assert make_rule({"groups": "noslash", "actions": ["manage"]}, taken_away=True).pattern == "noslash"
    for pattern in ("a/b", "*", "orders*"):
        assert make_rule({"groups": pattern, "actions": ["manage"]}).pattern == pattern


@pytest.mark.parametrize("field", ["queues", "groups", "transactions"])
def test_a_pattern_that_is_none_is_refused_by_the_name_of_its_field(field: str) -> None:
    for pattern in ("", "x" * 257, "a\n", 5):
        with pytest.raises(ValueError, match=f"^{field} must be 1 to 256 printable characters"):
            make_rule({field: pattern, "actions": ["*"]})
