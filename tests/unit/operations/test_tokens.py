"""What is noted of the use of tokens, and what is done when one expires."""

import asyncio
from typing import Any, cast

from tests.integration.access import cheap_hash
from vibemq.auth.tokens import make_token
from vibemq.auth.users import Account, Accounts
from vibemq.model.records import TokenStored
from vibemq.operations.tokens import NOTED_EVERY_MS, NOTED_TOGETHER_MAX, Tokens
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
