"""Clients that take connections and give nothing, and one that asks whether the broker still answers."""

import contextlib
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import anyio
import httpx

from bench.web.addresses import LOAD, Addresses

SILENT, UNREAD, HALF = 500, 200, 300
PEERS = 50
"""Addresses that they come from: each may have a few streams."""
ANEW_S = 10.0
"""The broker has closed most connections by then."""
CONNECT_S = 5.0
PROBE_EVERY_S = 0.2
PROBED = ("/livez", "/readyz", "/api/v1/overview", "/api/v1/queues?limit=50")
HALF_REQUEST = (
    b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 100\r\n\r\n{"
)
STREAMS = ("/api/v1/events?topic=overview&topic=queues%3Flimit%3D100", f"/api/v1/queues/{LOAD}/tail?preview_bytes=4096")


async def attack(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """All of them at once, and all anew again and again."""
    seen.update(opened=0, refused=0, rounds=0)
    said = [b""] * SILENT + [_stream(number) for number in range(UNREAD)] + [HALF_REQUEST] * HALF
    while True:
        with ExitStack() as stack:
            for number, text in enumerate(said):
                opened = _open(stack, addresses.http_port, f"127.0.0.{2 + number % PEERS}", text)
                seen["opened" if opened else "refused"] += 1
            if not seen["rounds"]:
                begun()
            seen["rounds"] += 1
            await anyio.sleep(ANEW_S)


def _stream(number: int) -> bytes:
    return f"GET {STREAMS[number % len(STREAMS)]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def _open(stack: ExitStack, port: int, own_address: str, said: bytes) -> bool:
    peer = stack.enter_context(socket.socket())
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    peer.settimeout(CONNECT_S)
    with contextlib.suppress(OSError):
        peer.bind((own_address, 0))
        peer.connect(("127.0.0.1", port))
        peer.sendall(said)
        return True
    return False


async def probe(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """Over a new connection each time."""
    seen.update(answered=0, failed=[], worst_ms=0.0)
    begun()
    while True:
        for path in PROBED:
            with anyio.CancelScope(shield=True):
                began = time.perf_counter()
                failure = await _failure(addresses.http + path)
                seen["worst_ms"] = max(seen["worst_ms"], (time.perf_counter() - began) * 1_000)
            if failure:
                seen["failed"].append(f"{path}: {failure}")
            else:
                seen["answered"] += 1
            await anyio.sleep(PROBE_EVERY_S)


async def _failure(url: str) -> str:
    """Why it was no good answer; "" = it was one."""
    async with httpx.AsyncClient(timeout=20) as http:
        try:
            answer = await http.get(url)
        except httpx.HTTPError as error:
            return repr(error)
    return "" if answer.is_success else f"{answer.status_code} {answer.text[:100]}"
