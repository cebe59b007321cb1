"""A socket is connected as `anyio.connect_tcp` does it."""

import socket
from collections.abc import Iterator

import anyio
import pytest

from vibemq.client.connecting import names, plain_socket
from vibemq.client.connecting.plain_socket import PlainSocket, connected_socket

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def port() -> Iterator[int]:
    """Somebody listens there, on 127.0.0.1."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


def known_as(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    def look_up(*_: object, **__: object) -> list[object]:
        return [
            (socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0))
            for address in addresses
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)


async def test_an_address_is_not_looked_up(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch)
    connected = await connected_socket("127.0.0.1", port)
    assert connected.getpeername() == ("127.0.0.1", port)
    assert not connected.getblocking()
    connected.close()


async def test_every_address_of_a_name_is_tried(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, "127.0.0.2", "::1", "127.0.0.1")
    (await connected_socket("broker", port)).close()


async def test_a_slow_address_does_not_keep_the_next_one_waiting(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, "127.0.0.9", "127.0.0.1")
    monkeypatch.setattr(names, "HEAD_START_S", 0.0)
    connect, ended = plain_socket._connect, []

    async def slow_or_real(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
        if address != "127.0.0.9":
            return await connect(family, address, port)
        try:
            await anyio.sleep_forever()
        finally:
            ended.append(address)
        raise AssertionError

    monkeypatch.setattr(plain_socket, "_connect", slow_or_real)
    with anyio.fail_after(60):
        connected = await connected_socket("broker", port)
    assert ended == ["127.0.0.9"], "nobody tries any more"
    connected.close()


@pytest.mark.parametrize("addresses", [["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]])
async def test_the_reasons_are_told(addresses: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    known_as(monkeypatch, *addresses)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # Nobody listens, and nobody else takes the port.
        with pytest.raises(OSError, match="no address") as told:
            await connected_socket("broker", bound.getsockname()[1])
    cause = told.value.__cause__
    reasons = cause.exceptions if isinstance(cause, ExceptionGroup) else [cause]
    assert [type(reason) for reason in reasons] == [ConnectionRefusedError] * len(addresses)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_end_of_the_stream_and_a_closed_socket(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        stream = PlainSocket(await connected_socket("127.0.0.1", listening.getsockname()[1]))
        peer, _ = listening.accept()
        await stream.send(b"hello")
        assert peer.recv(5) == b"hello"
        peer.close()
        with pytest.raises(anyio.EndOfStream):
            await stream.receive()
    await stream.aclose()
    await stream.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await stream.send(b"more")


@pytest.mark.parametrize("host", ["\u2028x", "a" * 70 + ".invalid", "bücher.invalid"])
async def test_what_is_no_name_is_refused_like_one_that_nobody_knows(host: str) -> None:
    with pytest.raises(OSError, match=r"no name of a host|not known|resolution|failure"):
        await connected_socket(host, 1)
