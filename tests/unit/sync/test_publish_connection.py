"""How long the second connection of a blocking client waits for an answer."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from vibemq.client import ClientSettings, Receipt
from vibemq.client.protocol import ClientProtocol
from vibemq.client.publisher import PackedPublish
from vibemq.model.rows import pack_row
from vibemq.protocols.native.codec.extensions import PublishManyAck
from vibemq.sync import publish_connection
from vibemq.sync.publish_connection import PublishConnection

ROUNDS = 20


class Line:
    """Stands in for the socket's own, for the clock and for the broker, which answers after so many looks."""

    def __init__(self, connected: socket.socket) -> None:
        self.now = 1000.0
        self.looks = 0
        self.is_taken = True

    def is_slow(self) -> bool:
        self.looks += 1
        return self.is_taken and self.looks > 1

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def connection(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[PublishConnection, Line]]:
    near, far = socket.socketpair()
    line = Line(near)
    monkeypatch.setattr(publish_connection, "TcpLine", lambda connected: line)
    monkeypatch.setattr(publish_connection, "time", line)
    settings = ClientSettings(command_timeout=20)
    made = PublishConnection(near, ClientProtocol(settings), settings, 1)

    def frames_within(seconds: float) -> list[Any]:
        line.now += seconds
        return [PublishManyAck("1", "orders", 7, 1)] if line.looks == ROUNDS else []

    monkeypatch.setattr(made, "_frames_within", frames_within)
    yield made, line
    made.close()
    far.close()


def waited(connection: PublishConnection, line: Line) -> Any:
    packed = PackedPublish("orders", pack_row("m", b"1"), {"dedup_id": b"d"}, True, None)
    return connection._wait_on(packed, "1", line.now - 8)


def test_a_line_that_is_slow_with_a_message_is_waited_for(connection: tuple[PublishConnection, Line]) -> None:
    made, line = connection
    assert waited(made, line) == Receipt("orders", 7, duplicate=False)
    assert line.now > 1000 + 2 * 20
    assert line.now - made.slow_at <= 8, "nobody takes it for dead"


def test_a_line_that_takes_nothing_is_given_up(connection: tuple[PublishConnection, Line]) -> None:
    made, line = connection
    line.is_taken = False
    with pytest.raises(ConnectionError, match="does not answer a ping"):
        waited(made, line)
    assert line.now == 1000 + 8
