"""What the endpoints of one broker's API share."""

from collections.abc import Callable
from dataclasses import dataclass, field

from vibemq.model.access import Principal
from vibemq.web.api.credentials import Credentials
from vibemq.web.api.guardrails.login_codes import LoginCodes
from vibemq.web.api.messages.door import MessageDoor
from vibemq.web.api.services import ApiServices, Asker
from vibemq.web.api.sessions import WebSessions
from vibemq.web.api.streams.hub import EventHub
from vibemq.web.api.streams.newest import TailedQueues
from vibemq.web.api.streams.stream import OpenStreams
from vibemq.web.proxies import Proxies


@dataclass(slots=True, kw_only=True)
class ApiState:
    services: ApiServices
    sessions: WebSessions
    credentials: Credentials
    proxies: Proxies
    door: MessageDoor
    hub: EventHub
    tailed: TailedQueues
    streams: OpenStreams
    codes: LoginCodes = field(default_factory=LoginCodes)
    show_bodies: str = "all"
    """`all`, `superuser` or `none`."""
    description: Callable[[], bytes] = bytes
    """The OpenAPI description, made when it is asked for the first time."""

    def why_ended(self, asker: Asker) -> str:
        """Why what takes longer may not go on: the login does not count any more, or the session has ended; "" = it
        may."""
        if asker.session and self.sessions.of_digest(asker.session) is None:
            return "the session has ended; log in again"
        return self.credentials.why_ended(asker.principal)

    def hides_bodies(self, principal: Principal) -> bool:
        """Whether the principal is shown nothing of what is in messages."""
        if self.show_bodies == "superuser":
            return not self.services.accounts.policy.is_superuser(principal)
        return self.show_bodies == "none"
