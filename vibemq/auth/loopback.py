"""Which names and addresses stand for this machine and nothing else. Pure."""

import ipaddress
import re

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
