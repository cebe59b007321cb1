"""Whether a line is slow, as the operating system sees it."""

import socket
import sys
from collections.abc import Iterator

import pytest

from tests.waiting import wait_until
from vibemq.client.connecting.line import TcpLine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")

SENT = 4 << 20


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """One that writes, and one that reads, of which each system keeps little."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with socket.create_connection(listener.getsockname()) as writer, listener.accept()[0] as reader:
            writer.setblocking(False)
            yield writer, reader


def fill(writer: socket.socket) -> None:
    left = SENT
    while left:
        try:
            left -= writer.send(bytes(left))
        except BlockingIOError:
            return


def test_a_line_is_slow_while_something_of_what_waits_is_taken(pair: tuple[socket.socket, socket.socket]) -> None:
    writer, reader = pair
    line = TcpLine(writer)
    assert not line.is_slow()
    fill(writer)
    # What the other system keeps of it is taken, then nothing more.
    wait_until(lambda: not line.is_slow() and not line.is_slow())
    for _ in range(2):
        reader.recv(1 << 20)
        wait_until(line.is_slow)
    assert not TcpLine(None).is_slow()
    writer.close()
    assert not line.is_slow()


def test_a_line_that_takes_all_is_not_slow(pair: tuple[socket.socket, socket.socket]) -> None:
    writer, reader = pair
    line = TcpLine(writer)
    for _ in range(3):
        writer.send(b"ping")
        assert reader.recv(16) == b"ping"
        assert not line.is_slow()
