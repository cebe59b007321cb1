"""Queues that the settings declare are there when the broker is ready."""

import logging
from pathlib import Path
from typing import Any

import pytest

import vibemq
from vibemq.config import Http, Listener, Settings, StorageChoice
from vibemq.errors import ConfigInvalid
from vibemq.model.options import DeliveryMode, Durability, QueueOptions, Retention

pytestmark = pytest.mark.anyio

PRICES = {"mode": "broadcast", "durability": "weak", "retain_bytes": 1 << 30}


def settings(data_dir: Path, queues: dict[str, dict[str, Any]], *, provider: str = "sqlite") -> Settings:
    return Settings(
        data_dir=data_dir,
        storage=StorageChoice(provider=provider),
        listeners=(Listener(port=0),),
        http=Http(enabled=False),
        auto_create=False,
        queue_defaults={"max_attempts": 7},
        queues=queues,
    )


def options_of(broker: vibemq.Broker, queue: str) -> QueueOptions:
    info = broker.queue_info(queue)
    assert info is not None
    return info.options


async def test_they_are_created_over_the_defaults(tmp_path: Path) -> None:
    async with vibemq.Broker(settings=settings(tmp_path / "data", {"prices": PRICES, "jobs": {}})) as broker:
        assert options_of(broker, "jobs") == QueueOptions(max_attempts=7)
        prices = options_of(broker, "prices")
        assert (prices.mode, prices.retention) == (DeliveryMode.FAN_OUT_WITH_ACK, Retention.LOG)
        assert (prices.durability, prices.retain_bytes, prices.max_attempts) == (Durability.WEAK, 1 << 30, 7)


async def test_what_exists_stays_and_a_difference_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "vibemq.declared")
    for _ in range(2):
        declaring = settings(tmp_path / "data", {"prices": PRICES})
        async with vibemq.Broker(settings=declaring) as broker, vibemq.connect(broker.url) as mq:
            await mq.publish("prices", 1)
        assert caplog.messages == []
    async with vibemq.Broker(settings=settings(tmp_path / "data", {"prices": PRICES | {"retain_bytes": 5}})) as broker:
        assert options_of(broker, "prices").retain_bytes == 1 << 30
        info = broker.queue_info("prices")
        assert info is not None
        assert info.next_sequence == 3
    assert caplog.messages == [
        "the settings declare it otherwise, and it is left as it is: "
        f"queue 'prices' already exists with other options: retain_bytes is {1 << 30}, not 5; change them with "
        "`vibemq-admin queue change` (over HTTP: PATCH), or use another name"
    ]


async def test_storage_that_keeps_nothing_makes_them_transient_or_refuses(tmp_path: Path) -> None:
    declared = {"jobs": {"mode": "broadcast"}}
    async with vibemq.Broker(settings=settings(tmp_path, declared, provider="memory")) as broker:
        assert options_of(broker, "jobs").durability is Durability.TRANSIENT
    with pytest.raises(ConfigInvalid, match=r"setting queues\.prices: durability weak is not possible"):
        async with vibemq.Broker(settings=settings(tmp_path, {"prices": PRICES}, provider="memory")):
            pass
