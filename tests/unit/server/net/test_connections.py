"""How many connections there may be, and which of them are dropped."""

import resource
import socket
import sys
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bench.guard.counting import instructions
from vibemq.model.access import Principal
from vibemq.protocols.session import Session
from vibemq.server.net.connections import FILES_KEPT, ConnectionTable, ListenerEndpoint, connections_max
from vibemq.server.net.peer_driver import PeerDriver
from vibemq.server.net.transport import Connection, SocketServices, waiting_in_system


@pytest.mark.parametrize(
    ("wanted", "open_files", "most"),
    [
        (10_000, 1024, 1024 - FILES_KEPT),
        (100, 1024, 100),
        (0, 1024, 1024 - FILES_KEPT),
        (10_000, 64, 32),
        (10_000, 1, 1),
        (10_000, resource.RLIM_INFINITY, 10_000),
        (0, resource.RLIM_INFINITY, sys.maxsize),
    ],
)
def test_connections_leave_open_files_to_storage(wanted: int, open_files: int, most: int) -> None:
    assert connections_max(wanted, open_files) == most


def test_whose_session_it_is_costs_the_same_however_many_have_no_socket() -> None:
    def cost(count: int) -> int:
        peers = {number: SimpleNamespace(number=number) for number in range(count)}
        table: Any = SimpleNamespace(_connections={}, without_socket=peers)
        find = lambda: ConnectionTable.peer(cast(ConnectionTable, table), count - 1)  # noqa: E731
        assert find() is peers[count - 1]
        return sum(instructions(find).values())

    assert cost(2) == cost(1_000)


class Reader:
    """A connection whose socket has no room."""

    def __init__(self, taken: int) -> None:
        self.taken = taken
        self.dropped = False

    def taken_bytes(self) -> int:
        return self.taken

    def drop(self, why: str) -> None:
        self.dropped = True


def test_a_peer_that_takes_something_on_a_slow_line_is_not_dropped() -> None:
    slow, still = Reader(1_000), Reader(1_000)
    table: Any = SimpleNamespace(
        stuck=dict.fromkeys((slow, still), (0.0, 1_000)),
        limits=SimpleNamespace(write_timeout_ms=30_000),
        _metrics=SimpleNamespace(slow_readers_dropped=0),
    )
    for now in (25.0, 50.0, 75.0):
        slow.taken += 100
        ConnectionTable._sweep_stuck(cast(ConnectionTable, table), now)
    assert (slow.dropped, still.dropped) == (False, True)
    ConnectionTable._sweep_stuck(cast(ConnectionTable, table), 105.0)
    assert slow.dropped


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system does not say")
def test_the_system_says_what_the_peers_system_has_not_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        ours = socket.create_connection(listening.getsockname())
        peer, _ = listening.accept()
    with ours, peer:
        ours.setblocking(False)
        with suppress(BlockingIOError):
            while True:
                ours.send(bytes(65_536))
        before = waiting_in_system(ours)
        assert before > 0
        while waiting_in_system(ours) == before:
            peer.recv(4_096)
    assert waiting_in_system(ours) == 0


@pytest.mark.parametrize(("principal", "said"), [(None, "dismiss"), (Principal("ann"), "goodbye")])
def test_a_stop_waits_for_requests_and_not_for_logins(principal: Principal | None, said: str) -> None:
    heard: list[str] = []
    connection = Connection(cast(SocketServices, None), cast(ListenerEndpoint, None))
    connection.session = cast(Session, SimpleNamespace(principal=principal))
    peer = SimpleNamespace(
        dismiss=lambda reason: heard.append("dismiss"), goodbye=lambda reason: heard.append("goodbye")
    )
    connection.peer = cast(PeerDriver, peer)
    connection.goodbye("server_shutdown")
    assert heard == [said]
