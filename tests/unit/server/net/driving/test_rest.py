"""What a peer sends while a connection rests is gathered, acknowledged, and taken in one piece; nothing is lost."""

import asyncio
import fcntl
import random
import socket
import sys
import termios
from collections.abc import AsyncIterator
from typing import cast

import pytest
from anyio.lowlevel import checkpoint

from tests.waiting import until
from vibemq.server.net.driving import rest
from vibemq.server.net.driving.rest import GATHERED_BYTES, ReadingRest

pytestmark = [
    pytest.mark.parametrize(
        "anyio_backend",
        [("asyncio", {"use_uvloop": use}) for use in (False, True)],
        ids=["asyncio", "uvloop"],
        scope="function",
    ),
    pytest.mark.anyio,
]


class Peer(asyncio.Protocol):
    """The broker's side of a connection, and the socket of whoever is at its other end."""

    transport: asyncio.Transport

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.read_by_transport = 0
        self.ended = self.lost = False

    async def connect(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            self.other = socket.create_connection(listening.getsockname())
            self.connected, _ = listening.accept()
        self.connected.setblocking(False)
        self.other.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = ReadingRest(self.connected, self.pieces.append)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: self, self.connected)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self.read_by_transport += 1
        self.pieces.append(data)

    def eof_received(self) -> bool:
        self.ended = True
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True

    @property
    def heard(self) -> bytes:
        return b"".join(self.pieces)

    def has_come(self, size: int) -> bool:
        """So much waits in the kernel."""
        try:
            return len(self.connected.recv(1 << 20, socket.MSG_PEEK)) >= size
        except BlockingIOError:
            return False


async def some_turns() -> None:
    """Of the loop, in which what is readable is read."""
    for _ in range(10):
        await checkpoint()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    peer = Peer()
    await peer.connect()
    yield peer
    peer.other.close()
    peer.rest.end()
    peer.transport.abort()
    await until(lambda: peer.lost)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rest ends by itself."""
    monkeypatch.setattr(rest, "REST_S", 3_600)


async def test_what_comes_is_gathered_until_it_is_read(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    for number in range(20):
        peer.other.sendall(b"%03d" % number)
    await until(lambda: peer.has_come(60))
    await some_turns()
    assert peer.pieces == []
    assert peer.rest.read()
    assert peer.pieces == [b"".join(b"%03d" % number for number in range(20))]
    assert peer.read_by_transport == 0


async def test_a_rest_in_which_nothing_came_is_over(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    assert not peer.rest.read()
    peer.other.sendall(b"alone")
    await until(lambda: peer.heard == b"alone")
    assert peer.read_by_transport == 1
    assert not peer.rest.read()


async def test_what_has_come_when_a_rest_ends_is_read(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    peer.other.sendall(b"little")
    await until(lambda: peer.has_come(6))
    await some_turns()
    assert peer.pieces == []
    peer.rest.end()
    await until(lambda: peer.heard == b"little")
    assert peer.read_by_transport == 1


async def test_what_comes_in_a_rest_is_looked_at_by_itself(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "REST_S", 0)
    peer.rest.begin()
    peer.other.sendall(b"alone")
    await until(lambda: peer.heard == b"alone")


async def test_very_much_is_read_as_it_comes(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    loop = asyncio.get_running_loop()
    peer.other.setblocking(False)
    await loop.sock_sendall(peer.other, bytes(3 * GATHERED_BYTES))
    await until(lambda: len(peer.heard) >= 2 * GATHERED_BYTES)
    assert peer.read_by_transport
    while len(peer.heard) < 3 * GATHERED_BYTES:
        await until(peer.rest.read)


async def test_the_end_of_the_stream_is_heard_behind_what_came(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    peer.other.sendall(b"last")
    peer.other.shutdown(socket.SHUT_WR)
    await until(lambda: peer.ended)
    assert peer.heard == b"last"
    assert not peer.rest.read()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other kernels do not tell what is acknowledged")
async def test_the_kernel_acknowledges_what_is_gathered(peer: Peer, patient: None) -> None:
    """A peer with little room in its socket waits for that, and sends nothing before."""

    def unacknowledged() -> int:
        return int.from_bytes(fcntl.ioctl(peer.other, termios.TIOCOUTQ, bytes(4)), "little")

    peer.rest.begin()
    for _ in range(20):
        peer.other.sendall(bytes(1_000))
    await until(lambda: not unacknowledged())
    await some_turns()
    assert peer.pieces == []


async def test_a_connection_that_has_ended_is_let_alone(peer: Peer, patient: None) -> None:
    peer.rest.begin()
    peer.transport.abort()
    await until(lambda: peer.connected.fileno() == -1)
    assert not peer.rest.read()
    peer.rest.begin()
    assert not peer.rest.read()


async def test_whatever_the_turns_nothing_is_lost_or_out_of_order(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rest, "REST_S", 0.0005)
    rng = random.Random(7)
    sent = rng.randbytes(1_000_000)
    loop = asyncio.get_running_loop()
    peer.other.setblocking(False)
    at = 0
    while at < len(sent):
        size = rng.choice((1, 30, 1_000, 5_000, 90_000))
        await loop.sock_sendall(peer.other, sent[at : at + size])
        at += size
        rng.choice((peer.rest.begin, peer.rest.begin, peer.rest.read, peer.rest.end))()
    await until(lambda: len(peer.heard) == len(sent))
    assert peer.heard == sent
