"""kill -9 in the middle of a replay job: it goes on by itself, and its account balances."""

from pathlib import Path

import pytest

from tests.crash.jobs_killed import killed

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_a_replay_job_that_is_killed_goes_on_where_it_was(tmp_path: Path, provider: str) -> None:
    told = await killed(tmp_path / "data", provider, letters=1_500, limit=1_400, kills=3, seed=7, rate=1_500)
    assert told.complaints == []
    assert told.at_work == told.kills == 3
    assert [event["event"] for event in told.job["events"]] == ["created", "started", "done"]


@pytest.mark.parametrize("provider", ["lmdb", "sqlite"])
@pytest.mark.long_where(provider="sqlite")
async def test_an_export_that_is_killed_goes_on_with_its_file(tmp_path: Path, provider: str) -> None:
    told = await killed(
        tmp_path / "data", provider, letters=1_500, limit=1_400, kills=2, seed=9, rate=1_500, kind="export_dead"
    )
    assert told.complaints == []
    assert told.at_work == told.kills == 2
    assert [event["event"] for event in told.job["events"]] == ["created", "started", "done"]


@pytest.mark.long(covered_by="tests/crash/test_job_kill.py::test_a_replay_job_that_is_killed_goes_on_where_it_was")
async def test_commands_that_are_killed_with_the_broker_change_nothing(tmp_path: Path) -> None:
    told = await killed(tmp_path / "data", "lmdb", letters=3_000, limit=2_900, kills=4, seed=8, rate=1_000, cli=True)
    assert told.complaints == []
    assert told.at_work == told.kills == 4
