"""Answers to requests that may come twice: the header Idempotency-Key names one, and the same key has the same answer.
Kept in memory, for an hour. Pure: the caller brings the time."""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

from vibemq.errors import ErrorCode, InvalidPayload
from vibemq.web.api.errors import HttpCode, Problem

HEADER = "idempotency-key"
KEPT_S = 3600.0
KEPT_MAX = 10_000
ANSWER_BYTES_MAX = 65_536
"""A larger answer is not kept, and its request is carried out again."""
KEY_MAX = 255

Key = tuple[str, str, str]
"""User, endpoint, key."""


class KeptAnswer(NamedTuple):
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass(slots=True)
class _Entry:
    digest: bytes
    until_s: float
    answer: KeptAnswer | None = None
    """None: the first request is under way."""


def checked_key(text: str) -> str:
    """Raises InvalidPayload."""
    if not 1 <= len(text) <= KEY_MAX or not text.isascii() or not text.isprintable():
        raise InvalidPayload(f"the header Idempotency-Key must be 1 to {KEY_MAX} printable ASCII characters")
    return text


class KeptAnswers:
    def __init__(self) -> None:
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def begin(self, key: Key, request: bytes, now_s: float) -> KeptAnswer | None:
        """The answer to the same request; None: it is to be carried out, and `keep` or `forget` follows.

        Raises:
            Problem: IDEMPOTENCY_CONFLICT, IDEMPOTENCY_BUSY.
        """
        while self._entries and next(iter(self._entries.values())).until_s <= now_s:
            self._entries.popitem(last=False)
        digest = hashlib.sha256(request).digest()
        entry = self._entries.get(key)
        if entry is None:
            self._entries[key] = _Entry(digest, now_s + KEPT_S)
            if len(self._entries) > KEPT_MAX:
                self._entries.popitem(last=False)
            return None
        if entry.digest != digest:
            raise Problem(
                ErrorCode.IDEMPOTENCY_CONFLICT,
                "this Idempotency-Key was used for another request; take a new key for each request",
            )
        if entry.answer is None:
            raise Problem(
                HttpCode.IDEMPOTENCY_BUSY, "the first request with this Idempotency-Key is under way; ask again later"
            )
        return entry.answer

    def keep(self, key: Key, answer: KeptAnswer) -> None:
        entry = self._entries.get(key)
        if entry is not None and len(answer.body) <= ANSWER_BYTES_MAX:
            entry.answer = answer
        else:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """The request was not carried out."""
        self._entries.pop(key, None)
