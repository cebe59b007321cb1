"""What a broker knew before kill -9 it knows after: definitions, attempts, dead letters, delays, dedup, progress."""

from pathlib import Path
from typing import Any

import anyio
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.integration.conditions import take
from tests.integration.cursor_peer import Peer

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture(params=["lmdb", "sqlite"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    process = BrokerProcess(tmp_path / "data", provider=request.param)
    process.start()
    yield process
    process.stop()


def kill_and_start(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


async def all_is_kept(mq: vibemq.Client) -> None:
    """Wait until the settlements sent before are on disk: they are not confirmed, but the journal is one, in order."""
    await mq.publish("barrier", {})


@pytest.mark.long_where(broker="sqlite")
async def test_queue_options_survive(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="priority-based", durability="weak", max_attempts=7, message_ttl_ms=60_000)
        before = await mq.queue_info("q")
    kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        after = await mq.queue_info("q")
    assert before is not None
    assert after is not None
    assert (after.options, after.created_at, after.incarnation) == (
        before.options,
        before.created_at,
        before.incarnation,
    )


@pytest.mark.long_where(broker="lmdb")
async def test_what_was_in_flight_comes_back_first_with_its_attempts(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(6)])
        held = await take(mq, "q", 3)
        assert [m.json()["n"] for m in held] == [0, 1, 2]
        held[1].ack()
        held[0].retry(delay=0, reason="not yet")
        (again,) = await take(mq, "q", 1)
        assert (again.json()["n"], again.attempt) == (0, 2)
        await all_is_kept(mq)
        kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        messages = await take(mq, "q", 5)
    assert [m.json()["n"] for m in messages] == [0, 2, 3, 4, 5]
    assert [m.attempt for m in messages] == [3, 2, 1, 1, 1]


@pytest.mark.long_where(broker="lmdb")
async def test_attempts_lead_to_the_dead_letters_across_restarts(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", max_attempts=3, retry_base_ms=1)
        await mq.publish("q", {"n": 1}, id="poison")
    for number in range(3):
        async with vibemq.connect(broker.url) as mq:
            (message,) = await take(mq, "q", 1)
            assert message.attempt == number + 1
            message.retry(reason=f"failure {number + 1}")
            await all_is_kept(mq)
        kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        info = await mq.queue_info("q")
        assert info is not None
        assert (info.ready, info.in_flight, info.delayed, info.dead) == (0, 0, 0, 1)
        listed = await mq.admin("dlq.list", queue="q", limit=10)
    (letter,) = listed["letters"]
    assert (letter["id"], letter["queue"], letter["reason"], letter["error"]) == (
        "poison",
        "q",
        "max_attempts",
        "failure 3",
    )
    assert letter["failed"] == 3
    assert letter["published_at"] <= letter["first_failed_at"] <= letter["dead_at"]


@pytest.mark.long_where(broker="sqlite")
async def test_delays_survive(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish("q", {"n": 1}, delay=3600)
        await mq.publish("q", {"n": 2}, delay=1)
    kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        info = await mq.queue_info("q")
        assert info is not None
        assert info.delayed >= 1
        messages = await take(mq, "q", 1)
    assert [m.json()["n"] for m in messages] == [2]


@pytest.mark.long_where(broker="lmdb")
async def test_the_dedup_window_survives(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        first = await mq.publish("q", {"n": 1}, dedup_id="same")
    kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        second = await mq.publish("q", {"n": 1}, dedup_id="same")
        info = await mq.queue_info("q")
    assert (second.duplicate, second.sequence) == (True, first.sequence)
    assert info is not None
    assert info.ready == 1


@pytest.mark.long_where(broker="sqlite")
async def test_every_group_goes_on_where_it_was(broker: BrokerProcess) -> None:
    taken = {"a": 5, "b": 2, "c": 0}
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan-out-with-ack")
        for group in taken:
            await mq.fetch("q", max=1, timeout=0, group=group)
        await mq.publish_many("q", [{"n": n} for n in range(8)])
        for group, count in taken.items():
            if count:
                for message in await take(mq, "q", count, group=group):
                    message.ack()
        await all_is_kept(mq)
    kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        for group, count in taken.items():
            messages = await take(mq, "q", 8 - count, group=group)
            assert [m.json()["n"] for m in messages] == list(range(count, 8)), group


@pytest.mark.long_where(broker="lmdb")
async def test_an_interrupted_replay_doubles_nothing(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(100)])
        for message in await take(mq, "q", 100):
            message.reject("test")
        await all_is_kept(mq)
        replayed = await mq.admin("dlq.replay", queue="q", limit=30)
        assert replayed["count"] == 30
        kill_and_start(broker)
    async with vibemq.connect(broker.url) as mq:
        with anyio.fail_after(60):
            while not (await mq.admin("dlq.replay", queue="q", limit=30))["done"]:
                pass
        messages = await take(mq, "q", 100)
        assert await mq.fetch("q", max=1, timeout=0) == []
    assert sorted(m.json()["n"] for m in messages) == list(range(100))
    assert all(m.headers["vibemq-replay-count"] == "1" for m in messages)


@pytest.mark.long_where(broker="sqlite")
async def test_a_confirmed_position_survives_a_kill_in_the_same_instant(broker: BrokerProcess) -> None:
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q", mode="fan-out-with-ack", durability="weak")
        await mq.publish_many("q", [{"n": n} for n in range(20)])
    for committed in range(2, 8):
        peer = Peer(broker.port)
        epoch = peer.ask("group.join", "q", group="g")["epoch"]
        assert peer.ask("group.commit", "q", group="g", epoch=epoch, sequence=committed)["committed"] == committed
        broker.kill()
        peer.close()
        broker.start()
        peer = Peer(broker.port)
        assert peer.ask("group.offsets", "q", group="g")["committed"] == committed
        peer.close()


@pytest.mark.parametrize("broker", ["lmdb"], indirect=True)
async def test_what_was_settled_before_an_answer_stays_settled(broker: BrokerProcess) -> None:
    """Settlements wait for an append that others need, but no answer overtakes them."""
    async with vibemq.connect(broker.url) as mq:
        await mq.create_queue("q")
        await mq.publish_many("q", [{"n": n} for n in range(3)])
        held = await take(mq, "q", 3)
        await all_is_kept(mq)
        for message in held:
            message.ack()
        await mq.ping()
        broker.kill()
    broker.start()
    async with vibemq.connect(broker.url) as mq:
        info = await mq.queue_info("q")
    assert info is not None
    assert (info.ready, info.in_flight) == (0, 0)
