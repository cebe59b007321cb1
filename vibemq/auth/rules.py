"""Rules as people write them: `{"queues": "orders.*", "actions": ["publish"]}`. What a rule can be made of stands here
for the settings, the operations and the store."""

from collections.abc import Mapping
from typing import Any

from vibemq.model.access import Action, ResourceKind, Rule, shared_actions

EVERY_ACTION = "*"
ACTIONS: dict[ResourceKind, tuple[Action, ...]] = {
    ResourceKind.QUEUE: (
        Action.PUBLISH,
        Action.SUBSCRIBE,
        Action.CREATE,
        Action.DELETE,
        Action.PURGE,
        Action.INSPECT,
        Action.LIST,
        Action.MANAGE,
    ),
    ResourceKind.GROUP: (Action.MANAGE,),
    ResourceKind.TRANSACTION: (Action.TRANSACT,),
}
"""What a rule can give, by the kind of its resources; EVERY_ACTION gives all of them."""
NAME_OF = {ResourceKind.QUEUE: "queues", ResourceKind.GROUP: "groups", ResourceKind.TRANSACTION: "transactions"}
"""The field that holds the pattern."""
PATTERN_MAX = 256


def resources_of(values: Mapping[str, Any]) -> tuple[ResourceKind, str]:
    """The one kind of resource that is named, and its pattern. Raises ValueError unless there is exactly one."""
    given = [(kind, values[name]) for kind, name in NAME_OF.items() if values.get(name) is not None]
    if len(given) != 1:
        raise ValueError("a permission is for exactly one of queues, groups and transactions; name one of them")
    kind, pattern = given[0]
    return kind, check_pattern(pattern, NAME_OF[kind])


def check_pattern(pattern: Any, name: str) -> str:
    """`name`: of the field that holds it. Raises ValueError."""
    if not isinstance(pattern, str) or not 1 <= len(pattern) <= PATTERN_MAX or not pattern.isprintable():
        raise ValueError(f"{name} must be 1 to {PATTERN_MAX} printable characters, with * for any run of them")
    return pattern


def make_rule(values: Mapping[str, Any], *, taken_away: bool = False) -> Rule:
    """From the written form. `taken_away`: also what nobody would be given, but may have. Raises ValueError."""
    unknown = set(values) - {*NAME_OF.values(), "actions"}
    if unknown:
        raise ValueError(
            f"a permission has actions and one of queues, groups and transactions, not {min(unknown)[:40]!r}"
        )
    kind, pattern = resources_of(values)
    if kind is ResourceKind.GROUP and not taken_away and not {"/", "*"} & set(pattern):
        raise ValueError(f"groups are named QUEUE/GROUP, as orders.eu/billing; {pattern[:40]!r} has no / and fits none")
    actions = values.get("actions")
    if not isinstance(actions, list | tuple) or not actions:
        raise ValueError("a permission needs actions, a list that is not empty")
    known = (*ACTIONS[kind], EVERY_ACTION)
    wrong = [action for action in actions if action not in known]
    if wrong:
        raise ValueError(f"{str(wrong[0])[:40]!r} is not an action on {NAME_OF[kind]}; known are {', '.join(known)}")
    return Rule(kind, pattern, shared_actions(map(str, actions)))


def written(rule: Rule) -> dict[str, Any]:
    """The written form; JSON-ready."""
    return {NAME_OF[rule.kind]: rule.pattern, "actions": sorted(rule.actions)}


def merged(before: Rule | None, rule: Rule, decided: frozenset[str]) -> Rule:
    """The rule in place of the one before, whose actions stay that are not among those `decided`."""
    every = frozenset(ACTIONS[rule.kind])
    old = frozenset[str]() if before is None else before.actions
    actions = rule.actions | ((every if EVERY_ACTION in old else old) - decided)
    return Rule(rule.kind, rule.pattern, shared_actions((EVERY_ACTION,) if actions >= every else actions))


def less(rule: Rule, taken: frozenset[str]) -> Rule | None:
    """The rule without some of its actions; None when none is left."""
    if EVERY_ACTION in taken:
        return None
    if not taken & rule.actions and EVERY_ACTION not in rule.actions:
        return rule
    every = frozenset(ACTIONS[rule.kind])
    actions = (every if EVERY_ACTION in rule.actions else rule.actions) - taken
    return Rule(rule.kind, rule.pattern, shared_actions(map(str, actions))) if actions else None
