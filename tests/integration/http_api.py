"""A broker whose HTTP API is asked over real sockets, with the users of `tests.integration.access`."""

import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.integration.access import EVERYBODY, PASSWORD
from vibemq.config import Auth, Http, Listener, Settings, StorageChoice
from vibemq.server.broker import Broker

API = "/api/v1"


class ApiClient:
    """Asks one broker; every answer in JSON, whatever its status."""

    def __init__(self, broker: Broker, scheme: str = "http", **more: Any) -> None:
        assert broker.http_address is not None
        host, port = broker.http_address
        self.broker = broker
        # By itself httpx reads the certificates of all authorities for each client: 20 ms.
        more.setdefault("verify", False)
        self.http = httpx.AsyncClient(base_url=f"{scheme}://{host}:{port}", timeout=60, trust_env=False, **more)

    async def ask(self, method: str, path: str, user: str = "", **more: Any) -> httpx.Response:
        """`path`: below the API. `user`: with its password."""
        auth = (user, PASSWORD) if user else None
        request = self.http.build_request(method, API + path, **more)
        response = await self.http.send(request, auth=auth, stream=True)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            # It has no end: whoever wants to read it does so by itself.
            await response.aclose()
        else:
            await response.aread()
        return response

    async def get(self, path: str, user: str = "", **more: Any) -> httpx.Response:
        return await self.ask("GET", path, user, **more)

    async def done(self, method: str, path: str, user: str = "", **more: Any) -> Any:
        """The answer of what must succeed."""
        response = await self.ask(method, path, user, **more)
        assert response.is_success, (method, path, response.status_code, response.text)
        return response.json() if response.content else None

    async def code(self, method: str, path: str, user: str = "", **more: Any) -> tuple[int, str]:
        """Of a refusal: its status and its code."""
        response = await self.ask(method, path, user, **more)
        assert response.headers["content-type"] == "application/problem+json", response.text
        return response.status_code, response.json()["code"]


def everybody() -> Auth:
    return Auth.model_validate(tomllib.loads(EVERYBODY)["auth"])


@asynccontextmanager
async def serving(
    folder: Path, *, auth: Auth | None = None, broker_type: type[Broker] = Broker, durable: bool = False, **http: Any
) -> AsyncIterator[ApiClient]:
    """`http`: settings; nobody is slowed down unless they say so."""
    settings = Settings(
        data_dir=folder,
        storage=StorageChoice(provider="sqlite" if durable else "memory"),
        queue_defaults={"durability": "strong" if durable else "transient"},
        listeners=(Listener(port=0),),
        auth=auth or Auth(),
        http=Http.model_validate({"port": 0, "requests_per_second": 0, **http}),
    )
    async with broker_type(settings=settings) as broker:
        client = ApiClient(broker)
        async with client.http:
            yield client
