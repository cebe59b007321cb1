"""Long work on all dead letters, without a rest: a search through their texts, and an export."""

from collections.abc import Callable
from typing import Any

import httpx

from bench.web.addresses import Addresses

NOWHERE = "no such text"


async def search(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """For a text that no letter has: request after request goes on where the last one has stopped, and at the end from
    the beginning."""
    seen.update(requests=0, examined=0, rounds=0)
    begun()
    async with httpx.AsyncClient(base_url=addresses.api, timeout=60) as http:
        while True:
            given = {"error": NOWHERE, "limit": "50"}
            while given:
                answer = await http.get("/dead-letters", params=given)
                page = answer.raise_for_status().json()
                seen["requests"] += 1
                seen["examined"] += page["examined"]
                given = given | {"cursor": page["next"]} if page["next"] else {}
            seen["rounds"] += 1


async def export(addresses: Addresses, seen: dict[str, Any], begun: Callable[[], None]) -> None:
    """Of all letters, as fast as they come, and then again."""
    seen.update(lines=0, mib=0.0, rounds=0)
    begun()
    async with httpx.AsyncClient(base_url=addresses.api, timeout=60) as http:
        while True:
            async with http.stream("GET", "/dead-letters/export") as lines:
                lines.raise_for_status()
                async for data in lines.aiter_raw():
                    seen["lines"] += data.count(b"\n")
                    seen["mib"] += len(data) / 2**20
            seen["rounds"] += 1
