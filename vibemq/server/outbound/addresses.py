"""Which addresses the broker calls. Pure.

Only those of the public internet, and the networks that the operator lists. Everything else belongs to the machine, to
the network it stands in, or to nobody: there are services there that trust whoever can reach them.
"""

import ipaddress
from collections.abc import Iterable, Sequence

from vibemq.errors import OutboundRefused
from vibemq.server.outbound.targets import Address

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_NOT_PUBLIC_V4 = tuple(
    (ipaddress.IPv4Network(network), what)
    for network, what in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "a private network"),
        ("100.64.0.0/10", "a provider's inner network, or metadata of a cloud"),
        ("127.0.0.0/8", "this machine"),
        ("168.63.129.16/32", "metadata of a cloud"),
        ("169.254.0.0/16", "link-local, or metadata of a cloud"),
        ("172.16.0.0/12", "a private network"),
        ("192.0.0.0/24", "reserved, or metadata of a cloud"),
        ("192.0.2.0/24", "reserved for documentation"),
        ("192.31.196.0/24", "reserved"),
        ("192.52.193.0/24", "reserved"),
        ("192.88.99.0/24", "a relay to IPv6"),
        ("192.168.0.0/16", "a private network"),
        ("192.175.48.0/24", "reserved"),
        ("198.18.0.0/15", "reserved for measurements"),
        ("198.51.100.0/24", "reserved for documentation"),
        ("203.0.113.0/24", "reserved for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved, or broadcast"),
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
_NOT_PUBLIC_V6 = tuple(
    (ipaddress.IPv6Network(network), what)
    for network, what in (
        ("::/128", "this host"),
        ("::1/128", "this machine"),
        ("::ffff:0:0/96", "an IPv4 address in the form of an IPv6 address"),
        ("64:ff9b::/96", "an IPv4 address behind a NAT64"),
        ("64:ff9b:1::/48", "an IPv4 address behind a NAT64"),
        ("2001::/23", "reserved, or an IPv4 address behind Teredo"),
        ("2001:db8::/32", "reserved for documentation"),
        ("2002::/16", "an IPv4 address behind 6to4"),
        ("3fff::/20", "reserved for documentation"),
        ("fc00::/7", "a private network, or metadata of a cloud"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "a private network"),
        ("ff00::/8", "multicast"),
    )
)


def why_not_public(address: Address) -> str:
    """What the address is instead; "" for one of the public internet."""
    if isinstance(address, ipaddress.IPv4Address):
        return next((what for network, what in _NOT_PUBLIC_V4 if address in network), "")
    if address.scope_id is not None:
        return "an address with a zone"
    found = next((what for network, what in _NOT_PUBLIC_V6 if address in network), "")
    return found or ("" if address in _PUBLIC_V6 else "not an address of the public internet")


def check_addresses(host: str, addresses: Iterable[Address], allowed: Sequence[Network]) -> None:
    """All that a host has must be callable: which of them a connection takes is nobody's choice.

    Raises:
        OutboundRefused: one is neither public nor in a network of `allowed`.
    """
    for address in addresses:
        if any(address in network for network in allowed):
            continue
        what = why_not_public(address)
        if what:
            of_host = "" if str(address) == host else f" of the host {host[:80]!r}"
            raise OutboundRefused(
                f"the address {address}{of_host} is not called: it is {what}; an operator can "
                "add its network to push_allowed_networks in the settings of the listener"
            )
