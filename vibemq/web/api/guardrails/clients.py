"""Whether a broker that lets everybody in may be asked, and under this name. Pure."""

from collections.abc import Sequence

from starlette.datastructures import Headers

from vibemq.auth.addresses import is_loopback
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.hosts import AllowedHosts


class OpenBrokerRules:
    """What holds while everybody may do everything: beyond this machine the API is closed, and no page whose name was
    made to resolve to this machine may read it.

    Args:
        listener: the host that the HTTP port is bound to.
    """

    def __init__(self, listener: str, allowed: Sequence[str] | None, *, allow_unauthenticated: bool) -> None:
        self._closed = not is_loopback(listener) and not allow_unauthenticated
        self._hosts = AllowedHosts(listener, allowed or (), needs_token=False)

    def check(self, headers: Headers) -> None:
        """Raises Problem: OPEN_BROKER, UNKNOWN_HOST."""
        if self._closed:
            raise Problem(
                HttpCode.OPEN_BROKER,
                "this broker lets everybody in without a password, and its HTTP port is open to the network, so the "
                "API is closed; add users (auth.superuser and auth.superuser_password), or bind http.host to "
                "127.0.0.1, or set http.allow_unauthenticated = true",
            )
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not hosts[0] or "@" in hosts[0] or not self._hosts.allows(hosts[0]):
            raise Problem(
                HttpCode.UNKNOWN_HOST,
                "this name is not one of the broker's; use localhost or an address, or add it to http.allowed_hosts",
            )
