"""What is noted of the use of tokens, what is done when one expires, and lists of many and large ones."""

import asyncio
from typing import Any, cast

import orjson
import pytest

from tests.integration.access import cheap_hash
from vibemq.auth.policy import Actor
from vibemq.auth.rules import make_rule
from vibemq.auth.tokens import make_token
from vibemq.auth.users import Account, Accounts
from vibemq.model.access import Principal, Rule
from vibemq.model.records import TokenStored
from vibemq.operations.registry import Caller
from vibemq.operations.tokens import (
    NOTED_EVERY_MS,
    NOTED_TOGETHER_MAX,
    PAGE_BYTES_MAX,
    RULES_PER_TURN,
    TokenListArguments,
    Tokens,
)
from vibemq.operations.users import Users


class FakeClock:
    def __init__(self) -> None:
        self.at = NOTED_EVERY_MS

    def now(self) -> int:
        return self.at


class FakeUsers:
    """Notes what is stored, and whose connections are looked at."""

    def __init__(self, accounts: Accounts) -> None:
        self.changing = asyncio.Lock()
        self.batches: list[int] = []
        self.ended: set[str] = set()
        self._accounts = accounts

    async def store(self, records: list[TokenStored], users: list[str]) -> None:
        assert self.changing.locked()
        self.batches.append(len(records))
        self._accounts.apply(records)

    async def end(self, users: set[str]) -> None:
        self.ended |= users


def world(count: int, *, expires_at: int = 0) -> tuple[Accounts, FakeUsers, FakeClock, Tokens, list[str]]:
    accounts, clock = Accounts([Account("ann", cheap_hash())]), FakeClock()
    made = [make_token("ann", label="", now=1, expires_at=expires_at, rules=None) for _ in range(count)]
    accounts.apply(TokenStored(token) for _, token in made)
    users = FakeUsers(accounts)
    return accounts, users, clock, Tokens(accounts, cast(Users, cast(Any, users)), clock), [text for text, _ in made]


def test_last_uses_are_stored_some_at_a_time_and_once_a_minute() -> None:
    accounts, users, clock, tokens, texts = world(NOTED_TOGETHER_MAX * 2 + 10)
    for text in texts:
        accounts.authenticate("", "", text, clock.now())
    asyncio.run(tokens.tidy())
    assert users.batches == [NOTED_TOGETHER_MAX, NOTED_TOGETHER_MAX, 10]
    assert all((token := accounts.token(token_id)) and token.used_at == clock.at for token_id in accounts.token_ids())
    accounts.authenticate("", "", texts[0], clock.now())
    asyncio.run(tokens.tidy())
    assert len(users.batches) == 3, "not yet"
    clock.at += NOTED_EVERY_MS
    asyncio.run(tokens.tidy())
    assert users.batches[3:] == [1]


def test_a_clock_that_jumps_over_an_expiry_ends_the_token_once() -> None:
    _, users, clock, tokens, _ = world(1, expires_at=2 * NOTED_EVERY_MS)
    asyncio.run(tokens.tidy())
    assert users.ended == set()
    clock.at += 365 * 24 * 3_600_000
    asyncio.run(tokens.tidy())
    assert users.ended == {"ann"}
    users.ended.clear()
    asyncio.run(tokens.tidy())
    assert users.ended == set()


# -- many permissions ---------------------------------------------------------------------------------------------

ROOT = Principal("root", True)
CALLER = Caller(ROOT, Actor("root"))


def rules(count: int, character: str = "é") -> tuple[Rule, ...]:
    return tuple(make_rule({"queues": character * 256, "actions": ["publish"]}) for _ in range(count))


def with_rules(counts: list[int], character: str = "é") -> tuple[Accounts, Tokens]:
    """Ann's tokens as an older version may have kept them."""
    accounts, _, _, tokens, _ = world(0)
    made = [make_token("ann", label="", now=1, expires_at=0, rules=rules(count, character))[1] for count in counts]
    accounts.apply(TokenStored(token) for token in made)
    return accounts, tokens


def pages(tokens: Tokens, **wanted: Any) -> tuple[list[list[dict[str, Any]]], int]:
    """All pages of a list; and the most turns of the loop that others had in one of them."""

    async def ask(after: str | None) -> tuple[dict[str, Any], int]:
        asking = asyncio.ensure_future(tokens.page(CALLER, TokenListArguments(after=after, **wanted)))
        turns = 0
        while not asking.done():
            turns += 1
            await asyncio.sleep(0)
        return asking.result(), turns

    found: list[list[dict[str, Any]]] = []
    after, most = None, 0
    while True:
        page, turns = asyncio.run(ask(after))
        found.append(page["tokens"])
        most, after = max(most, turns), page["next"]
        if after is None:
            return found, most


@pytest.mark.parametrize("user", [None, "ann"])
def test_a_page_of_large_tokens_is_small_and_made_in_steps(user: str | None) -> None:
    accounts, tokens = with_rules([20] * 100)
    found, turns = pages(tokens, user=user)
    assert [token["token_id"] for page in found for token in page] == accounts.token_ids()
    assert all(len(orjson.dumps(page)) <= PAGE_BYTES_MAX + 1_000 for page in found)
    assert len(found) > 1
    assert turns >= 20 * len(found[0]) // RULES_PER_TURN
    assert [len(page) for page in pages(tokens, user=user, limit=1)[0]] == [1] * 100


def test_a_token_with_more_permissions_than_a_page_has_room_for_is_listed_by_the_first() -> None:
    accounts, tokens = with_rules([1_000, 1_000, 60], "🎈")
    found, _ = pages(tokens)
    assert [token["token_id"] for page in found for token in page] == accounts.token_ids()
    for [token] in (page for page in found if len(page[0]["permissions"]) != 60):
        assert len(orjson.dumps(token)) <= PAGE_BYTES_MAX + 1_000
        assert len(token["permissions"]) + token["permissions_left_out"] == 1_000
    assert sum("permissions_left_out" not in token for page in found for token in page) == 1
