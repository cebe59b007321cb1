"""Headers of every answer. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from vibemq.web.limits import App, Receive, Scope, Send

EVERYWHERE: Mapping[str, str] = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
PAGES: Mapping[str, str] = {**EVERYWHERE, "content-security-policy": "default-src 'none'; frame-ancestors 'none'"}
DATA: Mapping[str, str] = {
    **EVERYWHERE,
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
"""Of JSON and downloads: whatever a browser takes them for, nothing in them runs."""
STRICT_TRANSPORT = ("strict-transport-security", "max-age=31536000")


class SecurityHeaders:
    """Adds headers that an answer does not have itself."""

    def __init__(self, app: App, headers: Mapping[str, str], *, tls: bool = False) -> None:
        """`tls`: whether the port speaks TLS."""
        self._app = app
        own = dict([*headers.items(), *([STRICT_TRANSPORT] if tls else [])])
        self._headers = [(name.encode(), value.encode()) for name, value in own.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._added(message.get("headers", ()))}
            await send(message)

        await self._app(scope, receive, with_headers)

    def _added(self, headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        kept = list(headers)
        names = {name.lower() for name, _ in kept}
        return kept + [(name, value) for name, value in self._headers if name not in names]
