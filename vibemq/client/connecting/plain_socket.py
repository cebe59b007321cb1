"""Connected sockets that no event loop carries yet.

They are made here, and not by `anyio.connect_tcp`: that looks names up in the event loop (see `names`), its sockets are
not known to `forking`, and it does not give away the transport, with which a `DirectConnection` begins.
"""

import asyncio
import errno
import os
import socket

import anyio
from anyio.abc import ByteStream

from vibemq.client.connecting.forking import open_socket
from vibemq.client.connecting.names import Address, addresses_of, first_reached
from vibemq.client.connecting.own_task import on_asyncio


class PlainSocket(ByteStream):
    """Reads and writes of a handshake, until the socket is handed over. asyncio only."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket: socket.socket | None = connected

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


async def connected_socket(host: str, port: int) -> socket.socket:
    """Non-blocking, on asyncio and trio; whoever takes it closes it.

    Raises:
        OSError: the name is not known; or no address could be reached, whose reasons are its cause.
    """
    made: list[socket.socket] = []

    async def reach(address: Address) -> socket.socket:
        made.append(await _connect(*address, port))
        return made[-1]

    try:
        connected, others = await first_reached(await addresses_of(host, port), reach)
    except BaseException:
        _close(made)
        raise
    _close(others)
    return connected


def _close(sockets: list[socket.socket]) -> None:
    for each in sockets:
        each.close()


async def _connect(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    connected = open_socket(family)
    try:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await _connected(connected, (address, port))
    except BaseException:
        connected.close()
        raise
    return connected


async def _connected(connecting: socket.socket, address: tuple[str, int]) -> None:
    """As the loop's `sock_connect`, which has uvloop look up addresses, too, in libuv's pool: see `names`."""
    if not on_asyncio():
        import trio

        await trio.socket.from_stdlib_socket(connecting).connect(address)
        return
    if os.name == "nt":  # Where there is no uvloop, and no loop that waits for a socket to become writable.
        await asyncio.get_running_loop().sock_connect(connecting, address)
        return
    number = connecting.connect_ex(address)
    if number in (errno.EINPROGRESS, errno.EINTR):
        await _writable(connecting)
        number = connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if number:
        raise OSError(number, os.strerror(number))


async def _writable(waiting: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    writable = asyncio.Event()
    loop.add_writer(waiting.fileno(), writable.set)
    try:
        await writable.wait()
    finally:
        loop.remove_writer(waiting.fileno())
