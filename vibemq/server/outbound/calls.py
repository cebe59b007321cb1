"""Calls to URLs that others have named: guarded, bounded, over connections that are kept."""

import asyncio
import ipaddress
import ssl
from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence

from vibemq.errors import ConfigInvalid, OutboundFailed, OutboundRefused
from vibemq.protocols.session import HttpAnswer
from vibemq.server.outbound.addresses import Network, check_addresses
from vibemq.server.outbound.connection import OutboundConnection, connect
from vibemq.server.outbound.lookups import NameLookups, Resolve, resolve_by_system
from vibemq.server.outbound.targets import Address, Target, parse_target

IDLE_PER_TARGET_MAX = 8
IDLE_MAX = 128
"""Of all targets; then one of the target closes that was called the longest time ago. Each is an open file."""
IDLE_S = 30.0
"""A connection without calls for so long is closed. Servers close theirs, too, at times of their own."""
CONNECT_TIMEOUT_S = 3.0
TARGETS_MAX = 4_096
"""Parsed URLs that are remembered."""

_Key = tuple[bool, str, int]


class OutboundCalls:
    """Args:
    allowed: networks beside those of the public internet.
    timeout_s: of a call, the connection included.
    tls: None = the system's certificates.
    resolve: (host, port) -> addresses, as text.
    """

    def __init__(
        self,
        *,
        allowed: Sequence[Network] = (),
        timeout_s: float = 5.0,
        tls: ssl.SSLContext | None = None,
        resolve: Resolve = resolve_by_system,
    ) -> None:
        self._allowed = tuple(allowed)
        self._timeout_s = timeout_s
        self._tls = tls
        self._tls_on_its_way: asyncio.Task[ssl.SSLContext] | None = None
        self._lookups = NameLookups(resolve)
        self._idle: OrderedDict[_Key, deque[tuple[OutboundConnection, float]]] = OrderedDict()
        """With the moment at which each is closed. The target that was called last is at the end."""
        self._idle_count = 0
        self._targets: dict[str, Target] = {}
        self._last_lines: tuple[dict[str, str], bytes] = {}, b""
        """Headers are the same from call to call."""
        self._sweep: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @classmethod
    def configured(cls, *, allowed: Sequence[str], timeout_ms: int, ca_file: str | None) -> "OutboundCalls":
        """Raises ConfigInvalid: a network or a file that cannot be used."""
        tls = None
        try:
            networks = [ipaddress.ip_network(text, strict=False) for text in allowed]
        except ValueError as error:
            raise ConfigInvalid(f"a network that may be called is not one: {error}; write it as 10.1.0.0/16") from None
        if ca_file is not None:
            try:
                tls = ssl.create_default_context()
                tls.load_verify_locations(ca_file)
            except (OSError, ssl.SSLError) as error:
                raise ConfigInvalid(f"the file of authorities {ca_file} cannot be used: {error}") from None
        return cls(allowed=networks, timeout_s=timeout_ms / 1_000, tls=tls)

    async def check(self, url: str, *, owner: str = "") -> None:
        """Whether the URL may be called at this moment; nothing is sent. A name that has no address yet may pass.

        Raises:
            OutboundRefused: it may not, and why.
        """
        target = self._target(url)
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._addresses(target, owner)
        except (OutboundFailed, TimeoutError):
            return

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, *, owner: str = "") -> HttpAnswer:
        """The answer, whatever its status.

        Raises:
            OutboundRefused: the URL may not be called.
            OutboundFailed: no answer that can be read, in time.
        """
        target = self._target(url)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._post(target, self._lines(headers), body, owner)
        except TimeoutError:
            raise OutboundFailed(f"no answer from {target.authority} within {self._timeout_s:g} s") from None

    def close(self) -> None:
        self._lookups.close()
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        while self._idle:
            self._close_oldest(next(iter(self._idle)))

    def _target(self, url: str) -> Target:
        target = self._targets.get(url)
        if target is None:
            target = parse_target(url)
            if len(self._targets) >= TARGETS_MAX:
                self._targets.clear()
            self._targets[url] = target
        return target

    def _lines(self, headers: Mapping[str, str]) -> bytes:
        if headers != self._last_lines[0]:
            self._last_lines = dict(headers), _lines(headers)
        return self._last_lines[1]

    async def _post(self, target: Target, headers: bytes, body: bytes, owner: str) -> HttpAnswer:
        key = (target.secure, target.host, target.port)
        connection = self._take_idle(key) or await self._connect(target, owner)
        kept = connection.used
        try:
            answer = await connection.post(target, headers, body)
        except OutboundFailed:
            if not kept or connection.heard:
                raise
            # The server may have closed a kept connection just when it was used.
            connection = await self._connect(target, owner)
            answer = await connection.post(target, headers, body)
        if connection.open:
            self._keep(key, connection)
        return answer

    async def _connect(self, target: Target, owner: str) -> OutboundConnection:
        why: OSError | None = None
        for address in await self._addresses(target, owner):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    return await connect(target, address, await self._tls_context() if target.secure else None)
            except OSError as error:
                why = error
        raise OutboundFailed(f"{target.authority} cannot be reached: {_told(why)}")

    async def _addresses(self, target: Target, owner: str) -> list[Address]:
        """All of them have been checked; a connection is made to one of these and to no other."""
        if target.address is not None:
            found: list[Address] = [target.address]
        else:
            found = await self._resolved(target, owner)
        check_addresses(target.host, found, self._allowed)
        return found

    async def _resolved(self, target: Target, owner: str) -> list[Address]:
        texts = await self._lookups.look_up(target.host, target.port, owner)
        try:
            found = [ipaddress.ip_address(text) for text in dict.fromkeys(texts)]
        except ValueError:
            raise OutboundRefused(f"the name {target.host!r} resolves to a text that is not an address") from None
        if not found:
            raise OutboundFailed(f"the name {target.host!r} has no address")
        return found

    async def _tls_context(self) -> ssl.SSLContext:
        """One for all calls, also for those that begin while it is made; it comes to its end if they are given up."""
        if self._tls is not None:
            return self._tls
        if self._tls_on_its_way is None:
            self._tls_on_its_way = asyncio.create_task(self._make_tls_context())
        return await asyncio.shield(self._tls_on_its_way)

    async def _make_tls_context(self) -> ssl.SSLContext:
        try:
            # To read the system's certificates takes some 20 ms.
            self._tls = await asyncio.to_thread(ssl.create_default_context)
            return self._tls
        finally:
            self._tls_on_its_way = None

    # -- connections that are kept ------------------------------------------------------------------------------------

    def _take_idle(self, key: _Key) -> OutboundConnection | None:
        kept = self._idle.get(key)
        while kept:
            connection, _ = kept.pop()
            self._idle_count -= 1
            if not kept:
                del self._idle[key]
            if connection.open:
                return connection
        return None

    def _keep(self, key: _Key, connection: OutboundConnection) -> None:
        kept = self._idle.setdefault(key, deque())
        kept.append((connection, self._loop.time() + IDLE_S))
        self._idle.move_to_end(key)
        self._idle_count += 1
        if len(kept) > IDLE_PER_TARGET_MAX:
            self._close_oldest(key)
        elif self._idle_count > IDLE_MAX:
            self._close_oldest(next(iter(self._idle)))
        if self._sweep is None:
            self._sweep = self._loop.call_later(IDLE_S, self._close_idle)

    def _close_oldest(self, key: _Key) -> None:
        kept = self._idle[key]
        kept.popleft()[0].close()
        self._idle_count -= 1
        if not kept:
            del self._idle[key]

    def _close_idle(self) -> None:
        """While there are none, nothing runs."""
        self._sweep = None
        now = self._loop.time()
        for key, kept in list(self._idle.items()):
            while kept and (kept[0][1] <= now or not kept[0][0].open):
                self._close_oldest(key)
        if self._idle:
            self._sweep = self._loop.call_later(IDLE_S / 2, self._close_idle)


def _lines(headers: Mapping[str, str]) -> bytes:
    """Raises OutboundRefused: a header that is none."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    if lines.count("\r") != len(headers) or lines.count("\n") != len(headers) or not lines.isascii():
        raise OutboundRefused("a header of the call is not one line of ASCII")
    return lines.encode()


def _told(error: OSError | None) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate does not count ({error.verify_message})"
    if isinstance(error, TimeoutError):
        return f"nobody has answered within {CONNECT_TIMEOUT_S:g} s"
    return str(error.strerror or error) if error is not None else "it has no address"
