"""What the endpoints of one broker's API share."""

from collections.abc import Callable
from dataclasses import dataclass

from vibemq.web.api.credentials import Credentials
from vibemq.web.api.guardrails.clients import Proxies
from vibemq.web.api.services import ApiServices
from vibemq.web.api.sessions import WebSessions


@dataclass(slots=True, kw_only=True)
class ApiState:
    services: ApiServices
    sessions: WebSessions
    credentials: Credentials
    proxies: Proxies
    description: Callable[[], bytes] = bytes
    """The OpenAPI description, made when it is asked for the first time."""
