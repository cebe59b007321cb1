"""kill -9 in the middle of a replay job: it goes on by itself, and its account balances."""

import asyncio
from pathlib import Path

import pytest

import vibemq
from tests.crash.jobs_killed import OTHER, SOURCE, fill, killed
from tests.crash.ledger import BrokerProcess
from vibemq.client.reconnect import ReconnectPolicy

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_a_replay_job_that_is_killed_goes_on_where_it_was(tmp_path: Path, provider: str) -> None:
    told = await killed(tmp_path / "data", provider, letters=1_500, limit=1_400, kills=3, seed=7, rate=300)
    assert told.complaints == []
    assert told.at_work == told.kills == 3
    assert [event["event"] for event in told.job["events"]] == ["created", "started", "rate", "done"]


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_an_export_that_is_killed_goes_on_with_its_file(tmp_path: Path, provider: str) -> None:
    told = await killed(
        tmp_path / "data", provider, letters=1_500, limit=1_400, kills=2, seed=9, rate=300, kind="export_dead"
    )
    assert told.complaints == []
    assert told.at_work == told.kills == 2
    assert [event["event"] for event in told.job["events"]] == ["created", "started", "rate", "done"]


@pytest.mark.long(covered_by="tests/crash/test_job_kill.py::test_a_replay_job_that_is_killed_goes_on_where_it_was")
async def test_commands_that_are_killed_with_the_broker_change_nothing(tmp_path: Path) -> None:
    told = await killed(tmp_path / "data", "lmdb", letters=3_000, limit=2_900, kills=4, seed=8, rate=1_000, cli=True)
    assert told.complaints == []
    assert told.at_work == told.kills == 4


async def test_an_edited_letter_is_a_letter_or_its_message_whenever_the_broker_is_killed(tmp_path: Path) -> None:
    """Each time a little later after the request was sent; the last one is answered."""
    broker, gone = BrokerProcess(tmp_path / "data", provider="lmdb"), 0
    broker.start()
    try:
        ids = await fill(broker.url, 4)
        for attempt, turns in enumerate((1, 20, 60, None), 1):
            async with vibemq.connect(broker.url, reconnect=ReconnectPolicy(max_attempts=0)) as mq:
                [letter, *_] = (await mq.admin("dlq.list"))["letters"]
                asked = asyncio.ensure_future(mq.admin("dlq.edit", dead_id=letter["dead_id"], text=f"mended {attempt}"))
                if turns is None:
                    await asked
                for _ in range(turns or 0):
                    await asyncio.sleep(0)
                broker.kill()
                await asyncio.gather(asked, return_exceptions=True)
            broker.start()
            async with vibemq.connect(broker.url) as mq:
                left = [one["id"] for one in (await mq.admin("dlq.list"))["letters"]]
                back = [
                    (one["id"], one["payload"])
                    for queue in (SOURCE, OTHER)
                    for one in await mq.admin("queue.peek", queue=queue)
                ]
            assert sorted(left + [name for name, _ in back]) == sorted(ids), "never both, never none"
            assert len(back) - gone == (letter["id"] not in left)
            assert letter["id"] in left or (letter["id"], f"mended {attempt}") in back
            gone = len(back)
        assert gone, "the edit that was answered"
    finally:
        broker.kill()
