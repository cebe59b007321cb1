"""Names and addresses of peers: which stand for this machine and nothing else, and which count as one. Pure."""

import ipaddress
import re
from functools import lru_cache

_LOOPBACK_NAME = re.compile(r"(.*\.)?localhost\.?", re.IGNORECASE)


def is_loopback(host: str) -> bool:
    address = address_of(host)
    return address.is_loopback if address is not None else _LOOPBACK_NAME.fullmatch(host) is not None


def address_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """None: it is a name."""
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None


@lru_cache(maxsize=4096)
def network_of(host: str) -> str | None:
    """What counts as one peer: an IPv4 address or an IPv6 /64; None for loopback and what is no address."""
    address = address_of(host)
    if address is None:
        return None
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False).network_address)
    return None if address.is_loopback else str(address)
