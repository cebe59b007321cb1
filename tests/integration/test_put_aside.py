"""What has come is put aside each time, as behind very many others: everything is carried out in a later turn."""

from pathlib import Path

import pytest

import vibemq
from tests.interop.eventmesh import MeshWire
from tests.waiting import until
from vibemq.config import Http, Listener, Settings
from vibemq.server.broker import Broker
from vibemq.server.commit import backpressure

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_nothing_is_lost_or_passed_that_is_put_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backpressure, "WORK_SHARE_S", 0.0)
    listeners = (Listener(port=0), Listener(protocol="eventmesh", port=0))
    settings = Settings(data_dir=tmp_path, listeners=listeners, http=Http(enabled=False))
    sent = [b"%d" % number for number in range(200)]
    # More than may be put aside of one connection.
    sent[100] = b"x" * (8 * backpressure.ASIDE_BYTES)
    async with Broker(settings=settings) as broker, vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        with MeshWire(broker.listening[1].port):
            await mq.publish_many("q", sent[:50])
            for payload in sent[50:150]:
                await mq.publish("q", payload)
            await until(lambda: broker.connection_count == 2)
        await until(lambda: broker.connection_count == 1)
        await mq.publish_many("q", sent[150:])
        got = []
        async with mq.subscribe("q", prefetch=10) as messages:
            async for message in messages:
                got.append(message.payload)
                await message.ack()
                if len(got) == len(sent):
                    break
        assert got == sent
