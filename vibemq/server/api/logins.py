"""Logins over HTTP, through the queue, the back-off and the audit log of all protocols."""

from collections.abc import Callable

from vibemq.model.access import Principal
from vibemq.protocols.session import Authenticate
from vibemq.server.access.audit import AuditLog
from vibemq.server.access.authenticator import Authenticator
from vibemq.server.access.direct_login import log_in
from vibemq.web.api.services import PROTOCOL, Asker


class ApiLogins:
    def __init__(self, authenticator: Authenticator, audit: AuditLog) -> None:
        self._authenticator = authenticator
        self._audit = audit

    async def log_in(self, host: str, request_id: str, user: str, password: str, token: str) -> Principal:
        """Raises AuthError, RateLimited."""
        request = Authenticate(None, user, password, token)
        return await log_in(self._authenticator, request, host=host, connection_id=request_id, protocol=PROTOCOL)

    def check_secret(self, host: str, request_id: str, is_right: Callable[[], bool], refusal: str) -> None:
        """Raises AuthFailed."""
        self._authenticator.check_secret(host, request_id, is_right, refusal)

    def logged_in(self, asker: Asker) -> None:
        self._audit.session(asker, asker.principal, "session.begun")

    def logged_out(self, asker: Asker, *, everywhere: bool) -> None:
        self._audit.session(asker, asker.principal, "session.all_ended" if everywhere else "session.ended")
