"""The chaos proxy does to a stream what it says, and nothing else; the ledger sees what it should."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.proof.chaos_proxy import CALM, ChaosProxy, Weather
from tests.proof.network_load import Account, body_of, is_whole

WAIT_S = 60
DATA = bytes(range(256)) * 40


class Echo:
    """A server that says everything back, and remembers how it came."""

    def __init__(self) -> None:
        self.port = 0
        self.pieces: list[bytes] = []
        self.ended = asyncio.Event()
        self.broken = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.pieces.append(data)
                writer.write(data)
                await writer.drain()
            self.ended.set()
        except ConnectionError:
            self.broken.set()
        finally:
            writer.close()


@asynccontextmanager
async def proxied(seed: int = 1) -> AsyncIterator[tuple[Echo, ChaosProxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    echo.port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(WAIT_S), ChaosProxy(lambda: echo.port, random.Random(seed)) as proxy:
        yield echo, proxy
    server.close()


async def said_back(proxy: ChaosProxy, data: bytes = DATA) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read(-1)
    writer.close()
    return answer


@pytest.mark.anyio
@pytest.mark.parametrize(
    "weather",
    [CALM, Weather(slice_max=300), Weather(delay_s=0.001, jitter_s=0.001), Weather(bytes_per_s=5_000_000)],
    ids=["calm", "sliced", "late", "thin"],
)
async def test_bytes_come_through_as_they_are(weather: Weather) -> None:
    async with proxied() as (_, proxy):
        proxy.weather = weather
        assert await said_back(proxy) == DATA
        assert proxy.corrupted == 0
        assert proxy.carried == 2 * len(DATA)


def test_slices_are_small_and_the_same_for_the_same_seed() -> None:
    def cut(seed: int) -> list[bytes]:
        proxy = ChaosProxy(lambda: 0, random.Random(seed))
        proxy._weather = Weather(slice_max=7)
        return proxy.pieces(DATA)

    assert b"".join(cut(1)) == DATA
    assert {len(piece) for piece in cut(1)[:-1]} == set(range(1, 8))
    assert cut(1) == cut(1) != cut(2)


@pytest.mark.anyio
async def test_a_stall_holds_everything_and_loses_nothing() -> None:
    async with proxied() as (echo, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"before")
        assert await reader.readexactly(6) == b"before"
        proxy.weather = Weather(stalled=True)
        writer.write(b"after")
        answer = asyncio.ensure_future(reader.readexactly(5))
        late = asyncio.ensure_future(said_back(proxy, b"new connections too"))
        async with asyncio.timeout(WAIT_S):
            while proxy.held < 2:
                await asyncio.sleep(0)
        assert echo.pieces == [b"before"]
        proxy.weather = CALM
        assert await answer == b"after"
        assert await late == b"new connections too"
        writer.close()


@pytest.mark.anyio
async def test_a_reset_breaks_both_ends() -> None:
    async with proxied() as (echo, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        proxy.reset_all()
        with pytest.raises(ConnectionResetError):
            await reader.readexactly(1)
        await echo.broken.wait()
        writer.close()


@pytest.mark.anyio
async def test_half_a_close_leaves_the_other_half() -> None:
    async with proxied() as (echo, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        proxy.half_close_all("up")
        await echo.ended.wait()
        assert await reader.read(1) == b"", "the server has had its end of stream, and so ends its own"
        writer.close()


@pytest.mark.anyio
async def test_new_connections_can_be_refused() -> None:
    async with proxied() as (echo, proxy):
        proxy.weather = Weather(refusing=True)
        with pytest.raises(ConnectionError):
            await said_back(proxy, b"x")
        assert echo.pieces == []


@pytest.mark.anyio
async def test_corruption_changes_one_bit_of_a_piece_and_is_counted() -> None:
    async with proxied() as (_, proxy):
        proxy.weather = Weather(corrupt=1.0)
        changed = proxy.corrupt(DATA)
        assert sum(before != after for before, after in zip(DATA, changed, strict=True)) == 1
        assert proxy.corrupted == 1
        proxy.weather = CALM
        assert proxy.corrupt(DATA) == DATA


def test_a_changed_body_is_seen() -> None:
    body = body_of("m1", random.Random(1))
    assert is_whole(body)
    assert not is_whole({**body, "fill": body["fill"][:-1] + "x"})
    assert not is_whole({**body, "id": "m2"})
    assert not is_whole(None)
    assert not is_whole({})


def test_the_account_tells_lost_from_unsure_from_unknown() -> None:
    account = Account(confirmed={"a", "b"}, published={"a", "b", "unsure"})
    account.received.update(["a", "a", "ghost"])
    assert account.lost == {"b"}
    assert account.phantoms == {"ghost"}
    assert account.doubled == 1
