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
    told = await killed(tmp_path / "data", provider, letters=2_000, limit=1_700, kills=3, seed=7)
    assert told.complaints == []
    assert told.kills == 3
    assert [event["event"] for event in told.job["events"]] == ["created", "started", "done"]
