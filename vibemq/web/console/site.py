"""The console as an application of ASGI.

    /, /console         303 to ./console/          /console/v/<version>/…   assets, to be kept for ever
    /console/<page>     a page, with an ETag       anything else            404, as a page

Pages hold no data, so they are open to everybody: the API asks who it is. All URLs are relative, so a proxy may put
the console below any path of its own.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers

from vibemq._version import __version__
from vibemq.web.console.files import TYPES, Asset, read_assets, read_page, read_refusal
from vibemq.web.console.pages import PAGES
from vibemq.web.limits import Receive, Scope, Send

CONTENT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
PREFIX = "/console"
ROOT = "/"
"""Of the port."""
TO_CONSOLE = {"location": "./console/", "cache-control": "no-cache", "content-length": "0"}
ALLOWED = ("GET", "HEAD")
FOR_EVER = "public, max-age=31536000, immutable"
ASSETS_PREFIX = f"/v/{__version__}/"

NO_PAGE = (
    "No such page",
    "The console has no page with this address. It may be a page of another version of the broker.",
)

Refusal = tuple[int, str]
"""Status and sentence."""


class ConsoleSite:
    """Reads its files at the first request: a broker whose console nobody opens pays nothing for it."""

    def __init__(self) -> None:
        self.refusal: Callable[[Headers], Refusal | None] = lambda headers: None
        """Of requests to a broker that is open to everybody."""
        self._pages: dict[str, Asset] = {}
        self._assets: dict[str, Asset] = {}
        self._missing = Asset(b"", "text/plain")
        self._reading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        if not self._pages:
            async with self._reading:
                if not self._pages:
                    await asyncio.to_thread(self._read)
        headers = Headers(scope=scope)
        refused = self.refusal(headers)
        if refused is not None:
            await _refuse(send, str(scope["method"]), *refused, as_page="text/html" in headers.get("accept", ""))
            return
        path = str(scope["path"])
        if path == ROOT:
            # Whatever the method: load balancers look there whether a server answers.
            await _send(send, 303, dict(TO_CONSOLE), b"")
            return
        status, asset, answer = self._find(str(scope["method"]), path.removeprefix(PREFIX))
        if status == 200 and asset.etag in headers.get("if-none-match", ""):
            status = 304
        encoding, body = (None, b"")
        if status in (200, 404):
            encoding, body = await asyncio.to_thread(asset.encoded, headers.get("accept-encoding", ""))
        if encoding is not None:
            answer["content-encoding"] = encoding
        if status != 304:
            answer |= {"content-type": asset.media_type, "content-length": str(len(body))}
        await _send(send, status, answer, b"" if scope["method"] == "HEAD" else body)

    def _read(self) -> None:
        self._assets = read_assets()
        self._missing = read_refusal(*NO_PAGE)
        self._pages = {page.path: read_page(page, __version__) for page in PAGES}

    def _find(self, method: str, path: str) -> tuple[int, Asset, dict[str, str]]:
        """Status, what is meant, and the headers of the answer."""
        if method not in ALLOWED:
            return 405, self._missing, {"allow": ", ".join(ALLOWED)}
        if path == "":
            return 303, self._missing, dict(TO_CONSOLE)
        if path.startswith(ASSETS_PREFIX):
            asset = self._assets.get(path.removeprefix(ASSETS_PREFIX))
            if asset is not None:
                return 200, asset, {"cache-control": FOR_EVER, "etag": asset.etag, "vary": "accept-encoding"}
        page = self._pages.get(path[1:])
        if page is None:
            return 404, self._missing, {"cache-control": "no-store"}
        return 200, page, {"cache-control": "no-cache", "etag": page.etag, "vary": "accept-encoding"}


async def _refuse(send: Send, method: str, status: int, text: str, *, as_page: bool) -> None:
    """`as_page`: for a browser; programs get the sentence."""
    if as_page:
        page = await asyncio.to_thread(read_refusal, "The console is closed", text)
    else:
        page = Asset(f"{text}\n".encode(), TYPES[".txt"])
    answer = {"content-type": page.media_type, "cache-control": "no-store", "content-length": str(len(page.content))}
    answer["vary"] = "accept"
    await _send(send, status, answer, b"" if method == "HEAD" else page.content)


async def _send(send: Send, status: int, headers: dict[str, str], body: bytes) -> None:
    pairs: list[Any] = [(name.encode(), value.encode()) for name, value in (headers | HEADERS).items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": body})
