"""EventMesh over HTTP, on a real broker and real sockets."""

from pathlib import Path

import pytest

import vibemq
from tests.integration.eventmesh_http import client, http_settings, subscriber
from tests.waiting import until
from vibemq.server.broker import Broker

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_is_published_comes_to_the_url(tmp_path: Path) -> None:
    async with Broker(settings=http_settings(tmp_path)) as broker, subscriber() as app, client(broker) as mesh:
        assert (await mesh.subscribe("t", app.url()))["retCode"] == 0
        answer = await mesh.publish("t", "hällo", extFields='{"colour":"red"}')
        assert answer["retCode"] == 0, answer
        assert answer["retMsg"].startswith("successSendResult[topic=t, messageId=")
        await until(lambda: app.pushes)
        [push] = app.pushes
        assert list(push.fields) == ["content", "bizseqno", "bizSeqNo", "uniqueId", "randomNo", "topic", "extFields"]
        assert push.content == "hällo"
        assert push.fields["bizseqno"] == "1" * 30
        assert push.headers["code"] == "105"
        for number in range(50):
            await mesh.publish("t", str(number))
        await until(lambda: len(app.pushes) == 51)
        assert app.contents[1:] == [str(number) for number in range(50)], "in order"
        assert (await mesh.unsubscribe("t", app.url()))["retCode"] == 0
        async with vibemq.connect(broker.url) as mq:
            info = await mq.describe_queue("t")
            assert info is not None
