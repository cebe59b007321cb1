"""A publisher at full speed is read by turns: what others publish meanwhile is not appended behind megabytes of it."""

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from vibemq.model.records import MessagesAdded, Record
from vibemq.model.rows import Rows, pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import encode_body
from vibemq.server.commit.backpressure import ALONE_SHARE_BYTES
from vibemq.storage.lmdb.provider import LmdbProvider

pytestmark = pytest.mark.anyio
FRAME_ROWS = 50


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """Of the two loops the one that reads a socket for as long as there is something in it."""
    pytest.importorskip("uvloop")
    return "asyncio", {"use_uvloop": True}


async def test_a_full_socket_is_read_a_share_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    append = LmdbProvider.append

    def noting(provider: LmdbProvider, records: Sequence[Record]) -> int:
        sizes.append(sum(record.rows.size for record in records if type(record) is MessagesAdded))
        return append(provider, records)

    monkeypatch.setattr(LmdbProvider, "append", noting)
    rows = Rows.of([pack_row(f"{number:032x}", b"x" * 1024) for number in range(FRAME_ROWS)])
    frame = encode_frame(extensions.publish_many("r", "bulk", rows))
    async with vibemq.Broker(tmp_path / "data", port=0) as broker, vibemq.connect(f"vibemq://127.0.0.1:{broker.port}"):
        with socket.create_connection(("127.0.0.1", broker.port)) as peer:
            hello = encode_body(0, "c", headers={"supported-extensions": extensions.BATCH_EXTENSION})
            peer.sendall(encode_frame(hello))
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            assert await loop.sock_recv(peer, 65_536)
            sent = 0
            # Into the socket before the broker's loop has another turn.
            while (taken := _taken(peer, frame[sent % len(frame) :])) is not None:
                sent += taken
            assert sent > 2.5 * ALONE_SHARE_BYTES
            confirmed = 0
            while confirmed < sent // len(frame):
                answers = await loop.sock_recv(peer, 65_536)
                confirmed += answers.count(b"bulk")
    assert sum(sizes) >= confirmed * rows.size
    assert max(sizes) <= 2 * ALONE_SHARE_BYTES + len(frame)


async def test_who_is_sent_away_may_end_what_it_is_writing(tmp_path: Path) -> None:
    """Else it would wait for room in a socket that nobody reads, and lose the last words to a reset."""
    async with vibemq.Broker(tmp_path / "data", port=0) as broker:
        with socket.create_connection(("127.0.0.1", broker.port)) as peer:
            peer.setblocking(False)
            loop = asyncio.get_running_loop()
            with anyio.fail_after(60):
                await loop.sock_sendall(peer, b"\xff\xff\xff\xff\xff" + bytes(16 * ALONE_SHARE_BYTES))
                while await loop.sock_recv(peer, 65_536):
                    pass


def _taken(peer: socket.socket, data: bytes) -> int | None:
    try:
        return peer.send(data)
    except BlockingIOError:
        return None
