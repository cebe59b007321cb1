"""Which URLs the broker calls, as far as the text of a URL tells. Pure.

Whoever may subscribe a URL must not make the broker speak to machines that only the broker can reach. Every form of a
URL that two readers may understand differently is refused, so that what is checked is what is called.
"""

import ipaddress
import re
from dataclasses import dataclass

from vibemq.errors import OutboundRefused

URL_CHARACTERS_MAX = 2_048
WELL_KNOWN_PORTS = frozenset((80, 443))
"""Of the ports that belong to services of the system (below 1,024), those of the web."""
SHOWN_MAX = 80
"""Characters of a refused URL in the sentence."""

_SCHEME = re.compile(r"(https?)://", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.IGNORECASE)
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)", re.IGNORECASE)
_ALLOWED = re.compile(r"[!-~]+")
"""Printable ASCII: what else there is must be escaped, and a host name be written in its xn-- form."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Target:
    """A URL that may be called, if its addresses may."""

    url: str
    secure: bool
    host: str
    """A name, or an address without brackets."""
    port: int
    path: str
    """With the query."""
    authority: str
    """As it stands in the header Host."""
    address: Address | None
    """None: the host is a name."""


def parse_target(url: str) -> Target:
    """Raises OutboundRefused, with a sentence."""
    if not 0 < len(url) <= URL_CHARACTERS_MAX:
        raise OutboundRefused(
            f"the URL is not called: it must have 1 to {URL_CHARACTERS_MAX:,} characters, and has {len(url):,}"
        )
    if _ALLOWED.fullmatch(url) is None or "\\" in url:
        raise _refused(url, "has characters that a URL cannot hold; escape them, and write the host in its xn-- form")
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise _refused(url, "does not begin with http:// or https://")
    authority, path = _split(url[scheme.end() :])
    if "#" in path or "#" in authority:
        raise _refused(url, "has a fragment (#), which is never sent to a server; leave it out")
    if "@" in authority:
        raise _refused(url, "holds credentials or an @ before the host; leave them out")
    secure = scheme.group(1).lower() == "https"
    host, port = _host_and_port(url, authority, 443 if secure else 80)
    address = _address(url, host)
    return Target(url, secure, host.lower(), port, path, authority.lower(), address)


def _split(rest: str) -> tuple[str, str]:
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    path = rest[end:]
    return rest[:end], path if path.startswith("/") else "/" + path


def _host_and_port(url: str, authority: str, default: int) -> tuple[str, int]:
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise _refused(url, "has an address in brackets that is not followed by a port or the path")
        if ":" not in host:
            raise _refused(url, "has something in brackets that is no IPv6 address")
        text = rest[1:] if rest else None
    else:
        host, colon, after = authority.partition(":")
        text = after if colon else None
    if not host:
        raise _refused(url, "names no host")
    if text is None:
        return host, default
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and 1 <= int(text) <= 65_535):
        raise _refused(url, "has a port that is not a number from 1 to 65535")
    port = int(text)
    if port < 1_024 and port not in WELL_KNOWN_PORTS:
        raise _refused(url, f"names port {port}, which belongs to another service; use 80, 443 or one from 1024 up")
    return host, port


def _address(url: str, host: str) -> Address | None:
    if "%" in host:
        raise _refused(url, "has a % in its host; write the host plainly, and an address without a zone")
    if ":" in host:
        try:
            return ipaddress.IPv6Address(host)
        except ValueError:
            raise _refused(url, "has an IPv6 address that cannot be read") from None
    if host.endswith("."):
        raise _refused(url, "has a host that ends with a dot; leave the dot out")
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refused(url, "has a host that is neither a name nor an address")
    if _NUMBER.fullmatch(labels[-1]) is None:
        return None
    try:
        return ipaddress.IPv4Address(host)
    except ValueError:
        why = "has a number for a host; write an IPv4 address as four decimal numbers without leading zeros"
        raise _refused(url, why) from None


def _refused(url: str, why: str) -> OutboundRefused:
    shown = url if len(url) <= SHOWN_MAX else url[:SHOWN_MAX] + "…"
    return OutboundRefused(f"the URL {shown!r} is not called: it {why}")
