"""Large messages leave the loop to others, whichever way they take through the broker."""

import os
from functools import partial
from pathlib import Path

import pytest
from anyio import to_thread

import vibemq
from tests.waiting import wait_until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq import sync

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_no_way_of_a_large_message_holds_the_loop(tmp_path: Path) -> None:
    body = os.urandom((16 << 20) - 4_096)
    async with vibemq.Broker(tmp_path / "data") as broker:
        # It has threads of its own, so that only what the broker does counts.
        with await to_thread.run_sync(lambda: sync.connect(broker.url).__enter__()) as mq:

            def goes_about(attempt: int) -> None:
                made, there = f"made.{attempt}", f"there.{attempt}"
                mq.publish(made, body)
                assert mq.admin("queue.move", queue=made, to=there)["count"] == 1
                assert mq.admin("queue.peek", queue=there)[0]["payload_size"] == len(body)
                [message] = mq.fetch(there, timeout=60)
                message.reject(reason="for the dead letters")
                wait_until(lambda: mq.admin("dlq.list")["letters"])
                assert mq.admin("dlq.replay")["count"] == 1
                [message] = mq.fetch(there, timeout=60)
                assert message.payload == body
                message.ack()
                mq.delete_queue(there)

            async def made(attempt: int) -> int:
                await to_thread.run_sync(partial(mq.create_queue, f"there.{attempt}"))
                return attempt

            async def call(attempt: int) -> None:
                await to_thread.run_sync(goes_about, attempt)

            assert await longest_hold_s(call, made) <= HOLD_S_MAX
