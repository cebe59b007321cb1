"""Answers to requests that may come twice: the header Idempotency-Key names one, and the same key has the same answer.
Kept in memory, for an hour. Pure: the caller brings the time, and takes digests of large requests in a thread."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from vibemq.errors import ErrorCode, InvalidPayload
from vibemq.web.api.errors import HttpCode, Problem

HEADER = "idempotency-key"
EXPIRED_AT_ONCE = 16
KEPT_S = 3600.0
KEPT_MAX = 10_000
KEPT_BYTES_MAX = 8_388_608
"""Of all answers. Beyond it the user with the most loses the oldest, so one user never takes the room of others."""
ENTRY_BYTES = 768
"""Beside the answer's body and headers."""
ANSWER_BYTES_MAX = 1_048_576
"""A larger answer is not kept, and its request is carried out again. That to a batch of which one message was accepted
and 999 were refused is smaller, whatever the queue's name."""
REFUSAL_BYTES_MAX = 4_096
"""The same for a refusal."""
KEPT_REFUSALS = frozenset((400, 413, 415, 422))
"""Of what is wrong with the request itself. What else refuses it, as the state of a queue, may pass, and it has had no
effect that a second attempt would double."""
UNKNOWN_OUTCOMES = frozenset((500, 504, 507))
"""The request may have been carried out: a second attempt with its key must not be."""
KEY_MAX = 255
KEY_PATTERN = "^[ -~]*[!-~][ -~]*$"
"""Spaces around a key are none of it, as in any header."""
DIGESTED_AT_ONCE = 524_288
"""Bytes of a body whose digest takes half a millisecond."""

OWN_PREFIX = "vibemq-"
"""Of headers that mean something to the API alone."""
_SAID = frozenset(("content-type", "content-encoding", "if-match", "if-none-match"))


def is_kept(status: int) -> bool:
    """Whether the answer to a request is that to the next one with its key."""
    return status < 400 or status in KEPT_REFUSALS or status in UNKNOWN_OUTCOMES


Key = tuple[str, str, int, str, str]
"""User, access token, when the user was made, endpoint, key."""


class KeptAnswer(NamedTuple):
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body) + sum(len(name) + len(value) for name, value in self.headers)


@dataclass(slots=True)
class _Entry:
    digest: bytes
    until_s: float
    answer: KeptAnswer | None = None
    """None: the first request is under way."""

    @property
    def size(self) -> int:
        return ENTRY_BYTES + (self.answer.size if self.answer is not None else 0)


@dataclass(slots=True)
class _Share:
    """What is kept of one user."""

    size: int = 0
    keys: OrderedDict[Key, None] = field(default_factory=OrderedDict)


def one_key(texts: Sequence[str]) -> str | None:
    """Of those that a request gives. Raises InvalidPayload."""
    if len(texts) > 1:
        raise InvalidPayload(f"the header {HEADER} is given more than once; leave all but one out", HEADER)
    return texts[0] if texts else None


def checked_key(text: str) -> str:
    """Raises InvalidPayload."""
    if not 1 <= len(text) <= KEY_MAX or not text.isascii() or not text.isprintable():
        raise InvalidPayload(f"the header Idempotency-Key must be 1 to {KEY_MAX} printable ASCII characters")
    return text


def said_in_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Of a request's headers, those that are a part of what it asks for: how its body is read, what a message has
    beside its body, and of which state a change is meant. Their names are in lower case."""
    return sorted((name, value) for name, value in headers if name in _SAID or name.startswith(OWN_PREFIX))


def digest_of(asked: bytes, body: bytes) -> bytes:
    """Of a request. `asked`: what it says beside its body."""
    digest = hashlib.sha256(asked)
    digest.update(body)
    return digest.digest()


class KeptAnswers:
    def __init__(self) -> None:
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._shares: dict[str, _Share] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes, about."""
        return self._size

    def begin(self, key: Key, digest: bytes, now_s: float) -> KeptAnswer | None:
        """The answer to the same request, which has the same digest; None: it is to be carried out, and `keep` or
        `forget` follows.

        Raises:
            Problem: IDEMPOTENCY_CONFLICT, IDEMPOTENCY_BUSY.
        """
        self._expire(now_s)
        entry = self._entries.get(key)
        if entry is not None and entry.answer is not None and entry.until_s <= now_s:
            self.forget(key)
            entry = None
        if entry is None:
            self._put(key, _Entry(digest, now_s + KEPT_S), now_s)
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

    def _expire(self, now_s: float) -> None:
        """Some, which are more than one request adds: thousands at once would hold the loop."""
        for _ in range(min(EXPIRED_AT_ONCE, len(self._entries))):
            key, entry = next(iter(self._entries.items()))
            if entry.until_s > now_s:
                return
            if entry.answer is None:
                # It may still be carried out, and a second one must not be.
                entry.until_s = now_s + KEPT_S
                self._entries.move_to_end(key)
            else:
                self.forget(key)

    def keep(self, key: Key, answer: KeptAnswer, now_s: float) -> None:
        entry = self._entries.get(key)
        size_max = ANSWER_BYTES_MAX if answer.status < 400 else REFUSAL_BYTES_MAX
        if entry is None or answer.size > size_max:
            self.forget(key)
            return
        entry.answer = answer
        self._grow(key, answer.size)
        self._make_room(now_s)

    def forget(self, key: Key) -> None:
        """The request was not carried out."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._grow(key, -entry.size)
        share = self._shares[key[0]]
        del share.keys[key]
        if not share.keys:
            del self._shares[key[0]]

    def _put(self, key: Key, entry: _Entry, now_s: float) -> None:
        self._entries[key] = entry
        self._shares.setdefault(key[0], _Share()).keys[key] = None
        self._grow(key, entry.size)
        self._make_room(now_s)

    def _grow(self, key: Key, size: int) -> None:
        self._size += size
        self._shares[key[0]].size += size

    def _make_room(self, now_s: float) -> None:
        """Of requests that are under way nothing is forgotten: the second one would be carried out, too."""
        while self._size > KEPT_BYTES_MAX or len(self._entries) > KEPT_MAX:
            first, entry = next(iter(self._entries.items()))
            if entry.answer is not None and entry.until_s <= now_s:
                self.forget(first)
                continue
            shares = sorted(self._shares.values(), key=lambda share: share.size, reverse=True)
            oldest = next((key for share in shares for key in share.keys if self._entries[key].answer), None)
            if oldest is None:
                return
            self.forget(oldest)
