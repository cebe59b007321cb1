"""A connection without tasks: what it takes of the link, when, and how it ends."""

import asyncio
import errno
import socket
from collections.abc import Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from tests.waiting import until
from vibemq.client.address import ClientSettings
from vibemq.client.connecting import direct_connection
from vibemq.client.connecting.connection import PIECE_BYTES
from vibemq.client.connecting.direct_connection import DirectConnection
from vibemq.client.connecting.plain_socket import PlainSocket
from vibemq.client.link import ClientLink, LinkCarrier
from vibemq.client.protocol import ClientProtocol
from vibemq.errors import ConnectionLost

pytestmark = pytest.mark.anyio
needs_uvloop = pytest.mark.skipif(find_spec("uvloop") is None, reason="uvloop is not installed")


@pytest.fixture(params=[False, pytest.param(True, marks=needs_uvloop)], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param}


class Link(ClientLink):
    """What it has to send is given by the test."""

    def __init__(self) -> None:
        super().__init__(ClientSettings(), now=0.0)
        self.outgoing: list[bytes] = []
        self.row: bytes | None = None
        self.fault: Exception | None = None
        self.carried = False

    def carried_by(self, carrier: LinkCarrier | None) -> None:
        super().carried_by(carrier)
        self.carried = carrier is not None

    def data_to_send(self, now: float) -> bytes:
        if self.fault is not None:
            raise self.fault
        return self.outgoing.pop(0) if self.outgoing else b""

    def row_to_send(self) -> bytes | None:
        row, self.row = self.row, None
        return row

    @property
    def has_data_to_send(self) -> bool:
        return bool(self.outgoing)


class Protocol(ClientProtocol):
    def receive_data(self, data: bytes) -> Iterator[Any]:
        if data == b"lost":
            raise ConnectionLost("of the test")
        if data == b"fault":
            raise ZeroDivisionError
        return iter(())


class Ends:
    """A connection, and the socket of its peer."""

    def __init__(self) -> None:
        self.ours, self.peer = socket.socketpair()
        self.ours.setblocking(False)
        self.peer.setblocking(False)
        self.link = Link()
        self.connection = DirectConnection(PlainSocket(self.ours), Protocol(ClientSettings()), self.link)
        self.why: list[str] = []

    async def run(self) -> None:
        self.why.append(await self.connection.run())

    def peer_sees_the_end(self) -> bool:
        try:
            return self.peer.recv(1) == b""
        except BlockingIOError:
            return False

    def read(self) -> bytes:
        try:
            return self.peer.recv(1 << 20)
        except BlockingIOError:
            return b""


@pytest.fixture
async def ends() -> Any:
    ends = Ends()
    yield ends
    ends.peer.close()


async def test_what_was_taken_of_a_large_message_before_the_end_is_no_time_of_waiting(ends: Ends) -> None:
    async with anyio.create_task_group() as tasks:
        ends.link.row = b"x" * (100 * PIECE_BYTES)
        tasks.start_soon(ends.run)
        await until(lambda: ends.connection._full)
        ends.connection._row_begun -= 1_000
        ends.peer.close()
    assert ends.link.resending.reading(2_000) <= 1_000


async def test_it_sends_what_there_is_and_what_comes_and_ends_with_its_peer(ends: Ends) -> None:
    async with anyio.create_task_group() as tasks:
        ends.link.outgoing = [b"a", b"b"]
        tasks.start_soon(ends.run)
        sent = bytearray()
        await until(lambda: sent.extend(ends.read()) or sent == b"ab")
        ends.link.outgoing = [b"c"]
        ends.link.wake()
        ends.link.wake()
        await until(lambda: ends.read() == b"c")
        assert ends.ours.fileno() >= 0
        ends.peer.close()
    assert ends.why == ["the broker closed the connection"]
    assert ends.ours.fileno() == -1
    ends.link.wake()  # Nobody is there any more.


async def test_a_start_that_is_cancelled_ends(ends: Ends) -> None:
    """While the loop makes the transport; some loops tell nothing of its end then."""

    def cancel(carrier: object) -> None:
        starting.cancel()

    ends.link.carried_by = cancel  # type: ignore[method-assign]
    starting = asyncio.ensure_future(ends.connection.run())
    with anyio.fail_after(60):
        await asyncio.wait({starting})
    assert starting.cancelled()
    assert ends.ours.fileno() == -1
    await until(lambda: ends.peer_sees_the_end())


async def test_a_start_that_is_cancelled_when_it_has_begun_to_send_does_not_wait_for_the_peer(ends: Ends) -> None:
    """Its task is cancelled when the loop has made the transport, and before the task has heard of it."""
    ends.link.outgoing = [bytes(8 << 20)]

    def cancel(carrier: LinkCarrier | None) -> None:
        if isinstance(carrier, DirectConnection):
            carrier._send()
            asyncio.get_running_loop().call_soon(starting.cancel)

    ends.link.carried_by = cancel  # type: ignore[method-assign]
    starting = asyncio.ensure_future(ends.connection.run())
    with anyio.fail_after(60):
        await asyncio.wait({starting})
    assert starting.cancelled()
    transport = ends.connection._transport
    assert transport is not None
    await until(lambda: transport.get_write_buffer_size() == 0)
    assert ends.connection._lost.is_set() or ends.ours.fileno() == -1


async def test_a_socket_that_the_loop_cannot_take_ends_this_connection_and_no_more(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*arguments: object, **named: object) -> None:
        raise OSError(errno.ENOTCONN, "not connected")

    monkeypatch.setattr(ends.connection, "_loop", SimpleNamespace(create_connection=refuse))
    await ends.run()
    assert ends.why == ["the connection broke ([Errno 107] not connected)"]
    assert not ends.link.carried
    await until(lambda: ends.peer_sees_the_end())


async def test_what_lingers_goes_with_what_does_not(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_connection, "LINGER_S", 3600.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run)
        await until(lambda: ends.link.carried)
        await anyio.wait_all_tasks_blocked()
        ends.connection.linger()
        ends.link.outgoing = [b"ack", b"request"]
        await anyio.wait_all_tasks_blocked()
        assert ends.read() == b""
        ends.link.wake()
        sent = bytearray()
        await until(lambda: sent.extend(ends.read()) or sent == b"ackrequest")
        ends.connection.end("of the test")


async def test_lingering_ends_by_itself(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_connection, "LINGER_S", 0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run)
        await until(lambda: ends.link.carried)
        ends.link.outgoing = [b"ack"]
        ends.connection.linger()
        await until(lambda: ends.read() == b"ack")
        ends.connection.end("of the test")


async def test_nothing_comes_between_the_pieces_of_a_row(ends: Ends) -> None:
    row = bytes(range(256)) * (9 * PIECE_BYTES // 256)
    async with anyio.create_task_group() as tasks:
        ends.link.outgoing, ends.link.row = [b"head"], row
        tasks.start_soon(ends.run)
        await until(lambda: ends.connection._full)
        ends.link.outgoing = [b"behind"]
        ends.link.wake()
        sent = bytearray()
        await until(lambda: sent.extend(ends.read()) or len(sent) == len(row) + 10)
        assert bytes(sent) == b"head" + row + b"behind"
        assert not ends.connection._sending_row
        ends.connection.end("of the test")


async def test_after_its_end_it_takes_nothing(ends: Ends) -> None:
    """The link may have its next connection before what this one has scheduled comes."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run)
        await until(lambda: ends.link.carried)
        ends.link.outgoing = [b"for the next one"]
        ends.connection.wake()
        ends.connection.end("of the test")
    await anyio.wait_all_tasks_blocked()
    assert ends.link.outgoing == [b"for the next one"]
    assert ends.why == ["of the test"]


async def test_an_error_of_the_broker_ends_it_and_is_the_reason(ends: Ends) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run)
        ends.peer.send(b"lost")
    assert ends.why == ["of the test"]


@pytest.mark.parametrize("where", ["received", "sent"])
async def test_a_fault_of_the_client_reaches_its_owner(ends: Ends, where: str) -> None:
    if where == "received":
        ends.peer.send(b"fault")
    else:
        ends.link.fault = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        await ends.connection.run()


async def test_a_lone_message_goes_at_once_and_those_that_join_it_go_together(ends: Ends) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ends.run)
        await until(lambda: ends.link.carried)
        await anyio.wait_all_tasks_blocked()
        ends.link.outgoing = [b"lone"]
        ends.link.wake(alone=True)
        assert ends.read() == b"lone"
        ends.link.wake()
        ends.link.outgoing = [b"behind another"]
        ends.link.wake(alone=True)
        assert ends.read() == b""
        await until(lambda: ends.read() == b"behind another")
        ends.connection.end("of the test")
