"""What BlazingMQ's SDKs post is read by a real Spark, and what Spark writes comes to them, with its types."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")
pytest.importorskip("pyarrow", reason="needs pyspark and pyarrow: pip install 'vibemq[spark]'")

from tests.integration.conditions import running
from tests.interop.blazingmq.broker import PRIORITY, BlazingmqBroker, ModelClient
from tests.interop.blazingmq.model_sdk import READ, WRITE
from tests.spark.marks import OF_QUERIES
from vibemq.protocols.blazingmq.codec.properties import MessageProperty, PropertyType, build_area, parse_area
from vibemq.protocols.blazingmq.codec.put import ACK_REQUESTED, MESSAGE_PROPERTIES, build_puts, put_message
from vibemq.spark import register

pytestmark = OF_QUERIES
TYPED = [
    MessageProperty("region", PropertyType.STRING, "eu"),
    MessageProperty("total", PropertyType.INT64, 250),
    MessageProperty("paid", PropertyType.BOOL, True),
    MessageProperty("raw", PropertyType.BINARY, b"\0\xff"),
]


@pytest.mark.long(covered_by="tests/spark/test_session.py::test_a_batch_is_written_and_read")
def test_posts_of_an_sdk_go_through_spark_and_come_back_with_their_types(spark: Any, tmp_path: Path) -> None:
    register(spark)
    with running(BlazingmqBroker(tmp_path)) as broker, ModelClient(broker.bmq_port) as client:
        sdk, endpoint = client.sdk, f"127.0.0.1:{broker.port}"
        for q_id, name in enumerate(("posted", "written")):
            client.ask(sdk.open(f"bmq://{PRIORITY}/{name}", q_id, flags=READ | WRITE))
        data = build_area(TYPED) + b"two shirts"
        message = put_message(0, sdk.guid(), data, flags=ACK_REQUESTED | MESSAGE_PROPERTIES, schema_id=1)
        sdk.unacked[message.guid] = message
        client.say(build_puts([message]))
        client.until(lambda: not sdk.unacked)

        frame = spark.read.format("vibemq").options(endpoint=endpoint, queue=f"{PRIORITY}..posted").load()
        [row] = frame.collect()
        headers = {key: bytes(value).decode() for key, value in row.headers.items()}
        assert bytes(row.body) == b"two shirts"
        assert row.message_id == message.guid.hex().upper()
        assert headers.items() >= {"region": "eu", "total": "250", "paid": "true"}.items()

        target = {"endpoint": endpoint, "queue": f"{PRIORITY}..written"}
        frame.select("body", "headers").write.format("vibemq").options(**target).mode("append").save()
        client.ask(sdk.configure(1))
        client.pushed(1)
        [push] = sdk.got.pushes
        properties, at = parse_area(push.data, push.schema_id)
        assert push.data[at:] == b"two shirts"
        assert [MessageProperty(*one) for one in properties] == TYPED
