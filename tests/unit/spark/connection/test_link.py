"""How long a peer is waited for: a socket of the test has what comes, and its silences take no time."""

from typing import Any

import pytest

pytest.importorskip("pyspark")
from tests.crash.ledger import BrokerProcess
from tests.unit.spark.hand import options_of
from vibemq.spark.connection import link, wire
from vibemq.spark.connection.client import BrokerClient
from vibemq.spark.connection.link import PINGS, Link
from vibemq.spark.errors import ConnectionLost
from vibemq.spark.options import parse
from vibemq.spark.values import Endpoint

SILENCE = None
PING = b"".join(wire.plain(wire.PING, "ping"))
PONG = b"".join(wire.plain(wire.PONG, "ping"))
GRANTED = {"negotiated-extensions": ",".join(link.EXTENSIONS)}
WELCOME = b"".join(wire.plain(wire.CONNECT_ACK, "connect", headers=GRANTED))
ANSWER = b"".join(wire.plain(wire.CURSOR_REPLY, "1", payload=b'{"committed": true}'))


class ScriptedSocket:
    """Has bytes and silences; notes what it is given."""

    def __init__(self, *script: bytes | None) -> None:
        self._script = list(script)
        self.sent: list[bytes] = []

    def recv_into(self, room: memoryview) -> int:
        data = self._script.pop(0)
        if data is SILENCE:
            raise TimeoutError("timed out")
        count = min(len(data), len(room))
        room[:count] = data[:count]
        if data[count:]:
            self._script.insert(0, data[count:])
        return count

    def sendall(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def settimeout(self, seconds: float) -> None:
        pass

    def close(self) -> None:
        pass


def link_over(monkeypatch: pytest.MonkeyPatch, *script: bytes | None) -> tuple[Link, ScriptedSocket]:
    """Logged in, and what it has sent since."""
    scripted = ScriptedSocket(WELCOME, *script)
    monkeypatch.setattr(link, "_dial", lambda *_: scripted)
    made = Link(Endpoint("broker", 2925, False), parse({"endpoint": "broker"}))
    scripted.sent.clear()
    return made, scripted


def test_an_answer_may_take_as_long_as_the_peer_answers_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    silences = [part for _ in range(10) for part in (SILENCE, PONG)]
    made, scripted = link_over(monkeypatch, *silences, ANSWER)
    assert wire.json_payload(made.receive()) == {"committed": True}
    assert scripted.sent == [PING] * 10


def test_a_peer_that_answers_no_ping_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    made, scripted = link_over(monkeypatch, SILENCE, PONG, *[SILENCE] * (PINGS + 1))
    with pytest.raises(ConnectionLost, match="timed out"):
        made.receive()
    assert scripted.sent == [PING] * (1 + PINGS)


def test_a_frame_may_pause_and_its_rest_is_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [part for byte in ANSWER for part in (SILENCE, bytes((byte,)))]
    made, scripted = link_over(monkeypatch, *some, PONG, ANSWER)
    assert made.receive().kind == wire.CURSOR_REPLY
    assert made.receive().kind == wire.CURSOR_REPLY, "pongs are no answers"
    assert scripted.sent == [PING] * len(ANSWER)


def test_who_does_not_answer_the_login_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    scripted = ScriptedSocket(SILENCE)
    monkeypatch.setattr(link, "_dial", lambda *_: scripted)
    with pytest.raises(ConnectionLost, match=r"no answer to the login \(timed out\)"):
        Link(Endpoint("broker", 2925, False), parse({"endpoint": "broker"}))
    assert PING not in scripted.sent


class Impatient:
    """A socket that has nothing at its first looks."""

    def __init__(self, real: Any, silences: int) -> None:
        self._real = real
        self._silences = silences

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def recv_into(self, room: memoryview) -> int:
        if self._silences:
            self._silences -= 1
            raise TimeoutError("timed out")
        return int(self._real.recv_into(room))


@pytest.mark.slow
def test_a_broker_answers_pings_beside_requests(broker: BrokerProcess) -> None:
    client = BrokerClient(parse(options_of(broker)))
    client.list_queues()
    first = client._link
    assert first is not None
    for _ in range(3):
        first._socket = Impatient(first._socket, PINGS)
        assert client.call("transaction.last", "", {"app": "nobody"}) == {"version": None}
    assert client._link is first
    client.close()
