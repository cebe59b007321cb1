"""Connections are taken a few at a time, and the unwanted ones cost next to nothing."""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import cast

import pytest

from tests.waiting import until
from vibemq.server.net import acceptor as acceptor_module
from vibemq.server.net.acceptor import (
    KEEP_ALIVE_S,
    REFUSALS_FOR_ONE,
    TAKEN_PER_TURN,
    Acceptor,
    Handshakes,
    bound_sockets,
)
from vibemq.server.net.transport import acknowledge_at_once

pytestmark = pytest.mark.anyio


@dataclass
class Door:
    """An acceptor on a port of its own, and the connections that it has let in."""

    refuses: Callable[[str], bytes | None] = lambda host: None
    tls: ssl.SSLContext | None = None
    made: Callable[[], None] = lambda: None
    """Called while a connection is being made."""
    accepted: list[socket.socket] = field(default_factory=list)
    taken: list[asyncio.BaseTransport] = field(default_factory=list)
    lost: list[asyncio.BaseProtocol] = field(default_factory=list)
    port: int = 0
    handshakes: Handshakes | None = None
    failures: int = 0
    """Handshakes that came to nothing."""
    turn_s: float = 0.0
    """How long each turn of the loop takes, as the acceptor sees it."""
    now: float = 0.0

    async def open(self) -> Acceptor:
        door = self

        class Guest(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                door.taken.append(transport)
                door.made()

            def connection_lost(self, exc: Exception | None) -> None:
                door.lost.append(self)

        def make(connected: socket.socket) -> Guest:
            door.accepted.append(connected)
            return Guest()

        self.sockets = await bound_sockets("127.0.0.1", 0)
        self.port = self.sockets[0].getsockname()[1]
        return Acceptor(
            self.sockets,
            make,
            self.refuses,
            tls=self.tls,
            handshake_timeout_s=30,
            handshakes=self.handshakes,
            failed=self._failed,
            monotonic=self._monotonic,
        )

    def _failed(self) -> None:
        self.failures += 1

    def _monotonic(self) -> float:
        self.now += self.turn_s
        return self.now

    def dial(self, source: str = "127.0.0.1") -> AbstractContextManager[socket.socket]:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30, source_address=(source, 0))


@pytest.mark.parametrize(("turn_ms", "expected"), [(0.1, 1), (3.5, 3), (500, TAKEN_PER_TURN)])
async def test_a_flood_of_connections_leaves_turns_to_others(turn_ms: float, expected: int) -> None:
    """The longer the turns, the more of them; nobody who waits starves behind others who keep the loop busy."""
    asked: list[str] = []
    # The clock is read twice in each turn.
    door = Door(refuses=lambda host: asked.append(host), turn_s=turn_ms / 1000)  # type: ignore[func-returns-value]
    acceptor = await door.open()
    peers = [door.dial() for _ in range(3 * TAKEN_PER_TURN)]
    turns = []
    while len(asked) < len(peers):
        before = len(asked)
        await asyncio.sleep(0)
        turns.append(len(asked) - before)
    assert max(turns) == expected
    await until(lambda: len(door.taken) == len(peers))
    acceptor.close()
    for peer in (*door.taken, *peers):
        peer.close()  # type: ignore[union-attr]


async def test_a_refusal_counts_for_less() -> None:
    asked: list[str] = []
    door = Door(refuses=lambda host: asked.append(host) or b"no")  # type: ignore[func-returns-value]
    acceptor = await door.open()
    peers = [door.dial() for _ in range(3 * REFUSALS_FOR_ONE)]
    turns = []
    while len(asked) < len(peers):
        before = len(asked)
        await asyncio.sleep(0)
        turns.append(len(asked) - before)
    assert max(turns) == REFUSALS_FOR_ONE
    acceptor.close()
    for peer in peers:
        peer.close()  # type: ignore[attr-defined]


async def test_the_kernel_looks_after_a_peer_that_says_nothing() -> None:
    door = Door()
    acceptor = await door.open()
    with door.dial():
        await until(lambda: len(door.taken) == 1)
        found = door.taken[0].get_extra_info("socket")
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            assert found.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == KEEP_ALIVE_S
    acceptor.close()
    door.taken[0].close()


async def test_who_is_refused_is_told_and_closed_and_nothing_is_made() -> None:
    door = Door(refuses=lambda host: f"not {host}".encode())
    acceptor = await door.open()
    with door.dial() as peer:
        assert await asyncio.to_thread(peer.recv, 100) == b"not 127.0.0.1"
        assert await asyncio.to_thread(peer.recv, 100) == b""
    assert door.taken == []
    acceptor.close()


async def test_who_is_refused_does_not_get_a_handshake() -> None:
    door = Door(refuses=lambda host: b"said in the clear", tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    acceptor = await door.open()
    with door.dial() as peer:
        assert await asyncio.to_thread(peer.recv, 100) == b""
    acceptor.close()


async def test_an_accept_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor_module, "RETRY_S", 0.0)
    door = Door()
    acceptor = await door.open()
    failures = [OSError(errno.EMFILE, "Too many open files")]
    accept = socket.socket.accept

    def failing(self: socket.socket) -> object:
        if failures:
            raise failures.pop()
        return accept(self)

    monkeypatch.setattr(socket.socket, "accept", failing)
    with door.dial():
        await until(lambda: len(door.taken) == 1)
    acceptor.close()
    door.taken[0].close()


async def test_nobody_is_taken_after_the_end() -> None:
    door = Door()
    acceptor = await door.open()
    acceptor.close()
    acceptor.close()
    with pytest.raises(ConnectionRefusedError):
        door.dial()


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": each}) for each in (False, True)])
async def test_a_connection_that_is_being_made_at_the_end_goes_on() -> None:
    door = Door()
    acceptor = await door.open()
    door.made = acceptor.close
    with door.dial() as peer:
        await until(lambda: len(door.taken) == 1)
        for _ in range(5):
            await asyncio.sleep(0)
        transport = cast(asyncio.Transport, door.taken[0])
        transport.write(b"goodbye")
        transport.write_eof()
        assert await asyncio.to_thread(peer.recv, 100) == b"goodbye"
        transport.close()
        await until(lambda: len(door.lost) == 1)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": each}) for each in (False, True)])
async def test_a_handshake_that_is_under_way_at_the_end_fails() -> None:
    door = Door(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
    acceptor = await door.open()
    with door.dial() as peer:
        await until(lambda: bool(acceptor._beginning))
        acceptor.close()
        assert await asyncio.to_thread(peer.recv, 100) == b""
        await until(lambda: not acceptor._beginning)
    assert door.taken == []


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": each}) for each in (False, True)])
async def test_silent_handshakes_of_one_address_take_no_place_of_others() -> None:
    handshakes = Handshakes(3)
    door = Door(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), handshakes=handshakes)
    acceptor = await door.open()
    with door.dial() as first, door.dial(), door.dial(), door.dial() as fourth:
        # One more of the same address has no place, and is told nothing.
        assert await asyncio.to_thread(fourth.recv, 100) == b""
        assert (len(handshakes), len(acceptor._beginning), door.failures) == (3, 3, 1)
        with door.dial("127.0.0.2") as other:
            # The oldest gives its own.
            assert await asyncio.to_thread(first.recv, 100) == b""
            await until(lambda: len(acceptor._beginning) == 3)
            assert len(handshakes) == 3
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)
    await until(lambda: not acceptor._beginning)
    assert len(handshakes) == 0
    acceptor.close()


HERE, ABSENT = "127.0.0.1", ("127.0.0.98", "127.0.0.99")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, ...]]:
    """Addresses by host name; the machine does not have the ABSENT ones, as `::1` where IPv6 is switched off."""
    found: dict[str, tuple[str, ...]] = {}
    bind = socket.socket.bind

    def getaddrinfo(host: str, port: int, **_: object) -> list[object]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found[host]]

    def binding(self: socket.socket, address: tuple[str, int]) -> None:
        if address[0] in ABSENT:
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        bind(self, address)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    monkeypatch.setattr(socket.socket, "bind", binding)
    return found


@pytest.mark.parametrize("addresses", [(*ABSENT, HERE), (HERE, *ABSENT)])
async def test_an_address_that_the_machine_does_not_have_is_left_out(
    names: dict[str, tuple[str, ...]], addresses: tuple[str, ...]
) -> None:
    names["localhost"] = addresses
    (bound,) = await bound_sockets("localhost", 0)
    with bound:
        assert bound.getsockname()[0] == HERE


async def test_a_host_of_whose_addresses_the_machine_has_none_is_an_error(names: dict[str, tuple[str, ...]]) -> None:
    names["elsewhere"] = ABSENT
    with pytest.raises(OSError, match="assign requested address") as raised:
        await bound_sockets("elsewhere", 0)
    assert raised.value.errno == errno.EADDRNOTAVAIL


@pytest.mark.skipif(not hasattr(socket, "TCP_QUICKACK"), reason="the kernel has no such option")
@pytest.mark.parametrize(
    "anyio_backend", [("asyncio", {"use_uvloop": use}) for use in (False, True)], ids=["asyncio", "uvloop"]
)
async def test_the_accepted_socket_acknowledges_at_once_and_is_closed_with_its_transport(anyio_backend: object) -> None:
    door = Door()
    acceptor = await door.open()
    with door.dial():
        await until(lambda: door.taken)
        [connected], [transport] = door.accepted, door.taken
        acknowledge = acknowledge_at_once(connected)
        assert acknowledge is not None
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        acknowledge()
        assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)
        transport.close()
        await until(lambda: door.lost)
        # Another connection may have its number by now.
        await until(lambda: connected.fileno() == -1)
        acknowledge()
    acceptor.close()


def test_a_unix_socket_has_nothing_to_acknowledge() -> None:
    one, other = socket.socketpair()
    with one, other:
        assert acknowledge_at_once(one) is None
