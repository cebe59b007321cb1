"""Who a request comes from: a session's cookie, `Authorization: Bearer` or `Basic`, or nobody on an open broker."""

import base64
import binascii
import hmac
import os
from collections import OrderedDict
from dataclasses import replace

from starlette.requests import Request

from vibemq.auth.users import ANONYMOUS
from vibemq.errors import AuthFailed, AuthRequired
from vibemq.model.access import Principal
from vibemq.web.api.services import ApiServices, Asker
from vibemq.web.api.sessions import WebSessions, cookie_in

REMEMBERED_S = 60.0
REMEMBERED_MAX = 1_000
CHALLENGES = ('Bearer realm="vibemq"', 'Basic realm="vibemq", charset="UTF-8"')
BROWSER_CHALLENGES = CHALLENGES[:1]
"""A browser would answer to Basic with a window of its own."""


class Credentials:
    """Args:
    token: what the broker without users asks for (`http.token`); None: nothing.
    """

    def __init__(self, services: ApiServices, sessions: WebSessions, token: str | None) -> None:
        self._services = services
        self._sessions = sessions
        self._key = os.urandom(32)
        self._remembered: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        """Names with passwords that were right a moment ago, under a keyed hash."""
        self.token: str | None = None
        self._anybody = ANONYMOUS
        self.change_token(token)

    def change_token(self, token: str | None) -> bool:
        """Whether it is another one; then whoever has brought the one before is in no more."""
        if token == self.token:
            return False
        self.token = token
        self._remembered.clear()
        credential = b"" if token is None else hmac.digest(self._key, token.encode(), "sha256")
        self._anybody = replace(ANONYMOUS, credential=credential)
        return True

    @property
    def open(self) -> bool:
        """Whether everybody may do everything."""
        return not self._services.accounts.enabled and self.token is None

    async def asker(self, request: Request, host: str, request_id: str) -> Asker:
        """Raises AuthError, RateLimited."""
        authorization = request.headers.get("authorization")
        if authorization is not None:
            # Whoever brings both gets no second chance with the cookie.
            return Asker(await self._authorized(authorization, host, request_id), host, request_id)
        cookie = cookie_in(request.headers.get("cookie", ""))
        if cookie:
            session = self._sessions.find(cookie, self._services.now_s)
            if session is not None:
                return Asker(session.principal, host, request_id, session=session.digest)
        if self.open:
            return Asker(self._anybody, host, request_id)
        if cookie:
            raise AuthRequired("the session has ended; log in again")
        raise AuthRequired("this broker asks for a login, an access token (Bearer) or a user name and password (Basic)")

    async def _authorized(self, authorization: str, host: str, request_id: str) -> Principal:
        scheme, _, value = authorization.partition(" ")
        match scheme.lower():
            case "bearer":
                return await self.log_in(host, request_id, token=value.strip())
            case "basic":
                return await self._basic(value.strip(), host, request_id)
        raise AuthFailed("the header Authorization must be Bearer with a token, or Basic with a user name and password")

    async def log_in(
        self, host: str, request_id: str, *, user: str = "", password: str = "", token: str = ""
    ) -> Principal:
        """Raises AuthError, RateLimited."""
        if not self._services.accounts.enabled and self.token is not None:
            given, wanted = (token or password).encode(errors="surrogatepass"), self.token.encode()
            self._services.logins.check_secret(
                host,
                request_id,
                lambda: hmac.compare_digest(given, wanted),
                "the token is not valid; it is http.token of the broker's settings",
            )
            return self._anybody
        return await self._services.logins.log_in(host, request_id, user, password, token)

    async def _basic(self, value: str, host: str, request_id: str) -> Principal:
        try:
            user, colon, password = base64.b64decode(value, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            colon = ""
        if not colon:
            raise AuthFailed("the header Authorization: Basic cannot be read; it is base64 of NAME:PASSWORD in UTF-8")
        digest = hmac.digest(self._key, f"{user}:{password}".encode(errors="surrogatepass"), "sha256")
        now_s = self._services.now_s
        principal, until = self._remembered.get(digest, (None, 0.0))
        if principal is not None and now_s < until and self._is_current(principal):
            # Each request is a login of its own: who changes the own password keeps one of them, and no other.
            return replace(principal)
        self._remembered.pop(digest, None)
        principal = await self.log_in(host, request_id, user=user, password=password)
        if len(self._remembered) >= REMEMBERED_MAX:
            self._remembered.popitem(last=False)
        self._remembered[digest] = (principal, now_s + REMEMBERED_S)
        return principal

    def _is_current(self, principal: Principal) -> bool:
        """Whether its password is the one of today: a request is a login of its own, and no connection that a change of
        the password has left open."""
        accounts, now = self._services.accounts, self._services.now()
        return accounts.is_current(principal, now) if accounts.enabled else not self.why_ended(principal)

    def why_ended(self, principal: Principal) -> str:
        """ "" while the login counts."""
        accounts = self._services.accounts
        if not accounts.enabled and not hmac.compare_digest(principal.credential, self._anybody.credential):
            return "http.token was changed; log in with the one of today"
        return accounts.ended(principal, self._services.now())
