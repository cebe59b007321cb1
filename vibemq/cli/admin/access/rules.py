"""Permissions as the command line writes them.

RESOURCE    orders.*, queues:orders.*, groups:orders.eu/billing, transactions:nightly*      queues: may be left out
ACTIONS     publish,inspect, or all
RULE        RESOURCE=ACTIONS
"""

from collections.abc import Mapping
from typing import Any

from vibemq.auth.rules import ACTIONS, EVERY_ACTION, NAME_OF, check_pattern, make_rule
from vibemq.cli.exits import Usage

RESOURCE_HELP = "orders.eu or queues:orders.*, groups:QUEUE/GROUP, transactions:APP. * is any run of characters."
ACTIONS_HELP = "A comma list of publish, subscribe, create, delete, purge, inspect, list, manage, transact; or all."
_KINDS = tuple(NAME_OF.values())
_KIND_OF = {name: kind for kind, name in NAME_OF.items()}
_ALL = "all"
"""A word for `*`, which a shell would replace by the names of files."""


def resource(text: str) -> dict[str, str]:
    """The argument of an operation: `{"queues": "orders.*"}`.

    Raises:
        Usage: no pattern, or one that no broker takes.
    """
    kind, colon, pattern = text.partition(":")
    if not colon:
        kind, pattern = _KINDS[0], text
    if kind not in _KINDS:
        raise Usage(f"{text!r} begins with no kind of resource; write {RESOURCE_HELP}")
    try:
        return {kind: check_pattern(pattern, kind)}
    except ValueError as error:
        raise Usage(f"{text!r} cannot be used: {error}") from None


def actions(text: str) -> list[str]:
    """Of a comma list. Raises Usage when there is none."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise Usage(f"{text!r} names no action; write {ACTIONS_HELP}")
    return [EVERY_ACTION if name == _ALL else name for name in names]


def rule(actions_text: str, resource_text: str, *, taken_away: bool = False) -> dict[str, Any]:
    """Checked, as `make_rule` does. Raises Usage."""
    place, names = resource(resource_text), actions(actions_text)
    values: dict[str, Any] = {**place, "actions": names}
    (kind,) = place
    known = ACTIONS[_KIND_OF[kind]]
    for name in names:
        if name not in (*known, EVERY_ACTION):
            raise Usage(f"{name!r} is not an action on {kind}; choose among {', '.join((*known, _ALL))}")
    try:
        make_rule(values, taken_away=taken_away)
    except ValueError as error:
        raise Usage(f"{actions_text!r} on {resource_text!r} is no permission: {error}") from None
    return values


def narrowing(text: str) -> dict[str, Any]:
    """RULE. Raises Usage."""
    # No action has a =, a pattern may have one.
    resource_text, equals, actions_text = text.rpartition("=")
    if not equals:
        raise Usage(f"{text!r} is no permission; write RESOURCE=ACTIONS, such as 'orders.*=publish,inspect'")
    return rule(actions_text, resource_text)


def resource_of(values: Mapping[str, Any]) -> str:
    """RESOURCE of a rule or of an answer."""
    kind = next(kind for kind in _KINDS if values.get(kind) is not None)
    return str(values[kind]) if kind == _KINDS[0] else f"{kind}:{values[kind]}"


def actions_of(values: Mapping[str, Any]) -> str:
    """ACTIONS of a rule."""
    return ",".join(_ALL if name == EVERY_ACTION else name for name in values["actions"])


def rule_of(values: Mapping[str, Any]) -> str:
    """RULE."""
    return f"{resource_of(values)}={actions_of(values)}"
