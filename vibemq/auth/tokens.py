"""Access tokens: text that stands for a user, of which the store keeps a keyed hash only.

vmq_<token_id>_<secret>     both hex; the token_id is public, the secret has 256 random bits
"""

import hmac
import os
import re
from dataclasses import replace

from vibemq.model.access import Rule
from vibemq.model.accounts import StoredToken

PREFIX = "vmq_"
LABEL_MAX = 128
_FORM = re.compile(r"vmq_([0-9a-f]{12})_([0-9a-f]{64})")
_SECRET = re.compile(r"(?<=vmq_[0-9a-f]{12}_)[0-9a-f]+", re.IGNORECASE)
"""Whole or cut off: a part of a secret helps to find the rest."""


def looks_like_token(text: str) -> bool:
    """Whether the text has the form of an access token, right or wrong: then it is nobody's password."""
    return _FORM.fullmatch(text) is not None


def make_token(
    user: str, *, label: str, now: int, expires_at: int, rules: tuple[Rule, ...] | None
) -> tuple[str, StoredToken]:
    """(text to be shown once, what is kept of it)."""
    token_id, secret, key = os.urandom(6).hex(), os.urandom(32).hex(), os.urandom(16)
    kept = StoredToken(token_id, user, key, _digest(key, secret), label, now, expires_at, 0, rules)
    return f"{PREFIX}{token_id}_{secret}", kept


def id_of(text: str) -> str:
    """The token_id; "" when the text is no token."""
    form = _FORM.fullmatch(text)
    return form[1] if form is not None else ""


def masked(text: str) -> str:
    """The text without the secrets of access tokens in it, for logs and refusals: peers put tokens in any place. The
    token_id stays, so that the token can be revoked."""
    return _SECRET.sub("…", text)


def fits(text: str, kept: StoredToken) -> bool:
    """Whether the text is this token. It may have expired all the same."""
    form = _FORM.fullmatch(text)
    return form is not None and hmac.compare_digest(_digest(kept.key, form[2]), kept.digest)


def has_expired(kept: StoredToken, now: int) -> bool:
    return bool(kept.expires_at) and now >= kept.expires_at


def used(kept: StoredToken, now: int) -> StoredToken:
    return replace(kept, used_at=now)


def _digest(key: bytes, secret: str) -> bytes:
    return hmac.digest(key, secret.encode(), "sha256")
