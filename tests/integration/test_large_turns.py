"""Large messages leave the loop to others, whichever way they take through the broker."""

import asyncio
import os
from functools import partial
from pathlib import Path

import anyio
import pytest
from anyio import to_thread

import vibemq
from tests.integration import test_long_work as long_work
from tests.waiting import WAIT_S, wait_until
from tests.watchdog import HOLD_S_MAX, longest_hold_s
from vibemq import sync
from vibemq.model.rows import pack_row
from vibemq.protocols.native.codec import extensions
from vibemq.protocols.native.codec.frames import encode_frame
from vibemq.protocols.native.codec.wire import CommandType
from vibemq.server.net import pacer

pytestmark = pytest.mark.anyio


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


async def test_a_large_message_is_answered_that_is_written_in_the_turn_in_which_what_came_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop tells of what is written one turn later."""
    count, row = 1_000, pack_row("large", bytes(2 << 20))
    large = {"max-body-bytes": str(1 << 30)}
    async with vibemq.Broker(tmp_path / "data") as broker, long_work.Peer.connect(broker.port, **large) as peer:
        parts = broker._running()
        written = asyncio.get_running_loop().create_future()
        await peer.receive("q", count)
        [driver] = parts.connection_table.peers()
        with monkeypatch.context() as patched:
            patched.setattr(pacer, "SHARE_S", 0.0)
            patched.setattr(parts.store, "begin_prepare", lambda row: written)
            every_other = [(sequence, sequence) for sequence in range(1, count, 2)]
            publish = extensions.publish_one("large", "q", len(row), None) + row
            # Put aside, as in a crowd, so that both are looked at together.
            driver.keep(encode_frame(extensions.settle("s", 0, every_other)))
            driver.keep(encode_frame(publish, body_bytes_max=1 << 26))
            driver.work_off()
            assert driver.busy
            await asyncio.sleep(0)
        monkeypatch.setattr(pacer, "SHARE_S", WAIT_S)
        written.set_result(None)
        with anyio.fail_after(WAIT_S):
            await peer.answer(CommandType.PUBLISH_MANY_ACK)
        info = broker.queue_info("q")
        assert info is not None
        assert info.ready + info.in_flight == count // 2 + 1
