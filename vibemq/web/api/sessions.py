"""Sessions of browsers: who has logged in, under a cookie of 256 random bits of which only the hash is kept. They are
kept in memory: after a restart of the broker people log in again. Pure: the caller brings the time and the secrets."""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass

from vibemq.model.access import Principal

SESSIONS_MAX = 1_000
SESSIONS_OF_USER_MAX = 20
"""Begun with the password; and so many with all access tokens of the user together."""
COOKIE = "vibemq_session"
SECURE_COOKIE = "__Secure-vibemq_session"
"""Browsers take a cookie of this name over TLS only."""


@dataclass(slots=True)
class WebSession:
    """One login of one browser."""

    digest: str
    principal: Principal
    begun_s: float
    used_s: float
    ended: str = ""
    """Why it has ended; "" while it has not."""


def digest_of(cookie: str) -> str:
    return hashlib.sha256(cookie.encode(errors="surrogatepass")).hexdigest()


class WebSessions:
    """Args:
    why_ended: the reason why a principal may not go on; "" = it may.
    """

    def __init__(self, why_ended: Callable[[Principal], str], *, idle_s: float, most_s: float) -> None:
        self._why_ended = why_ended
        self.idle_s = idle_s
        self.most_s = most_s
        self._sessions: OrderedDict[str, WebSession] = OrderedDict()
        """By digest, the one that was idle for the longest time first."""
        self._by_user: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, cookie: str, principal: Principal, now_s: float) -> WebSession:
        """`cookie`: a new secret. Of too many sessions the one that was idle for the longest time ends."""
        self._end_expired(now_s)
        while len(alike := self._begun_like(principal)) >= SESSIONS_OF_USER_MAX:
            counts = Counter(alike.values())
            most = max(counts.values())
            crowded = (digest for digest in self._sessions if digest in alike and counts[alike[digest]] == most)
            self._end(next(crowded), "too many sessions of the user")
        while len(self._sessions) >= SESSIONS_MAX:
            self._end(next(iter(self._sessions)), "too many sessions")
        session = WebSession(digest_of(cookie), principal, now_s, now_s)
        self._sessions[session.digest] = session
        self._by_user.setdefault(principal.name, set()).add(session.digest)
        return session

    def _begun_like(self, principal: Principal) -> dict[str, str]:
        """Sessions of the user, by digest, with the id of the access token that they were begun with. Whoever has a
        token, which may be for very little, ends no session of the password, nor those of tokens that have fewer."""
        tokens = {digest: self._sessions[digest].principal.token_id for digest in self._by_user.get(principal.name, ())}
        return {digest: token for digest, token in tokens.items() if bool(token) == bool(principal.token_id)}

    def find(self, cookie: str, now_s: float) -> WebSession | None:
        """The session of a cookie, which is used by that."""
        digest = digest_of(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        reason = self._reason(session, now_s)
        if reason:
            self._end(digest, reason)
            return None
        self.touch(digest, now_s)
        return session

    def touch(self, digest: str, now_s: float) -> None:
        """A session that has not ended is used: by a request, or by a stream that is read."""
        self._sessions[digest].used_s = now_s
        self._sessions.move_to_end(digest)

    def of_digest(self, digest: str) -> WebSession | None:
        """The same for whoever was told which session it is."""
        return self._sessions.get(digest)

    def end(self, digest: str, reason: str = "logged out") -> None:
        if digest in self._sessions:
            self._end(digest, reason)

    def end_all_of(self, user: str, reason: str = "logged out everywhere", *, token_id: str = "") -> int:
        """How many there were. `token_id`: only those that were begun with this access token."""
        digests = [
            digest
            for digest in self._by_user.get(user, ())
            if not token_id or self._sessions[digest].principal.token_id == token_id
        ]
        for digest in digests:
            self._end(digest, reason)
        return len(digests)

    def end_revoked(self, users: Collection[str]) -> None:
        """Of these users, those whose login does not count any more."""
        for user in users if len(users) < len(self._by_user) else list(self._by_user):
            if user not in users:
                continue
            for digest in list(self._by_user.get(user, ())):
                reason = self._why_ended(self._sessions[digest].principal)
                if reason:
                    self._end(digest, reason)

    def end_every(self, reason: str) -> None:
        for digest in list(self._sessions):
            self._end(digest, reason)

    def tidy(self, now_s: float) -> None:
        """End what is over by time. Called about once a second."""
        self._end_expired(now_s)
        for digest in [digest for digest, one in self._sessions.items() if now_s - one.begun_s >= self.most_s]:
            self._end(digest, "the session has reached its longest time")

    def _end_expired(self, now_s: float) -> None:
        while self._sessions:
            session = next(iter(self._sessions.values()))
            if now_s - session.used_s < self.idle_s:
                return
            self._end(session.digest, "the session was idle for too long")

    def _reason(self, session: WebSession, now_s: float) -> str:
        if now_s - session.used_s >= self.idle_s:
            return "the session was idle for too long"
        if now_s - session.begun_s >= self.most_s:
            return "the session has reached its longest time"
        return self._why_ended(session.principal)

    def _end(self, digest: str, reason: str) -> None:
        session = self._sessions.pop(digest)
        session.ended = reason
        own = self._by_user[session.principal.name]
        own.discard(digest)
        if not own:
            del self._by_user[session.principal.name]


def cookie_header(value: str, *, secure: bool) -> str:
    """No Path: the browser then sends it to the API alone, whatever prefix a proxy has put before it."""
    name = SECURE_COOKIE if secure else COOKIE
    return f"{name}={value}; HttpOnly; SameSite=Strict" + ("; Secure" if secure else "")


def cookie_gone_headers(*, secure: bool) -> list[str]:
    return [cookie_header("", secure=secure) + "; Max-Age=0"]


def cookie_in(header: str) -> str:
    """The session's cookie of a Cookie header; "" when there is none. A secure one counts before the other."""
    found = {}
    for part in header.split(";"):
        name, _, value = part.strip().partition("=")
        if name in (COOKIE, SECURE_COOKIE) and name not in found:
            found[name] = value.strip('"')
    return found.get(SECURE_COOKIE) or found.get(COOKIE) or ""
