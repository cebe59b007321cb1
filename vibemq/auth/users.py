"""Authentication: credentials in, a principal out. The rules of the same users are in `Accounts.policy`.

Users come from the settings and from the store. A name that the settings have is theirs: a user of the store with the
same name is not let in as long as they have it.
"""

import hmac
import os
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from vibemq.auth import tokens
from vibemq.auth.passwords import check_hash, cost_of, decoy_of, verify_password
from vibemq.auth.policy import Policy
from vibemq.errors import AuthFailed, AuthRequired, ConfigInvalid
from vibemq.model.access import LoginKind, Principal, Rule
from vibemq.model.accounts import StoredToken, StoredUser
from vibemq.model.records import AccountRecord, TokenRemoved, TokenStored, UserRemoved, UserStored

ANONYMOUS = Principal("anonymous", superuser=True)
"""Everyone, on a broker without authentication."""
TOKEN_BEARER = "token"  # noqa: S105  # a name, no secret
"""Name of the principal that brings the shared token."""


@dataclass(frozen=True, slots=True)
class Account:
    """One user of the settings."""

    name: str
    password_hash: str = field(repr=False)
    superuser: bool = False
    rules: tuple[Rule, ...] = ()
    password: str = field(default="", repr=False)
    """In clear, where the settings hold it so: every reading of them makes another hash of the same password."""


@dataclass(frozen=True, slots=True)
class KnownUser:
    """A user who can log in, wherever it is kept."""

    name: str
    password_hash: str = field(repr=False)
    """ "" = no password lets it in."""
    superuser: bool
    rules: tuple[Rule, ...]
    secret: str = field(repr=False)
    """What its credential is made of: the password in clear, or the hash."""
    stored: StoredUser | None
    """None for a user of the settings."""


class _Decoys:
    """Hashes for names that nobody has: each such name costs what the hash of one of the users costs, always the same
    one, so that neither time nor repetition tells them from users."""

    def __init__(self) -> None:
        self._key = os.urandom(16)
        self._counts: Counter[str] = Counter()
        self._hashes: dict[str, str] = {}

    def of_others(self, hashes: Iterable[str]) -> "_Decoys":
        """For other users; a name that nobody has keeps its place among them."""
        other = _Decoys()
        other._key = self._key
        other._hashes = dict(self._hashes)
        for stored in hashes:
            other.add(stored)
        other._hashes = {cost: other._hashes[cost] for cost in other._counts}
        return other

    def add(self, stored: str) -> None:
        """ "" is no hash."""
        if not stored:
            return
        cost = cost_of(stored)
        if cost not in self._hashes:
            self._hashes[cost] = decoy_of(stored)
        self._counts[cost] += 1

    def remove(self, stored: str) -> None:
        if not stored:
            return
        cost = cost_of(stored)
        self._counts[cost] -= 1
        if not self._counts[cost]:
            del self._counts[cost], self._hashes[cost]

    def hash_for(self, name: str) -> str:
        """ "" while there are no users."""
        place = int.from_bytes(hmac.digest(self._key, name.encode(errors="surrogatepass"), "sha256")[:8], "big")
        place %= max(1, self._counts.total())
        for cost, count in list(self._counts.items()):
            if place < count:
                return self._hashes.get(cost, "")
            place -= count
        return ""


@dataclass(frozen=True, slots=True)
class ReplacedUsers:
    """What `Accounts` knows once the users of the settings are others: made in a thread, taken in an instant."""

    users: dict[str, KnownUser]
    names: list[str]
    """Of `users`, sorted."""
    rules: dict[str, tuple[Rule, ...]]
    superusers: set[str]
    decoys: _Decoys
    shared_token: bytes | None
    changed: frozenset[str]
    """Names whose logins may have ceased to count, or may do other things."""
    hidden: tuple[str, ...]
    """Users of the store that the settings hide from now on, sorted."""
    promoted: tuple[tuple[str, int], ...] = ()
    """(name, tokens) of those who become superusers with access tokens that were made before, sorted."""

    @property
    def enabled(self) -> bool:
        return bool(self.users) or self.shared_token is not None


class Accounts:
    """The users of one broker, their tokens, and what they may do.

    `authenticate` may run in threads; everything else is for one thread.
    """

    def __init__(self, accounts: Iterable[Account] = (), *, token: str | None = None) -> None:
        """Users of the settings. Neither accounts nor a token, nor users of the store: everybody is let in and may do
        everything.

        Raises:
            ConfigInvalid: a password hash that cannot be checked; names the user.
        """
        self.policy = Policy({}, enabled=False)
        self._key = os.urandom(32)
        self._users: dict[str, KnownUser] = {}
        self._names: list[str] = []
        """Of `_users`, sorted, so that a page costs what it shows."""
        self._stored: dict[str, StoredUser] = {}
        self._tokens: dict[str, StoredToken] = {}
        self._token_ids: list[str] = []
        """Of `_tokens`, sorted."""
        self._tokens_of: dict[str, list[str]] = {}
        """By user, sorted; only of those who have one."""
        self._kept_credentials: dict[str, set[bytes]] = {}
        """By user: of passwords that were changed with the wish that connections go on."""
        self._kept_principals: dict[str, Principal | None] = {}
        """By user: who has changed the own password, and goes on with it."""
        self._used: dict[str, int] = {}
        """token_id -> instant of a login that the store does not know yet."""
        self._expiries: list[tuple[int, str]] = []
        """A heap of (expires_at, user) of tokens that expire some day, of those revoked before then too."""
        self._shared_token: bytes | None = None
        self._decoys = _Decoys()
        self.logins_version = 0
        """Goes up when a login may have ceased to count; see `ended`."""
        self.replace(accounts, token=token)

    # -- what is known ----------------------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        return self.policy.enabled

    @property
    def has_stored_users(self) -> bool:
        return bool(self._stored)

    def user(self, name: str) -> KnownUser | None:
        return self._users.get(name)

    def names(self, after: str = "", limit: int | None = None) -> list[str]:
        """Of all users, sorted: at most so many behind `after`."""
        return _page(self._names, after, limit)

    def stored_user(self, name: str) -> StoredUser | None:
        """Of the store, also while the settings have the name."""
        return self._stored.get(name)

    def token(self, token_id: str) -> StoredToken | None:
        kept = self._tokens.get(token_id)
        used_at = self._used.get(token_id)
        return kept if kept is None or used_at is None else tokens.used(kept, used_at)

    def tokens_of(self, user: str, after: str = "", limit: int | None = None) -> list[str]:
        """Their ids, sorted: at most so many behind `after`."""
        return _page(self._tokens_of.get(user, []), after, limit)

    def valid_tokens(self, user: str, now: int) -> int:
        """How many of the user's have not expired. Looks at all of them, of which a user has 1,000 at most."""
        return sum(not tokens.has_expired(kept, now) for kept in self._all_tokens_of(user))

    def valid_whole_tokens(self, user: str, now: int) -> int:
        """The same of those that are not narrower than the user."""
        return sum(kept.rules is None and not tokens.has_expired(kept, now) for kept in self._all_tokens_of(user))

    def _all_tokens_of(self, user: str) -> Iterator[StoredToken]:
        return (self._tokens[token_id] for token_id in self._tokens_of.get(user, ()))

    def token_ids(self, after: str = "", limit: int | None = None) -> list[str]:
        """The same of all users."""
        return _page(self._token_ids, after, limit)

    @property
    def used_count(self) -> int:
        """Tokens whose last login the store does not know yet."""
        return len(self._used)

    # -- changes ----------------------------------------------------------------------------------------------------

    def replace(self, accounts: Iterable[Account], *, token: str | None) -> None:
        """Other users of the settings from now on; what was kept about permissions is void. Raises as the constructor
        does, and then nothing has changed."""
        self.take(self.prepare(accounts, token=token))

    def prepare(self, accounts: Iterable[Account], *, token: str | None) -> ReplacedUsers:
        """What `take` takes. Changes nothing, and may run in a thread as long as nobody changes users meanwhile.

        Raises:
            ConfigInvalid: a password hash that cannot be checked; names the user.
        """
        configured = {account.name: _configured(account) for account in accounts}
        users = {
            name: self._users[name] if not self._is_configured(name) else _known(user)
            for name, user in self._stored.items()
            if name not in configured
        }
        users.update(configured)
        rules = {name: user.rules for name, user in users.items()}
        superusers = {name for name, user in users.items() if user.superuser}
        if token is not None:
            rules.setdefault(TOKEN_BEARER, ())
            superusers.add(TOKEN_BEARER)
        shared_token = None if token is None else token.encode(errors="surrogatepass")
        changed = {name for name, user in users.items() if _differ(self._users.get(name), user)}
        changed.update(name for name in self._users if name not in users)
        if shared_token != self._shared_token:
            changed.add(TOKEN_BEARER)
        hidden = (name for name in configured if name in self._stored and not self._is_configured(name))
        promoted = ((name, len(self._tokens_of[name])) for name in superusers if self._is_promoted(name))
        decoys = self._decoys.of_others(user.password_hash for user in users.values())
        return ReplacedUsers(
            users,
            sorted(users),
            rules,
            superusers,
            decoys,
            shared_token,
            frozenset(changed),
            tuple(sorted(hidden)),
            tuple(sorted(promoted)),
        )

    def _is_promoted(self, superuser: str) -> bool:
        before = self._users.get(superuser)
        return superuser in self._tokens_of and not (before is not None and before.superuser)

    def take(self, replaced: ReplacedUsers) -> ReplacedUsers:
        """Let it count; what was there before is returned, for very many users are not forgotten in an instant."""
        before = ReplacedUsers(
            self._users,
            self._names,
            *self.policy.take(replaced.rules, replaced.superusers, enabled=replaced.enabled),
            self._decoys,
            self._shared_token,
            frozenset(),
            (),
        )
        self._users, self._names = replaced.users, replaced.names
        self._decoys, self._shared_token = replaced.decoys, replaced.shared_token
        self.logins_version += 1
        for name in [name for name in self._kept_credentials if name not in replaced.users]:
            del self._kept_credentials[name]
        for name in [name for name in self._kept_principals if name not in replaced.users]:
            del self._kept_principals[name]
        return before

    def load(self, users: Iterable[StoredUser], kept_tokens: Iterable[StoredToken]) -> list[str]:
        """What the store has when the broker starts. Users whose password cannot be checked are returned: their hash
        makes no sense. No password lets them in, and they keep nobody else out."""
        unusable: list[str] = []
        for user in users:
            self._apply(UserStored(user))
            if not self._users[user.name].password_hash:
                unusable.append(user.name)
        for token in kept_tokens:
            self._apply(TokenStored(token))
        self._note_enabled()
        return unusable

    def apply(self, records: Iterable[AccountRecord]) -> None:
        """Changes that the store has taken."""
        for record in records:
            self._apply(record)
        self._note_enabled()

    def keep_logins(self, name: str) -> None:
        """Whoever has logged in as the user may go on when the password is changed."""
        user = self._users[name]
        self._kept_credentials.setdefault(name, set()).add(self._credential("password", name, user.secret))

    def keep_login_of(self, name: str, principal: Principal | None) -> None:
        """Nobody who has logged in as the user before may go on when the password is changed, but this principal."""
        self._kept_credentials.pop(name, None)
        self._kept_principals[name] = principal if principal is not None and principal.name == name else None

    def take_used(self, limit: int) -> list[StoredToken]:
        """At most so many tokens whose last login the store does not know; they are taken as known from now on."""
        taken: list[StoredToken] = []
        while self._used and len(taken) < limit:
            token_id, at = self._used.popitem()
            if token_id in self._tokens:
                taken.append(tokens.used(self._tokens[token_id], at))
        return taken

    def take_expired(self, now: int) -> set[str]:
        """Users of tokens that have expired since the last call."""
        users: set[str] = set()
        while self._expiries and self._expiries[0][0] <= now:
            users.add(heappop(self._expiries)[1])
        return users

    def _apply(self, record: AccountRecord) -> None:
        match record:
            case UserStored(user):
                self._stored[user.name] = user
                if not self._is_configured(user.name):
                    self._know(_known(user))
            case UserRemoved(name):
                self._stored.pop(name, None)
                if not self._is_configured(name):
                    self._forget(name)
            case TokenStored(token):
                self._know_token(token)
            case TokenRemoved(token_id):
                self._forget_token(token_id)

    def _know_token(self, token: StoredToken) -> None:
        new = token.token_id not in self._tokens
        self._tokens[token.token_id] = token
        if new:
            insort(self._token_ids, token.token_id)
            insort(self._tokens_of.setdefault(token.user, []), token.token_id)
            if token.expires_at:
                heappush(self._expiries, (token.expires_at, token.user))

    def _forget_token(self, token_id: str) -> None:
        gone = self._tokens.pop(token_id, None)
        if gone is None:
            return
        self.logins_version += 1
        _take_out(self._token_ids, token_id)
        own = self._tokens_of[gone.user]
        _take_out(own, token_id)
        if not own:
            del self._tokens_of[gone.user]

    def _is_configured(self, name: str) -> bool:
        user = self._users.get(name)
        return user is not None and user.stored is None

    def _know(self, user: KnownUser) -> None:
        before = self._users.get(user.name)
        self._decoys.add(user.password_hash)
        if before is not None:
            self._decoys.remove(before.password_hash)
            self.logins_version += before.secret != user.secret
        else:
            insort(self._names, user.name)
        self._users[user.name] = user
        bearer = user.name == TOKEN_BEARER and self._shared_token is not None
        self.policy.put(user.name, user.rules, superuser=user.superuser or bearer)

    def _forget(self, name: str) -> None:
        user = self._users.pop(name, None)
        self._kept_credentials.pop(name, None)
        self._kept_principals.pop(name, None)
        if user is not None:
            _take_out(self._names, name)
            self._decoys.remove(user.password_hash)
            self.policy.remove(name)
            self.logins_version += 1

    def _note_enabled(self) -> None:
        self.policy.enabled = bool(self._users) or self._shared_token is not None

    # -- credentials ------------------------------------------------------------------------------------------------

    @staticmethod
    def access_token_in(password: str, token: str) -> str:
        """The access token that was offered, right or wrong; it may stand in either place. "" when there is none."""
        return next((text for text in (token, password) if tokens.looks_like_token(text)), "")

    def needs_hashing(self, username: str, password: str, token: str) -> bool:
        """Whether `authenticate` would hash a password."""
        if self.access_token_in(password, token):
            return False
        if token and self._shared_token is not None:
            return bool(username) and password == token
        return self.enabled and bool(username and password)

    def authenticate(self, username: str, password: str, token: str, now: int) -> Principal:
        """Check credentials. Blocking (tens of milliseconds) when they hold a password.

        An access token may stand in either place. A peer that cannot say which of the two its secret is offers it as
        both: what is not the shared token is then tried as the password. Raises AuthRequired or AuthFailed.
        """
        if not self.enabled:
            return ANONYMOUS
        access_token = self.access_token_in(password, token)
        if access_token:
            return self._by_access_token(username, access_token, now)
        if token:
            found = self._by_shared_token(username, password, token)
            if found is not None:
                return found
        if not username or not password:
            raise AuthRequired("this broker asks for a user name and password, or a token")
        user = self._users.get(username)
        stored = user.password_hash if user is not None else ""
        if not stored:
            user, stored = None, self._decoys.hash_for(username)
        if not stored:
            raise AuthFailed("this broker has no users; connect with a token")
        try:
            right = verify_password(password, stored)
        except (ValueError, MemoryError, OSError) as error:
            raise AuthFailed("the password cannot be checked now; try again later") from error
        if not right or user is None:
            raise AuthFailed("user name or password is wrong")
        return self._of_user(user, self._credential("password", username, user.secret), LoginKind.PASSWORD)

    def by_certificate(self, names: Collection[str], username: str) -> Principal:
        """Whom a certificate stands for that has been checked.

        Raises:
            AuthRequired: for nobody who is known; a password or a token may do.
            AuthFailed: for several users, or for another than the given one.
        """
        known = [user for user in map(self._users.get, names) if user is not None]
        if not known:
            raise AuthRequired("the certificate stands for no user; log in with a user name and password, or a token")
        if len(known) > 1:
            raise AuthFailed("the certificate stands for several users; use one with a single name")
        (user,) = known
        if username not in ("", user.name):
            raise AuthFailed(f"the certificate does not stand for user {username[:64]!r}; leave the name out")
        return self._of_user(user, self._credential("certificate", user.name, ""), LoginKind.CERTIFICATE)

    def acting(self, name: str, token_id: str, now: int) -> Principal | None:
        """Who acts for a user without its secret, under the login that it had once: the password, or an access token.
        None: that does not count any more. Whether somebody else has the name by now is told by `since` of the answer,
        and not by which of two instants is the later one: clocks are set.
        """
        if not self.enabled:
            return ANONYMOUS
        user = self._users.get(name)
        if token_id:
            kept = self._tokens.get(token_id)
            if user is None or kept is None or kept.user != name or tokens.has_expired(kept, now):
                return None
            return self._of_token(kept, user)
        if user is not None:
            return self._of_user(user, self._credential("password", name, user.secret), LoginKind.NONE)
        if name == TOKEN_BEARER and self._shared_token is not None:
            shared = self._shared_token
            return self._bearer(shared)
        return None

    def _of_token(self, kept: StoredToken, user: KnownUser) -> Principal:
        return Principal(
            kept.user,
            superuser=user.superuser,
            credential=self._credential("access", kept.token_id, kept.digest),
            token_id=kept.token_id,
            rules=kept.rules,
            since=_made_at(user),
            login=LoginKind.TOKEN,
        )

    @staticmethod
    def _of_user(user: KnownUser, credential: bytes, login: LoginKind) -> Principal:
        return Principal(user.name, user.superuser, credential, since=_made_at(user), login=login)

    def _bearer(self, shared: bytes) -> Principal:
        credential = self._credential("token", "", shared)
        return Principal(TOKEN_BEARER, superuser=True, credential=credential, login=LoginKind.TOKEN)

    def _by_shared_token(self, username: str, password: str, text: str) -> Principal | None:
        """None when there is a user name to go by instead."""
        shared = self._shared_token
        if shared is not None:
            if hmac.compare_digest(text.encode(errors="surrogatepass"), shared):
                return self._bearer(shared)
            if username and password == text:
                return None
            raise AuthFailed("the token is not valid")
        if not username and text.startswith(tokens.PREFIX):
            raise AuthFailed("the token is not valid; it is not whole")
        if not username:
            raise AuthFailed(
                f"this is no access token, which begins with {tokens.PREFIX}, and this broker has no shared token; "
                "correct it, or connect with a user name and a password"
            )
        return None

    def _by_access_token(self, username: str, text: str, now: int) -> Principal:
        kept = self._tokens.get(tokens.id_of(text))
        if kept is None or not tokens.fits(text, kept):
            raise AuthFailed("the token is not valid")
        if username not in ("", kept.user):
            raise AuthFailed(f"the token belongs to another user than {username[:64]!r}; leave the name out")
        user = self._users.get(kept.user)
        if user is None:
            raise AuthFailed("the user of the token does not exist any more")
        if tokens.has_expired(kept, now):
            raise AuthFailed("the token has expired; ask the broker's operator for a new one")
        self._used[kept.token_id] = now
        return self._of_token(kept, user)

    def ended(self, principal: Principal, now: int) -> str:
        """Why the principal may not go on, as a sentence; "" while the credential that it logged in with counts."""
        if not self.enabled:
            return ""
        name = principal.name
        user = self._users.get(name)
        if principal.token_id:
            return f"user {name!r} was removed" if user is None else self._token_ended(principal, now)
        # Whoever was given the name later may have the same password or certificate.
        if (
            user is not None
            and principal.since == _made_at(user)
            and (self._logs_in(principal, user) or self._is_kept(principal))
        ):
            return ""
        shared = self._shared_token
        if shared is not None and hmac.compare_digest(principal.credential, self._credential("token", "", shared)):
            return ""
        if user is not None:
            return f"the password of user {name!r} was changed; connect with the new one"
        if name == TOKEN_BEARER:
            return "the token was changed or removed; connect with a valid one"
        return f"user {name!r} was removed"

    def is_current(self, principal: Principal, now: int) -> bool:
        """Whether whoever offers the same credential now would log in as the principal: one that only connections
        which have it may go on with, after a change, is no such credential."""
        if self.ended(principal, now):
            return False
        user = self._users.get(principal.name)
        if user is None:
            return True
        if principal.superuser != user.superuser:
            return False
        return bool(principal.token_id) or principal.since != _made_at(user) or self._logs_in(principal, user)

    def _token_ended(self, principal: Principal, now: int) -> str:
        kept = self._tokens.get(principal.token_id)
        if kept is None or not hmac.compare_digest(
            principal.credential, self._credential("access", kept.token_id, kept.digest)
        ):
            return "the token was revoked; connect with a valid one"
        return "the token has expired; connect with a valid one" if tokens.has_expired(kept, now) else ""

    def _logs_in(self, principal: Principal, user: KnownUser) -> bool:
        """Whether the password or certificate with which the user has logged in would do so now."""
        offered, name = principal.credential, principal.name
        return hmac.compare_digest(offered, self._credential("password", name, user.secret)) or hmac.compare_digest(
            offered, self._credential("certificate", name, "")
        )

    def _is_kept(self, principal: Principal) -> bool:
        """Whether connections that have the credential may go on with it after the change of the password."""
        name = principal.name
        return principal.credential in self._kept_credentials.get(name, ()) or principal is self._kept_principals.get(
            name
        )

    def _credential(self, kind: str, name: str, secret: str | bytes) -> bytes:
        parts = (kind, name, secret)
        encoded = (part if isinstance(part, bytes) else part.encode(errors="surrogatepass") for part in parts)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(8) + part for part in encoded), "sha256")


def _configured(account: Account) -> KnownUser:
    """Raises ConfigInvalid for a password hash that cannot be checked."""
    try:
        check_hash(account.password_hash)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"the password_hash of user {account.name!r} cannot be used: {error}") from None
    secret = account.password or account.password_hash
    return KnownUser(account.name, account.password_hash, account.superuser, account.rules, secret, stored=None)


def _differ(before: KnownUser | None, now: KnownUser) -> bool:
    """Whether somebody who had logged in as the user may have to go, or may do other things."""
    if before is None:
        return False
    return (before.secret, before.superuser, before.rules) != (now.secret, now.superuser, now.rules)


def _page(found: list[str], after: str, limit: int | None) -> list[str]:
    first = bisect_right(found, after) if after else 0
    return found[first:] if limit is None else found[first : first + limit]


def _take_out(found: list[str], name: str) -> None:
    del found[bisect_left(found, name)]


def _made_at(user: KnownUser) -> int:
    """0 = it stands in the settings."""
    return user.stored.created_at if user.stored is not None else 0


def _known(user: StoredUser) -> KnownUser:
    stored = _usable(user.password_hash)
    return KnownUser(user.name, stored, user.superuser, user.rules, user.password_hash, user)


def _usable(stored: str) -> str:
    """The hash; "" when no password can be checked against it."""
    try:
        check_hash(stored)
    except ConfigInvalid:
        return ""
    return stored
