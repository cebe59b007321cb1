"""Logins of those who are no peers, such as requests over HTTP: through the same queue, the same back-off and the same
audit log as everybody's."""

import asyncio
from collections.abc import Callable
from typing import Any

from vibemq.errors import AuthFailed, VibeMQError
from vibemq.model.commands import Command
from vibemq.protocols.session import Authenticate, Principal
from vibemq.server.access.authenticator import Authenticator
from vibemq.server.commit.release_order import told_to_nobody


class _Login:
    """Stands in for a peer and for its session while one login is checked."""

    number = 0
    certified: tuple[str, ...] = ()
    pending = 0
    leaving = False
    busy = False
    ending = False

    def __init__(self, host: str, connection_id: str, protocol: str) -> None:
        self.host = host
        self.connection_id = connection_id
        self.protocol = protocol
        self.principal: Principal | None = None
        self.wake: Callable[[], None] = told_to_nobody
        self.parted = False
        """Nobody waits for the answer any more."""
        self.answer: asyncio.Future[Principal] = asyncio.get_running_loop().create_future()

    @property
    def session(self) -> "_Login":
        return self

    def authenticated(self, token: Any, principal: Principal) -> None:
        self.principal = principal
        if not self.answer.done():
            self.answer.set_result(principal)

    def refused(self, token: Any, error: VibeMQError) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def tick(self, now: int) -> None:
        """There is nothing that would be due."""

    def process(self) -> None:
        """Nothing was asked behind the login."""

    def decide(self, commands: list[Command]) -> None:
        """It has no subscriptions that could be ended."""

    def goodbye(self, reason: str) -> None:
        self.refuse_later(reason)

    def dismiss(self, reason: str) -> None:
        self.refuse_later(reason)

    def refuse_later(self, reason: str) -> None:
        """Its users changed while the password was checked: whoever takes the principal asks `Accounts.ended`."""
        self.principal = None

    def failed(self, error: Exception) -> None:
        self.refused(None, VibeMQError("the broker could not check the credentials; its log has the reason"))


async def log_in(
    authenticator: Authenticator, request: Authenticate, *, host: str, connection_id: str, protocol: str
) -> Principal:
    """Who these credentials stand for.

    Raises:
        AuthError, RateLimited: `wait_s` of the error says how long nothing is checked, if there is such a wait.
    """
    login = _Login(host, connection_id, protocol)
    authenticator.authenticate(login, request)
    try:
        await login.answer
        if login.principal is None:
            raise AuthFailed("the user was changed meanwhile; log in again")
        return login.principal
    finally:
        login.parted = True
        # It keeps a refusal, whose traceback has this frame: only the cycle collector would free them.
        del login
