"""Requests that a page of another site has had a browser make: here a link or a form can change something. Pure."""

from collections.abc import Mapping

FOREIGN = "a browser has been told to ask this by a page of another site; ask with a program"


def comes_from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Browsers say where a request comes from: in Sec-Fetch-Site, to addresses that they trust, else in Origin. Whoever
    says neither is no browser."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None:
        return site not in ("same-origin", "none")
    if origin is None:
        return False
    host = origin.partition("://")[2].lower()
    return not host or host != headers.get("host", "").lower()
