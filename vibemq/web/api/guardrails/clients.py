"""Where a request comes from, also through proxies, and whether this name of the broker may be used. Pure."""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers

from vibemq.auth.addresses import is_loopback
from vibemq.web.api.errors import HttpCode, Problem
from vibemq.web.hosts import AllowedHosts

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Proxies:
    """Args:
    trusted: addresses and networks whose X-Forwarded-For and X-Forwarded-Proto count.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = [ipaddress.ip_network(text, strict=False) for text in trusted]

    def client_of(self, peer: str, headers: Headers) -> str:
        """The nearest address that is no trusted proxy."""
        address = peer
        if self._trusted and self._is_trusted(peer):
            for hop in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
                hop = hop.strip()
                if not _is_address(hop):
                    break
                address = hop
                if not self._is_trusted(hop):
                    break
        return address

    def is_secure(self, scheme: str, peer: str, headers: Headers) -> bool:
        """Whether the browser speaks TLS."""
        if scheme == "https":
            return True
        return self._is_trusted(peer) and headers.get("x-forwarded-proto", "").strip().lower() == "https"

    def _is_trusted(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self._trusted)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


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
