"""Requests that a page of another origin has had a browser make. Pure."""

from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from vibemq.web.api.errors import HttpCode, Problem

SAFE = frozenset(("GET", "HEAD", "OPTIONS"))


def check_origin(method: str, headers: Headers, *, has_cookie: bool, secure: bool) -> None:
    """Browsers say where a request comes from: in Sec-Fetch-Site, to addresses that they trust, else in Origin. Whoever
    says neither is no browser, and brings no cookie.

    `secure`: whether the browser speaks TLS: the page of the other scheme has another origin.

    Raises:
        Problem: CROSS_ORIGIN.
    """
    site = headers.get("sec-fetch-site")
    if method in SAFE:
        if site == "cross-site":
            raise _foreign("a page of another site has asked for it")
        return
    if site is not None:
        if site not in ("same-origin", "none"):
            raise _foreign(f"the browser says that it comes from elsewhere (Sec-Fetch-Site: {site[:20]!r})")
        return
    origin = headers.get("origin")
    if origin is not None:
        if not _is_own(origin, headers.get("host", ""), "https" if secure else "http"):
            raise _foreign(
                "the header Origin names another server or scheme than the request was sent to, as also happens where "
                "a proxy does not pass on the header Host"
            )
    elif has_cookie:
        raise _foreign(
            "it brings a cookie, and says neither in Sec-Fetch-Site nor in Origin where it comes from",
            "programs send the header Authorization in place of a cookie",
        )


def check_content_type(headers: Headers, consumes: Collection[str], *, has_body: bool) -> None:
    """No form of a page can send one of these types.

    Raises:
        Problem: UNSUPPORTED_MEDIA_TYPE.
    """
    given = headers.get("content-type")
    if given is None and not has_body:
        return
    if given is None or given.partition(";")[0].strip().lower() not in consumes:
        raise Problem(
            HttpCode.UNSUPPORTED_MEDIA_TYPE,
            f"the content type of the body must be {' or '.join(consumes)}; set the header Content-Type",
            headers={"Accept": ", ".join(consumes)},
        )
    if "content-encoding" in headers:
        raise Problem(HttpCode.UNSUPPORTED_MEDIA_TYPE, "the body must not be compressed; leave Content-Encoding out")


def _is_own(origin: str, host: str, scheme: str) -> bool:
    try:
        parts = urlsplit(origin)
        return bool(host) and (parts.scheme, parts.netloc.lower()) == (scheme, host.lower())
    except ValueError:
        return False


def _foreign(why: str, remedy: str = "use the console of this broker, or a program") -> Problem:
    return Problem(HttpCode.CROSS_ORIGIN, f"the request was refused, because {why}; {remedy}")
