"""Which names the HTTP port answers to. A page of a browser may have its own name resolve to an address of this
machine, and then read what the port says as its own (DNS rebinding); the name stands in the header Host. Pure.

An address cannot be made to resolve to another one, so every address is allowed.
"""

import re
from collections.abc import Mapping, Sequence

from vibemq.auth.addresses import address_of, is_loopback
from vibemq.web.limits import PROBES, App, Receive, Scope, Send

ANY = "*"
_PORT = re.compile(r"(:[0-9]{0,5})?")


class AllowedHosts:
    """Args:
    listener: the host of the listener.
    names: of the settings; None: any, if requests need a token or come to an address of the network; else those that
        stand for this machine.
    """

    def __init__(self, listener: str, names: Sequence[str] | None, *, needs_token: bool) -> None:
        if names is None:
            names = [ANY] if needs_token or not is_loopback(listener) else []
        self._any = ANY in names
        self._names = {_plain(name) for name in (*names, listener) if not name.startswith("*.")}
        self._suffixes = tuple(_plain(name[1:]) for name in names if name.startswith("*."))

    def allows(self, host: str) -> bool:
        """`host`: as the header has it, with or without a port."""
        name = _plain(without_port(host))
        if not _PORT.fullmatch(_behind(host)):
            return False
        return (
            self._any
            or name in self._names
            or bool(self._suffixes and name.endswith(self._suffixes))
            or is_loopback(name)
            or address_of(name) is not None
        )


def without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _behind(host: str) -> str:
    """What stands behind the name or address."""
    if host.startswith("["):
        return host.partition("]")[2]
    return host[host.index(":") :] if host.count(":") == 1 else ""


def _plain(name: str) -> str:
    return name.strip().rstrip(".").lower()


class HostCheck:
    """Answers 421 to requests for names that are not allowed. The probes tell nothing, and are answered always."""

    def __init__(self, app: App, hosts: AllowedHosts, others: Mapping[str, AllowedHosts]) -> None:
        """`others`: the names of paths below these, which are others."""
        self._app = app
        self.hosts = hosts
        self.others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # A request of HTTP/1.0 may have none, and no browser makes one.
        host = next((value for name, value in scope.get("headers", ()) if name == b"host"), None)
        if host is None or scope.get("path") in PROBES or self._hosts_of(scope).allows(host.decode("latin-1")):
            await self._app(scope, receive, send)
            return
        text = b"this name is not one of the broker's; use localhost or an address, or add it to http.allowed_hosts\n"
        headers = [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(text))]
        await send({"type": "http.response.start", "status": 421, "headers": headers})
        await send({"type": "http.response.body", "body": text})

    def _hosts_of(self, scope: Scope) -> AllowedHosts:
        path = scope.get("path", "")
        return next((hosts for prefix, hosts in self.others.items() if is_below(path, prefix)), self.hosts)


def is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(prefix + "/")
