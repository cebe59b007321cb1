"""Messages over HTTP, as a script has them."""

from pathlib import Path
from typing import Any

from tests.integration.http_api import ApiClient
from vibemq.config import Http, Listener, Settings
from vibemq.testing.timed_broker import TimedBroker

BYTES = {"content-type": "application/octet-stream"}
NDJSON = {"content-type": "application/x-ndjson"}


def timed(folder: Path, **more: Any) -> TimedBroker:
    return TimedBroker(
        settings=Settings(
            data_dir=folder,
            listeners=(Listener(port=0),),
            http=Http.model_validate({"port": 0, "requests_per_second": 0}),
            **more,
        )
    )


async def publish(api: ApiClient, queue: str = "q", body: bytes = b"x", **headers: str) -> Any:
    names = {f"VibeMQ-{name.replace('_', '-')}": value for name, value in headers.items()}
    return await api.done("POST", f"/queues/{queue}/messages", content=body, headers={**BYTES, **names})


async def fetch(api: ApiClient, queue: str = "q", **wanted: Any) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = (await api.done("POST", f"/queues/{queue}/deliveries", json=wanted))["items"]
    return items


async def settle(api: ApiClient, *settlements: dict[str, Any], user: str = "") -> Any:
    return await api.done("POST", "/deliveries", user, json={"settlements": list(settlements)})


def info(api: ApiClient, queue: str = "q") -> Any:
    found = api.broker.queue_info(queue)
    assert found is not None
    return found
