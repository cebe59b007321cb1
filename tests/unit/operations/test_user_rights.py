"""Who may do something on a queue, over all users."""

import asyncio
from typing import Any

import pytest

from tests.unit.operations.test_connections import turns_of
from vibemq.auth.passwords import hash_password
from vibemq.auth.policy import Actor
from vibemq.auth.users import Account, Accounts
from vibemq.errors import InvalidPayload
from vibemq.model.access import Principal, ResourceKind, Rule
from vibemq.operations.registry import Caller
from vibemq.operations.user_rights import RULES_PER_TURN, AllowedArguments, UserRights

HASH = hash_password("secret")
CALLER = Caller(Principal("root", superuser=True), Actor(""))


def account(name: str, *rules: Rule, superuser: bool = False) -> Account:
    return Account(name, HASH, superuser, rules)


def queue(pattern: str, *actions: str) -> Rule:
    return Rule(ResourceKind.QUEUE, pattern, frozenset(actions))


SOME = Accounts(
    [
        account("ann", queue("jobs", "publish"), queue("orders.*", "publish", "inspect")),
        account("bob", queue("orders.*", "subscribe")),
        account("eve", queue("*", "*")),
        account("root", superuser=True),
        account("tim", Rule(ResourceKind.TRANSACTION, "nightly*", frozenset({"transact"}))),
    ]
)


def asked(accounts: Accounts, **arguments: Any) -> dict[str, Any]:
    return asyncio.run(UserRights(accounts).allowed(CALLER, AllowedArguments(**arguments)))


def test_each_with_the_rule_that_allows_it() -> None:
    found = asked(SOME, action="publish", queues="orders.eu")
    assert (found["action"], found["queues"], found["next"]) == ("publish", "orders.eu", None)
    assert found["users"] == [
        {"user": "ann", "superuser": False, "rule": {"queues": "orders.*", "actions": ["inspect", "publish"]}},
        {"user": "eve", "superuser": False, "rule": {"queues": "*", "actions": ["*"]}},
        {"user": "root", "superuser": True, "rule": None},
    ]
    assert [user["user"] for user in asked(SOME, action="transact", transactions="nightly-2")["users"]] == [
        "root",
        "tim",
    ]
    assert [user["user"] for user in asked(SOME, action="manage", groups="orders.eu/etl")["users"]] == ["eve", "root"]


def test_pages() -> None:
    first = asked(SOME, action="publish", queues="orders.eu", limit=2)
    assert ([user["user"] for user in first["users"]], first["next"]) == (["ann", "eve"], "eve")
    last = asked(SOME, action="publish", queues="orders.eu", limit=2, after="eve")
    assert ([user["user"] for user in last["users"]], last["next"]) == (["root"], None)


@pytest.mark.parametrize(
    "arguments",
    [
        {"action": "transact", "queues": "orders"},
        {"action": "publish"},
        {"action": "publish", "queues": "a", "groups": "a/b"},
        {"action": "publish", "queues": "a\x1b"},
    ],
    ids=str,
)
def test_what_cannot_be_meant(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidPayload):
        asked(SOME, **arguments)


def test_many_rules_are_looked_at_in_turns() -> None:
    rules = [queue(f"q{number}", "publish") for number in range(RULES_PER_TURN // 2)]
    crowd = Accounts([account(f"u{number}", *rules) for number in range(20)])
    wanted = AllowedArguments(action="publish", queues="other")
    assert turns_of(lambda: UserRights(crowd).allowed(CALLER, wanted)) >= 18
