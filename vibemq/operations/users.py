"""Users of the broker: make, change, look at and remove them while it runs.

What the settings say of a user cannot be changed here. Changes are durable before they count and before they are
answered; one is carried out after the other.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal, Protocol

import anyio
from pydantic import AfterValidator, Field

from vibemq.auth.passwords import PASSWORD_BYTES_MAX, check_hash
from vibemq.auth.rules import ACTIONS, EVERY_ACTION, NAME_OF, less, make_rule, merged, resources_of, written
from vibemq.auth.tokens import looks_like_token
from vibemq.auth.users import ANONYMOUS, TOKEN_BEARER, Accounts, KnownUser
from vibemq.errors import (
    ConfigInvalid,
    Forbidden,
    InvalidPayload,
    NotAuthorized,
    RateLimited,
    UserExists,
    UserNotFound,
)
from vibemq.model.access import Action, NeededPermission, Principal, ResourceKind, Rule
from vibemq.model.accounts import StoredUser
from vibemq.model.commands import ChangeAccounts
from vibemq.model.records import AccountRecord, TokenRemoved, UserRemoved, UserStored
from vibemq.operations.arguments import LIMIT_MAX, Arguments, CanBeTried, Limit, Text, page_size
from vibemq.operations.contracts import CommandSession, InstantSource, PasswordHashing
from vibemq.operations.registry import Caller, Operation, OwnLimit

RULES_MAX = 1000
"""Of one user."""
USERS_PER_TURN = 1000
"""Users of an answer between which the loop has a turn."""
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_RESERVED = frozenset((ANONYMOUS.name, TOKEN_BEARER))


def check_user_name(name: str) -> str:
    """Raises ValueError."""
    if _NAME.fullmatch(name) is None:
        raise ValueError("must be 1 to 64 of the letters A to Z and a to z, digits, and - _ .")
    if name in _RESERVED:
        raise ValueError(f"must be another name; the broker itself uses {name!r}")
    return name


def _check_password(password: str) -> str:
    if not password or len(password.encode(errors="surrogatepass")) > PASSWORD_BYTES_MAX:
        raise ValueError(f"must have 1 to {PASSWORD_BYTES_MAX} bytes")
    if looks_like_token(password):
        raise ValueError("must be another one; this has the form of an access token, and would be taken for one")
    return password


UserName = Annotated[Text, AfterValidator(check_user_name)]
Password = Annotated[str, AfterValidator(_check_password)]


class OfUser(Arguments):
    user: Text = Field(description="Name of the user.")


class AddUserArguments(CanBeTried):
    user: UserName = Field(description="Name of the user: 1 to 64 letters, digits, and - _ .")
    password: Password | None = Field(None, repr=False, description="Password of the user.")
    password_hash: str | None = Field(
        None, repr=False, description="In place of the password: its argon2id, scrypt or bcrypt hash."
    )
    superuser: bool = Field(False, description="May do everything.")


class ChangeUserArguments(CanBeTried, OfUser):
    superuser: bool = Field(description="May do everything.")


class RemoveUserArguments(CanBeTried, OfUser):
    """The user that shall go."""


class PasswordArguments(CanBeTried, OfUser):
    password: Password = Field(repr=False, description="The new password.")
    keep_connections: bool = Field(False, description="Leave connections open that logged in with the old password.")


class UserListArguments(Arguments):
    after: str | None = Field(None, description="Go on behind this name: `next` of the page before.")
    limit: Limit = None


class ResourceArguments(Arguments):
    queues: str | None = Field(None, description="Queues by name; * stands for any run of characters.")
    groups: str | None = Field(None, description="Durable groups, as QUEUE/GROUP.")
    transactions: str | None = Field(None, description="Applications that commit transactions, by name.")

    def resources(self) -> tuple[ResourceKind, str]:
        """Raises InvalidPayload unless exactly one of them is given."""
        try:
            return resources_of(self.model_dump(include=set(NAME_OF.values())))
        except ValueError as error:
            raise InvalidPayload(str(error)) from None


class RuleArguments(ResourceArguments, OfUser):
    """A pattern of one user."""


class GrantArguments(CanBeTried, RuleArguments):
    actions: list[str] = Field(min_length=1, max_length=20, description="What is allowed; replaces what was.")
    only: list[str] | None = Field(
        None, max_length=20, description="The actions that the request decides; others stay as they were."
    )

    def rule(self) -> Rule:
        """Raises InvalidPayload."""
        try:
            return make_rule(self.model_dump(include={*NAME_OF.values(), "actions"}))
        except ValueError as error:
            raise InvalidPayload(str(error)) from None


class RevokeArguments(CanBeTried, RuleArguments):
    actions: list[str] | None = Field(
        None, min_length=1, max_length=20, description="Take only these away; left out: all of them."
    )

    def taken(self) -> frozenset[str]:
        """Raises InvalidPayload."""
        if self.actions is None:
            return frozenset((EVERY_ACTION,))
        try:
            return make_rule(self.model_dump(include={*NAME_OF.values(), "actions"}), taken_away=True).actions
        except ValueError as error:
            raise InvalidPayload(str(error)) from None


class ActionArguments(ResourceArguments):
    action: Literal["publish", "subscribe", "create", "delete", "purge", "inspect", "manage", "transact"] = Field(
        description="What is to be done."
    )

    def needed(self) -> tuple[NeededPermission, str]:
        """What would be needed, and the resource. Raises InvalidPayload for an action that the resource does not
        know."""
        kind, resource = self.resources()
        if self.action not in ACTIONS[kind]:
            raise InvalidPayload(
                f"{self.action!r} is no action on {NAME_OF[kind]}; known are {', '.join(ACTIONS[kind])}"
            )
        return NeededPermission(Action(self.action), kind), resource


class CheckArguments(ActionArguments, OfUser):
    """One user and one resource."""


class Keep(Protocol):
    """What a change of accounts ends with."""

    async def __call__(
        self, records: Sequence[AccountRecord], users: Collection[str], kept: Callable[[], None] = ..., /
    ) -> None: ...


async def _keep_nothing(
    records: Sequence[AccountRecord], users: Collection[str], kept: Callable[[], None] = lambda: None, /
) -> None:
    """Of a dry run."""


class Users:
    def __init__(
        self,
        accounts: Accounts,
        local: CommandSession,
        hashing: PasswordHashing,
        end_revoked: Callable[[Collection[str]], Awaitable[None]],
        clock: InstantSource,
    ) -> None:
        """`end_revoked`: ends the connections and subscriptions of these users that are not allowed any more."""
        self._accounts = accounts
        self._local = local
        self._hashing = hashing
        self._end_revoked = end_revoked
        self._clock = clock
        self.changing = anyio.Lock()
        """Held over a change: from its check until it counts."""
        self._hashed_for: set[str] = set()
        """Users that are no superusers and whose new password is being hashed."""

    @asynccontextmanager
    async def changing_for(self, caller: Caller, wanted: CanBeTried) -> AsyncIterator[Keep]:
        """The same for a request: whoever has lost the right to it, or the login, while it waited has nothing changed.
        What the block keeps its change with is `store`, or in a dry run nothing.

        Raises AuthFailed, NotAuthorized."""
        async with self.changing:
            caller.check_again()
            yield _keep_nothing if wanted.dry_run else self.store

    async def store(
        self,
        records: Sequence[AccountRecord],
        users: Collection[str],
        kept: Callable[[], None] = lambda: None,
    ) -> None:
        """Have changes kept, then let them count for these users. The caller holds `changing`.

        `kept`: called once they are kept, and before they count."""
        await self._local.ask(lambda session, token: ChangeAccounts(session, token, list(records)))
        kept()
        self._accounts.apply(records)
        await self.end(users)

    async def end(self, users: Collection[str]) -> None:
        """End what these users are not allowed any more."""
        if users:
            await self._end_revoked(users)

    # -- make and remove ------------------------------------------------------------------------------------------

    async def add(self, caller: Caller, wanted: AddUserArguments) -> dict[str, Any]:
        """Raises UserExists, InvalidPayload, or Forbidden while the broker lets everybody in."""
        if not self._accounts.enabled:
            raise Forbidden(
                "this broker lets everybody in without a password, and the first user would lock all of them out; "
                "start it with auth.superuser and auth.superuser_password, then add users"
            )
        self._require_free(wanted.user)
        hashed = await self._hash(wanted)
        async with self.changing_for(caller, wanted) as keep:
            self._require_free(wanted.user)
            now = self._clock.now()
            user = StoredUser(wanted.user, hashed, wanted.superuser, (), now, now)
            # Of a user of the settings who had the name: whoever is given it later is somebody else.
            left: list[AccountRecord] = [TokenRemoved(token_id) for token_id in self._accounts.tokens_of(user.name)]
            await keep([*left, UserStored(user)], [user.name])
        return {"user": wanted.user}

    def _require_free(self, name: str) -> None:
        if self._accounts.user(name) is not None or self._accounts.stored_user(name) is not None:
            raise UserExists(f"user {name!r} exists already; choose another name, or change that user")

    async def _hash(self, wanted: AddUserArguments) -> str:
        if (wanted.password is None) == (wanted.password_hash is None):
            raise InvalidPayload("user.add takes either password or password_hash; give one of them")
        if wanted.password is not None:
            return await self._hashing.hash_password(wanted.password)
        assert wanted.password_hash is not None
        try:
            check_hash(wanted.password_hash)
        except ConfigInvalid as error:
            raise InvalidPayload(f"argument password_hash of user.add cannot be used: {error}") from None
        return wanted.password_hash

    async def remove(self, caller: Caller, wanted: RemoveUserArguments) -> dict[str, Any]:
        """With the user's tokens; its connections are closed. What it owns stays, and nobody but superusers has it.

        Raises UserNotFound, Forbidden for superusers."""
        async with self.changing_for(caller, wanted) as keep:
            user = self._changeable(wanted.user)
            if user.superuser:
                raise Forbidden(
                    f"user {user.name!r} is a superuser, which cannot be removed; make it an ordinary user first"
                )
            gone: list[AccountRecord] = [TokenRemoved(token_id) for token_id in self._accounts.tokens_of(user.name)]
            gone.append(UserRemoved(user.name))
            await keep(gone, [user.name])
        return {"user": wanted.user}

    def _changeable(self, name: str) -> StoredUser:
        """Raises UserNotFound, or Forbidden for a user of the settings."""
        known = self._accounts.user(name)
        if known is not None and known.stored is None:
            raise Forbidden(
                f"user {name!r} stands in the broker's settings and cannot be changed here; change the settings where "
                "the broker is started"
            )
        if known is None or known.stored is None:
            raise UserNotFound(f"there is no user {name[:64]!r}; the list of users shows those there are")
        return known.stored

    # -- change ---------------------------------------------------------------------------------------------------

    async def change(self, caller: Caller, wanted: ChangeUserArguments) -> dict[str, Any]:
        """The answer counts the access tokens that may do everything from now on, because the user may.

        Raises UserNotFound, Forbidden for the last superuser."""
        async with self.changing_for(caller, wanted) as keep:
            user = self._changeable(wanted.user)
            if user.superuser and not wanted.superuser and self._is_last_superuser(user.name):
                raise Forbidden(f"user {user.name!r} is the only superuser; make another one first")
            await self._change(keep, user, superuser=wanted.superuser)
        is_new = wanted.superuser and not user.superuser
        promoted = self._accounts.valid_whole_tokens(wanted.user, self._clock.now()) if is_new else 0
        return {"user": wanted.user, "superuser": wanted.superuser, "tokens": promoted}

    def _is_last_superuser(self, name: str) -> bool:
        others = (self._accounts.user(other) for other in self._accounts.names() if other != name)
        return not any(other is not None and other.superuser for other in others)

    async def password(self, caller: Caller, wanted: PasswordArguments) -> dict[str, Any]:
        """Connections that logged in with the old one are closed, unless they shall be kept; not the one that asks.
        The answer counts the access tokens that outlive it.

        Raises UserNotFound, Forbidden for a user of the settings, RateLimited."""
        meant = self._changeable(wanted.user)
        with self._own_changes_one_by_one(caller):
            hashed = await self._hashing.hash_password(wanted.password)
        async with self.changing_for(caller, wanted) as keep:
            user = self._changeable(wanted.user)
            if user.created_at != meant.created_at:
                raise UserNotFound(f"user {user.name!r} was removed and made anew meanwhile; the new one is unchanged")
            stay = partial(self._accounts.keep_logins, user.name)
            if not wanted.keep_connections:
                stay = partial(self._accounts.keep_login_of, user.name, caller.principal)
            await self._change(keep, user, stay, password_hash=hashed)
        return {"user": wanted.user, "tokens": self._accounts.valid_tokens(wanted.user, self._clock.now())}

    @contextmanager
    def _own_changes_one_by_one(self, caller: Caller) -> Iterator[None]:
        """Nobody who is no superuser keeps the passwords of others waiting."""
        principal = caller.principal
        if principal is None or principal.superuser:
            yield
            return
        if principal.name in self._hashed_for:
            raise RateLimited(f"a new password of user {principal.name!r} is being hashed already; wait for its answer")
        self._hashed_for.add(principal.name)
        try:
            yield
        finally:
            self._hashed_for.remove(principal.name)

    async def rehash(self, name: str, password: str, outdated: str) -> None:
        """Hash a password by today's rules that has just been right, unless it was changed or hidden by the settings
        meanwhile. New passwords have precedence, and one is hashed again at a time: the others are after a later
        login."""
        if self._hashing.makes_hashes:
            return
        hashed = await self._hashing.hash_password(password)
        async with self.changing:
            known = self._accounts.user(name)
            user = known.stored if known is not None else None
            if user is not None and user.password_hash == outdated:
                await self._change(self.store, user, partial(self._accounts.keep_logins, name), password_hash=hashed)

    async def _change(
        self, keep: Keep, user: StoredUser, kept: Callable[[], None] = lambda: None, **changes: Any
    ) -> None:
        """`kept`: see `store`."""
        await keep([UserStored(replace(user, changed_at=self._clock.now(), **changes))], [user.name], kept)

    # -- permissions ----------------------------------------------------------------------------------------------

    async def grant(self, caller: Caller, wanted: GrantArguments) -> dict[str, Any]:
        """The actions replace those of the same pattern. Raises UserNotFound, InvalidPayload."""
        rule = wanted.rule()
        async with self.changing_for(caller, wanted) as keep:
            user = self._changeable(wanted.user)
            if wanted.only is not None:
                same = (known for known in user.rules if (known.kind, known.pattern) == (rule.kind, rule.pattern))
                rule = merged(next(same, None), rule, frozenset(wanted.only))
            rules = [known for known in user.rules if (known.kind, known.pattern) != (rule.kind, rule.pattern)]
            if len(rules) >= RULES_MAX:
                raise Forbidden(
                    f"user {user.name!r} has {RULES_MAX} permissions, the most there may be; use patterns with *"
                )
            await self._change(keep, user, rules=(*rules, rule))
        return {"user": wanted.user, **written(rule)}

    async def revoke(self, caller: Caller, wanted: RevokeArguments) -> dict[str, Any]:
        """Subscriptions that nothing allows any more end. `revoked` tells whether there was such a permission.
        Raises UserNotFound, InvalidPayload."""
        kind, pattern = wanted.resources()
        taken = wanted.taken()
        async with self.changing_for(caller, wanted) as keep:
            user = self._changeable(wanted.user)
            left = (less(rule, taken) if (rule.kind, rule.pattern) == (kind, pattern) else rule for rule in user.rules)
            rules = tuple(rule for rule in left if rule is not None)
            revoked = rules != user.rules
            if revoked:
                await self._change(keep, user, rules=rules)
        return {"user": wanted.user, NAME_OF[kind]: pattern, "revoked": revoked}

    async def check(self, caller: Caller, wanted: CheckArguments) -> dict[str, Any]:
        """Whether the user may, and by which rule. Raises UserNotFound, InvalidPayload."""
        needed, resource = wanted.needed()
        user = self._known(wanted.user)
        principal = Principal(user.name, user.superuser)
        rule = None if user.superuser else self._accounts.policy.rule_for(principal, needed, resource)
        return {
            "user": user.name,
            "action": wanted.action,
            NAME_OF[needed.kind]: resource,
            "allowed": user.superuser or rule is not None,
            "superuser": user.superuser,
            "rule": None if rule is None else written(rule),
        }

    # -- look -----------------------------------------------------------------------------------------------------

    def _known(self, name: str) -> KnownUser:
        user = self._accounts.user(name)
        if user is None:
            raise UserNotFound(f"there is no user {name[:64]!r}; the list of users shows those there are")
        return user

    async def show(self, caller: Caller, wanted: OfUser) -> dict[str, Any]:
        """Raises UserNotFound."""
        return user_json(self._known(wanted.user))

    async def page(self, caller: Caller, wanted: UserListArguments) -> dict[str, Any]:
        """By name, without permissions. A request without paging arguments gets all of them."""
        if wanted.after is None and wanted.limit is None:
            return {"users": await self._everybody(), "next": None}
        limit = page_size(wanted.limit, LIMIT_MAX)
        names = self._accounts.names(wanted.after or "", limit + 1)
        shown = [user_json(user, rules=False) for user in map(self._accounts.user, names[:limit]) if user is not None]
        return {"users": shown, "next": names[limit - 1] if len(names) > limit else None}

    async def _everybody(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        for number, name in enumerate(self._accounts.names()):
            if number % USERS_PER_TURN == 0:
                await asyncio.sleep(0)
            user = self._accounts.user(name)
            if user is not None:
                shown.append(user_json(user, rules=False))
        return shown

    async def self(self, caller: Caller, wanted: Arguments) -> dict[str, Any]:
        """Who asks, and what it may do."""
        principal = caller.principal
        if principal is None:
            raise NotAuthorized("connect and authenticate first")
        user = self._accounts.user(principal.name)
        narrower = principal.rules
        return {
            "user": principal.name,
            "authentication": self._accounts.enabled,
            "superuser": self._accounts.policy.is_superuser(principal),
            "token": principal.token_id or None,
            "permissions": [written(rule) for rule in (user.rules if user is not None else ())],
            "narrowed_to": None if narrower is None else [written(rule) for rule in narrower],
        }


def user_json(user: KnownUser, *, rules: bool = True) -> dict[str, Any]:
    """As lists and descriptions show a user. `created_at` and `changed_at` are None for a user of the settings."""
    stored = user.stored
    shown: dict[str, Any] = {
        "user": user.name,
        "superuser": user.superuser,
        "source": "settings" if stored is None else "store",
        "created_at": None if stored is None else stored.created_at,
        "changed_at": None if stored is None else stored.changed_at,
    }
    if rules:
        shown["permissions"] = [written(rule) for rule in user.rules]
    return shown


OPERATIONS: list[Operation[Any]] = [
    Operation("user.add", "Add a user.", AddUserArguments, Users, task=Users.add, logged=True, audited=True),
    Operation(
        "user.change",
        "Make a user a superuser, or an ordinary one. The answer has the number of its access tokens that are a "
        "superuser's from now on: those that are not narrower.",
        ChangeUserArguments,
        Users,
        task=Users.change,
        logged=True,
        audited=True,
    ),
    Operation(
        "user.remove",
        "Remove a user and its tokens.",
        RemoveUserArguments,
        Users,
        task=Users.remove,
        logged=True,
        audited=True,
    ),
    Operation("user.list", "Users by name, in pages.", UserListArguments, Users, task=Users.page),
    Operation("user.show", "One user and its permissions.", OfUser, Users, task=Users.show),
    Operation(
        "user.password",
        "Change a user's password. The answer has the number of its access tokens, which stay valid.",
        PasswordArguments,
        Users,
        task=Users.password,
        logged=True,
        audited=True,
        limited_per=OwnLimit.USER_AND_ADDRESS,
    ),
    Operation(
        "user.grant", "Allow a user something.", GrantArguments, Users, task=Users.grant, logged=True, audited=True
    ),
    Operation(
        "user.revoke",
        "Take a permission away.",
        RevokeArguments,
        Users,
        task=Users.revoke,
        logged=True,
        audited=True,
        nothing_done=("revoked", False),
    ),
    Operation(
        "user.check", "Whether a user may do something, and by which rule.", CheckArguments, Users, task=Users.check
    ),
    Operation("user.self", "Who asks, and what it may do.", Arguments, Users, task=Users.self),
]
