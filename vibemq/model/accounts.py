"""Users and access tokens that the broker keeps in its store, beside those of the settings."""

from dataclasses import dataclass, field

from vibemq.model.access import Rule


@dataclass(frozen=True, slots=True)
class StoredUser:
    name: str
    password_hash: str = field(repr=False)
    superuser: bool
    rules: tuple[Rule, ...]
    """In the order in which they were granted; no two of the same kind and pattern."""
    created_at: int
    changed_at: int


@dataclass(frozen=True, slots=True)
class StoredToken:
    """A secret that stands for a user; only its keyed hash is kept."""

    token_id: str
    """Public: lists and logs name the token by it."""
    user: str
    """Of the store or of the settings. While no user has this name, the token is refused."""
    key: bytes = field(repr=False)
    digest: bytes = field(repr=False)
    """HMAC-SHA256 of the secret with `key`."""
    label: str
    created_at: int
    expires_at: int
    """Instant from which on it is refused; 0 = never."""
    used_at: int
    """Of the last login that was noted; 0 = none. It may lag behind by some minutes."""
    rules: tuple[Rule, ...] | None = None
    """Narrower rights than the user's: only what both allow. None = those of the user."""
