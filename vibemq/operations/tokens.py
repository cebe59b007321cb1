"""Access tokens: made for a user, listed, and taken away at once."""

import asyncio
from typing import Annotated, Any

import orjson
from pydantic import AfterValidator, Field

from vibemq.auth.rules import make_rule, written
from vibemq.auth.tokens import LABEL_MAX, id_of, make_token, masked
from vibemq.auth.users import Accounts
from vibemq.errors import Forbidden, InvalidPayload, TokenNotFound, UserNotFound
from vibemq.model.access import Rule
from vibemq.model.accounts import StoredToken
from vibemq.model.records import TokenRemoved, TokenStored
from vibemq.operations.arguments import LIMIT_MAX, Arguments, CanBeTried, Limit, Text, page_size
from vibemq.operations.contracts import InstantSource
from vibemq.operations.registry import Caller, Operation, OwnLimit
from vibemq.operations.users import Users

TOKENS_MAX = 1000
"""Of one user."""
TOKEN_RULES_MAX = 50
"""Of one token that is made; those that are kept already may have more."""
USER_RULES_MAX = 2000
"""Of all tokens of one user, who may make them without any right: they are in memory, and read at each start."""
PAGE_BYTES_MAX = 256 << 10
"""Of a page, and of what is shown of one token."""
RULES_PER_TURN = 200
"""Tokens and rules of an answer between which the loop has a turn."""
EXPIRES_MS_MAX = 100 * 365 * 24 * 3_600_000
NOTED_EVERY_MS = 60_000
NOTED_TOGETHER_MAX = 100
"""Last uses in one change, so that thousands of them do not hold the loop."""


def _id_in(text: str) -> str:
    return id_of(text) or text


TokenId = Annotated[Text, AfterValidator(_id_in)]


class CreateTokenArguments(CanBeTried):
    user: Text = Field(description="For whom the token stands.")
    label: str = Field("", max_length=LABEL_MAX, description="What it is for; lists show it.")
    expires_ms: int | None = Field(
        None, ge=1, le=EXPIRES_MS_MAX, description="How long it is valid; left out: until it is revoked."
    )
    permissions: list[dict[str, Any]] | None = Field(
        None,
        max_length=TOKEN_RULES_MAX,
        description=f"Narrower rights than the user's: a list like that of user.show, of at most {TOKEN_RULES_MAX}. "
        "Only what both allow is allowed.",
    )


class TokenListArguments(Arguments):
    user: Text | None = Field(None, description="Only those of this user.")
    after: str | None = Field(None, description="Go on behind this token: `next` of the page before.")
    limit: Limit = None


class RevokeTokenArguments(CanBeTried):
    user: Text | None = Field(None, description="For whom the token stands; superusers may leave it out.")
    token_id: TokenId = Field(description="Of the token, as token.list shows it. Of a whole token the id alone counts.")


class Tokens:
    def __init__(self, accounts: Accounts, users: Users, clock: InstantSource) -> None:
        self._accounts = accounts
        self._users = users
        self._clock = clock
        self._noted_at = 0

    async def create(self, caller: Caller, wanted: CreateTokenArguments) -> dict[str, Any]:
        """The answer is the only place where the token stands in clear; that of a dry run has none.

        Raises UserNotFound, InvalidPayload, Forbidden."""
        rules = None if wanted.permissions is None else _rules(wanted.permissions)
        if not wanted.label.isprintable():
            raise InvalidPayload("argument label of token.create must be printable text without line breaks")
        async with self._users.changing_for(caller, wanted) as keep:
            if self._accounts.user(wanted.user) is None:
                raise UserNotFound(f"there is no user {wanted.user[:64]!r}; the list of users shows those there are")
            if len(self._accounts.tokens_of(wanted.user)) >= TOKENS_MAX:
                raise Forbidden(
                    f"user {wanted.user!r} has {TOKENS_MAX} tokens, the most there may be; revoke those not in use"
                )
            self._check_room(wanted.user, len(rules or ()))
            now = self._clock.now()
            expires_at = 0 if wanted.expires_ms is None else now + wanted.expires_ms
            text, kept = make_token(wanted.user, label=wanted.label, now=now, expires_at=expires_at, rules=rules)
            await keep([TokenStored(kept)], [])
        told = token_json(kept)
        if wanted.dry_run:
            del told["token_id"]
            return told
        return {"token": text, **told}

    def _check_room(self, user: str, count: int) -> None:
        """Raises Forbidden."""
        tokens = map(self._accounts.token, self._accounts.tokens_of(user) if count else ())
        has = sum(len(kept.rules or ()) for kept in tokens if kept is not None)
        if count and has + count > USER_RULES_MAX:
            raise Forbidden(
                f"the tokens of user {user!r} have {has} permissions, and {count} more would be more than the "
                f"{USER_RULES_MAX} there may be; revoke tokens not in use, or use patterns with *"
            )

    async def page(self, caller: Caller, wanted: TokenListArguments) -> dict[str, Any]:
        """By token_id; never the secrets. A page ends before its limit when it is large."""
        limit = page_size(wanted.limit, LIMIT_MAX)
        page = (wanted.after or "", limit + 1)
        ids = self._accounts.token_ids(*page) if wanted.user is None else self._accounts.tokens_of(wanted.user, *page)
        shown: list[dict[str, Any]] = []
        size = looked_at = 0
        for position, token_id in enumerate(ids[:limit]):
            if looked_at >= RULES_PER_TURN:
                looked_at = 0
                await asyncio.sleep(0)
            kept = self._accounts.token(token_id)
            if kept is None:
                continue
            looked_at += 1 + len(kept.rules or ())
            one = token_json(kept)
            size += len(orjson.dumps(one))
            if shown and size > PAGE_BYTES_MAX:
                return {"tokens": shown, "next": ids[position - 1]}
            shown.append(one)
        return {"tokens": shown, "next": ids[limit - 1] if len(ids) > limit else None}

    async def revoke(self, caller: Caller, wanted: RevokeTokenArguments) -> dict[str, Any]:
        """Its connections are closed. Raises TokenNotFound."""
        async with self._users.changing_for(caller, wanted) as keep:
            kept = self._accounts.token(wanted.token_id)
            if kept is None or kept.user != (wanted.user or kept.user):
                whose = "nobody has a" if wanted.user is None else f"user {masked(wanted.user[:64])!r} has no"
                shown = masked(wanted.token_id[:64])
                raise TokenNotFound(f"{whose} token {shown!r}; `vibemq-admin token ls` lists them")
            await keep([TokenRemoved(wanted.token_id)], [kept.user])
        return token_json(kept)

    async def tidy(self) -> None:
        """End connections whose token has expired, and now and then have the store know when tokens were last used.
        Called about once a second."""
        now = self._clock.now()
        await self._users.end(self._accounts.take_expired(now))
        if now < self._noted_at + NOTED_EVERY_MS:
            return
        self._noted_at = now
        for _ in range(0, self._accounts.used_count, NOTED_TOGETHER_MAX):
            async with self._users.changing:
                used = self._accounts.take_used(NOTED_TOGETHER_MAX)
                await self._users.store([TokenStored(kept) for kept in used], [])


def _rules(values: list[dict[str, Any]]) -> tuple[Rule, ...]:
    """Raises InvalidPayload."""
    try:
        return tuple(map(make_rule, values))
    except ValueError as error:
        raise InvalidPayload(f"argument permissions of token.create: {error}") from None


def token_json(kept: StoredToken) -> dict[str, Any]:
    """As lists show a token; None for an instant that is not there. Of more permissions than a page has room for the
    first are shown, and `permissions_left_out` counts the others."""
    told = {
        "token_id": kept.token_id,
        "user": kept.user,
        "label": kept.label,
        "created_at": kept.created_at,
        "expires_at": kept.expires_at or None,
        "used_at": kept.used_at or None,
        "permissions": None if kept.rules is None else [written(rule) for rule in kept.rules],
    }
    if len(kept.rules or ()) > TOKEN_RULES_MAX:
        _leave_out(told)
    return told


def _leave_out(told: dict[str, Any]) -> None:
    rules, left = told["permissions"], PAGE_BYTES_MAX
    for position, rule in enumerate(rules):
        left -= len(orjson.dumps(rule)) + 1
        if left < 0:
            told |= {"permissions": rules[:position], "permissions_left_out": len(rules) - position}
            break


OPERATIONS: list[Operation[Any]] = [
    Operation(
        "token.create",
        "Make an access token for a user.",
        CreateTokenArguments,
        Tokens,
        task=Tokens.create,
        logged=True,
        audited=True,
        limited_per=OwnLimit.USER,
    ),
    Operation(
        "token.list", "Access tokens, in pages of about 256 KiB at most.", TokenListArguments, Tokens, task=Tokens.page
    ),
    Operation(
        "token.revoke",
        "Take an access token away.",
        RevokeTokenArguments,
        Tokens,
        task=Tokens.revoke,
        logged=True,
        audited=True,
        limited_per=OwnLimit.USER_AND_ADDRESS,
    ),
]
