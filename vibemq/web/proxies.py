"""Where a request comes from, also through proxies. Pure."""

import ipaddress
from collections.abc import Sequence

from starlette.datastructures import Headers


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
