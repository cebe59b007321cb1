"""Authentication: credentials in, a principal out. The rules of the same users are in `Accounts.policy`."""

import base64
import hmac
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from vibemq.auth.passwords import HASH_BYTES, parse_hash, verify_password
from vibemq.auth.policy import Policy
from vibemq.errors import AuthFailed, AuthRequired, ConfigInvalid
from vibemq.model.access import Principal, Rule

ANONYMOUS = Principal("anonymous", superuser=True)
"""Everyone, on a broker without authentication."""
TOKEN_BEARER = "token"  # noqa: S105  # a name, no secret
"""Name of the principal that brings the shared token."""


@dataclass(frozen=True, slots=True)
class Account:
    """One user, as configured."""

    name: str
    password_hash: str = field(repr=False)
    superuser: bool = False
    rules: tuple[Rule, ...] = ()
    password: str = field(default="", repr=False)
    """In clear, where the settings hold it so: every reading of them makes another hash of the same password."""


@dataclass(frozen=True, slots=True)
class _Known:
    """Credentials at one time; replaced whole, because checks run in threads."""

    token: bytes | None
    hashes: dict[str, str]
    credentials: dict[str, bytes]
    """Of each user, as principals carry them."""
    superusers: frozenset[str]
    nobody: str
    """An unknown user must cost the same as a wrong password."""


def _hash_of_nobody(hashes: list[str]) -> str:
    """A hash that no password has, as expensive to check as the most expensive of these."""
    if not hashes:
        return ""
    log2_n, r, p = max((parse_hash(stored)[2:] for stored in hashes), key=lambda parts: parts[1] * parts[2] << parts[0])
    salt, digest = (base64.b64encode(os.urandom(size)).decode() for size in (16, HASH_BYTES))
    return f"scrypt${log2_n}${r}${p}${salt}${digest}"


class Accounts:
    """The users of one broker and what they may do."""

    def __init__(self, accounts: Iterable[Account] = (), *, token: str | None = None) -> None:
        """Neither accounts nor a token: everybody is let in and may do everything.

        Raises:
            ConfigInvalid: a password hash that cannot be checked; names the user.
        """
        self.policy = Policy({}, enabled=False)
        self._key = os.urandom(32)
        self.replace(accounts, token=token)

    def replace(self, accounts: Iterable[Account], *, token: str | None) -> None:
        """Other users from now on; what was kept about permissions is void. Raises as the constructor does, and then
        nothing has changed."""
        users = {account.name: account for account in accounts}
        for account in users.values():
            try:
                parse_hash(account.password_hash)
            except ConfigInvalid as error:
                raise ConfigInvalid(f"the password_hash of user {account.name!r} cannot be used: {error}") from None
        superusers = {name for name, account in users.items() if account.superuser}
        self._known = _Known(
            None if token is None else token.encode(errors="surrogatepass"),
            {name: account.password_hash for name, account in users.items()},
            {
                name: self._credential("password", name, account.password or account.password_hash)
                for name, account in users.items()
            },
            frozenset(superusers),
            _hash_of_nobody([account.password_hash for account in users.values()]),
        )
        self.policy.replace(
            {name: account.rules for name, account in users.items()},
            superusers=superusers if token is None else superusers | {TOKEN_BEARER},
            enabled=bool(users) or token is not None,
        )

    @property
    def enabled(self) -> bool:
        return self.policy.enabled

    def authenticate(self, username: str, password: str, token: str) -> Principal:
        """Check credentials. Blocking (tens of milliseconds) when they hold a password.

        Raises:
            AuthRequired, AuthFailed
        """
        known = self._known
        if not self.enabled:
            return ANONYMOUS
        if token and known.token is not None:
            if hmac.compare_digest(token.encode(errors="surrogatepass"), known.token):
                return Principal(TOKEN_BEARER, superuser=True, credential=self._credential("token", "", token))
            raise AuthFailed("the token is not valid")
        if token and known.token is None and not username:
            raise AuthFailed("this broker has no token; connect with a user name and a password")
        if not username or not password:
            raise AuthRequired("this broker asks for a user name and password, or a token")
        if not known.hashes:
            raise AuthFailed("this broker has no users; connect with a token")
        stored = known.hashes.get(username, known.nobody)
        try:
            right = verify_password(password, stored)
        except (ValueError, MemoryError, OSError) as error:
            raise AuthFailed("the password cannot be checked now; try again later") from error
        if not right or username not in known.hashes:
            raise AuthFailed("user name or password is wrong")
        return Principal(username, username in known.superusers, known.credentials[username])

    def ended(self, principal: Principal) -> str:
        """Why the principal may not go on, as a sentence; "" while the credential that it logged in with counts."""
        known = self._known
        if not self.enabled:
            return ""
        offered, name = principal.credential, principal.name
        user = known.credentials.get(name)
        if user is not None and hmac.compare_digest(offered, user):
            return ""
        if known.token is not None and hmac.compare_digest(offered, self._credential("token", "", known.token)):
            return ""
        if user is not None:
            return f"the password of user {name!r} was changed; connect with the new one"
        if name == TOKEN_BEARER:
            return "the token was changed or removed; connect with a valid one"
        return f"user {name!r} was removed"

    def _credential(self, kind: str, name: str, secret: str | bytes) -> bytes:
        parts = (kind, name, secret)
        encoded = (part if isinstance(part, bytes) else part.encode(errors="surrogatepass") for part in parts)
        return hmac.digest(self._key, b"".join(len(part).to_bytes(8) + part for part in encoded), "sha256")
