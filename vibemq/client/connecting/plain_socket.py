"""Connected sockets that no event loop carries yet. asyncio only.

They are what a `DirectConnection` begins with: `anyio.connect_tcp` does not give away the transport of its streams.
"""

import asyncio
import socket
from ipaddress import ip_address

import anyio
from anyio.abc import ByteStream

HEAD_START_S = 0.25
"""Of one address of a name before the next one is tried as well (RFC 6555)."""

_Address = tuple[socket.AddressFamily, str]


class PlainSocket(ByteStream):
    """Reads and writes of a handshake, until the socket is handed over."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket: socket.socket | None = connected

    @property
    def descriptor(self) -> int:
        return self._open().fileno()

    def hand_over(self) -> socket.socket:
        """Whoever takes it closes it."""
        connected, self._socket = self._open(), None
        return connected

    async def receive(self, max_bytes: int = 65_536) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self._open(), max_bytes)
        if not data:
            raise anyio.EndOfStream
        return data

    async def send(self, item: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._open(), item)

    async def send_eof(self) -> None:
        self._open().shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _open(self) -> socket.socket:
        if self._socket is None:
            raise anyio.ClosedResourceError
        return self._socket


async def connect_plain(host: str, port: int) -> PlainSocket:
    """As `anyio.connect_tcp`: several addresses of a name are tried one after the other, and beside each other when one
    takes long.

    Raises:
        OSError: the name is not known; or no address could be reached, whose reasons are its cause.
    """
    made: list[socket.socket] = []
    failures: list[OSError] = []

    async def attempt(address: _Address, tried: anyio.Event) -> None:
        try:
            connected = await _connect(*address, port)
        except OSError as error:
            failures.append(error)
        else:
            made.append(connected)
            tasks.cancel_scope.cancel()
        finally:
            tried.set()

    addresses = await _addresses(host, port)
    try:
        async with anyio.create_task_group() as tasks:
            for address in addresses:
                tried = anyio.Event()
                tasks.start_soon(attempt, address, tried)
                with anyio.move_on_after(HEAD_START_S):
                    await tried.wait()
    except BaseException:
        _close(made)
        raise
    if not made:
        raise OSError("no address could be reached") from _together(failures)
    _close(made[1:])
    return PlainSocket(made[0])


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


def _together(failures: list[OSError]) -> BaseException:
    return failures[0] if len(failures) == 1 else ExceptionGroup("no address could be reached", failures)


async def _addresses(host: str, port: int) -> list[_Address]:
    """One of IPv6 first, if there is any, then one of IPv4."""
    try:
        version = ip_address(host).version
    except ValueError:
        pass
    else:
        return [(socket.AF_INET6 if version == 6 else socket.AF_INET, host)]
    known = await anyio.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    found = list(dict.fromkeys((family, str(address[0])) for family, *_, address in known))
    sixth = [address for address in found if address[0] == socket.AF_INET6]
    others = [address for address in found if address[0] != socket.AF_INET6]
    return [*sixth[:1], *others[:1], *sixth[1:], *others[1:]]


async def _connect(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    connected = socket.socket(family, socket.SOCK_STREAM)
    try:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.get_running_loop().sock_connect(connected, (address, port))
    except BaseException:
        connected.close()
        raise
    return connected
