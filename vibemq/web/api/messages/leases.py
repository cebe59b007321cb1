"""Leases: what stands for a message that was fetched and not settled. A lease is a text that nobody else can make; it
is worth something to the principal that fetched, until its time is over or the broker ends. Pure.

    run        8 bytes   of the run of the broker that made it
    session    u64 BE    of the engine
    consumer   u64 BE    the fetch
    sequence   u64 BE
    principal  8 bytes   keyed hash of who fetched
    seal       16 bytes  keyed hash of all before

base64url, without padding.
"""

import base64
import binascii
import hashlib
import hmac
import struct
from typing import NamedTuple

from vibemq.errors import InvalidPayload, NotAuthorized
from vibemq.model.access import Principal
from vibemq.web.api.errors import HttpCode, Problem

_BODY = struct.Struct("!8sQQQ8s")
_SEAL_BYTES = 16
_SIZE = _BODY.size + _SEAL_BYTES
MARKS_MAX = 1_000
LEASE_MAX = 128
"""Characters that are looked at."""


class Lease(NamedTuple):
    session: int
    consumer: int
    """Of the session: one for each fetch."""
    sequence: int


class PrincipalKey(NamedTuple):
    user: str
    token_id: str
    since: int


class LeaseSeal:
    """Args:
    key, run: random bytes, made at the start of the broker.
    """

    def __init__(self, key: bytes, run: bytes) -> None:
        self._key = key
        self._run = run[:8]
        self._marks: dict[PrincipalKey, bytes] = {}
        """Of those who have asked lately."""

    def seal(self, lease: Lease, principal: Principal) -> str:
        body = _BODY.pack(self._run, *lease, self._mark(principal))
        return base64.urlsafe_b64encode(body + self._hash(body)).rstrip(b"=").decode()

    def open(self, text: str, principal: Principal) -> Lease:
        """
        Raises:
            InvalidPayload: it was not made by a broker, or was changed.
            Problem (LEASE_GONE): it was made before the broker was started.
            NotAuthorized: somebody else fetched the message.
        """
        raw = _decoded(text)
        body, seal = raw[: _BODY.size], raw[_BODY.size :]
        run, session, consumer, sequence, mark = _BODY.unpack(body)
        if run != self._run:
            raise gone("the lease was made before the broker was started; its message is handed out again")
        if not hmac.compare_digest(seal, self._hash(body)):
            raise _changed()
        if not hmac.compare_digest(mark, self._mark(principal)):
            raise NotAuthorized("the lease belongs to another user; only who has fetched a message may settle it")
        return Lease(session, consumer, sequence)

    def _mark(self, principal: Principal) -> bytes:
        key = key_of(principal)
        mark = self._marks.get(key)
        if mark is None:
            if len(self._marks) >= MARKS_MAX:
                self._marks.clear()
            named = "\0".join(map(str, key)).encode(errors="surrogatepass")
            mark = self._marks[key] = hashlib.blake2b(named, digest_size=8, key=self._key).digest()
        return mark

    def _hash(self, body: bytes) -> bytes:
        return hashlib.blake2b(body, digest_size=_SEAL_BYTES, key=self._key, person=b"lease").digest()


def key_of(principal: Principal) -> PrincipalKey:
    """Two of the same key are the same to leases, sessions and kept answers: a user, or one access token of it. Not
    somebody else who had the name before."""
    return PrincipalKey(principal.name, principal.token_id, principal.since)


def gone(why: str) -> Problem:
    return Problem(HttpCode.LEASE_GONE, why)


def _decoded(text: str) -> bytes:
    try:
        raw = base64.b64decode(text[:LEASE_MAX] + "=" * (-len(text[:LEASE_MAX]) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _changed() from None
    # Bits that do not count would make many texts of one lease.
    if len(raw) != _SIZE or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != text:
        raise _changed()
    return raw


def _changed() -> InvalidPayload:
    return InvalidPayload("this is no lease, or it was changed; send it as the fetch has answered it")
