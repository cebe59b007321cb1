"""Which job of an earlier run a replay goes on with."""

from pathlib import Path
from typing import Any, cast

import pytest

from vibemq.cli.admin.dlq.filters import Filters
from vibemq.cli.admin.dlq.replay_command import _key, _Replay, _unfinished
from vibemq.cli.exits import PartlyDone
from vibemq.client import Client
from vibemq.errors import JobNotFound, JobStateConflict, QueueNotFound, StorageFull, VibeMQError

pytestmark = pytest.mark.anyio
SAME = {"queue": "orders", "to": None, "limit": None}


class FakeJobs:
    def __init__(self, user: str, jobs: list[dict[str, Any]]) -> None:
        self._user = user
        self._jobs = jobs

    async def admin(self, operation: str, **arguments: Any) -> dict[str, Any]:
        return {"user": self._user} if operation == "user.self" else {"jobs": self._jobs, "next": None}


async def test_it_goes_on_with_a_job_of_its_own_user_alone() -> None:
    """Others see her jobs, where they may inspect the queue; whether they go on is hers to say."""
    job = {"job": "7", "state": "paused", "user": "alice", "key": _key(SAME)}
    assert await _unfinished(cast(Client, FakeJobs("alice", [job])), SAME) == [job]
    assert await _unfinished(cast(Client, FakeJobs("bob", [job])), SAME) == []


class FakeReplays:
    """Has two jobs of the same command line, one of which an interrupted --fresh has left."""

    def __init__(self, refusals: dict[str, VibeMQError]) -> None:
        self._refusals = refusals
        self.asked: list[str] = []

    async def admin(self, operation: str, **arguments: Any) -> dict[str, Any]:
        if operation == "user.self":
            return {"user": "alice"}
        if operation == "job.list":
            known = [{"job": n, "state": "paused", "user": "alice", "key": _key(SAME)} for n in ("9", "7")]
            return {"jobs": known, "next": None}
        if operation == "dlq.preview":
            return {"count": 3}
        asked = f"{operation} {arguments.get('job', '')}".strip()
        self.asked.append(asked)
        if asked in self._refusals:
            raise self._refusals[asked]
        return {"job": "10"}


async def begun_afresh(replays: FakeReplays, *, dry_run: bool = False) -> Any:
    command = _Replay(Filters({"queue": "orders"}), None, None, "broker", {}, fresh=True, dry_run=dry_run)
    return await command.begin(cast(Client, replays))


@pytest.fixture(autouse=True)
def _no_earlier_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


STARTED, NINE, SEVEN = "job.start", "job.change 9", "job.change 7"


async def test_the_jobs_of_before_are_cancelled_when_the_fresh_one_has_begun() -> None:
    replays = FakeReplays({})
    assert await begun_afresh(replays) == ({"job": "10"}, 3, False)
    assert replays.asked == [STARTED, NINE, SEVEN]


async def test_no_job_is_cancelled_for_one_that_is_refused_or_tried() -> None:
    replays = FakeReplays({STARTED: QueueNotFound("nowhere")})
    with pytest.raises(QueueNotFound):
        await begun_afresh(replays)
    assert replays.asked == [STARTED]
    replays = FakeReplays({})
    assert await begun_afresh(replays, dry_run=True) == (None, 3, False)
    assert replays.asked == []


async def test_a_job_of_before_may_have_ended_meanwhile() -> None:
    replays = FakeReplays({NINE: JobStateConflict("job 9 has ended"), SEVEN: JobNotFound("7")})
    assert (await begun_afresh(replays))[0] == {"job": "10"}


async def test_who_cannot_cancel_the_job_of_before_is_told_of_both() -> None:
    replays = FakeReplays({NINE: StorageFull("the disk is full")})
    with pytest.raises(
        PartlyDone, match=r"job 10 has begun, and job 9, .* not cancelled: the disk is full; .*cancel 9`"
    ):
        await begun_afresh(replays)
    assert replays.asked == [STARTED, NINE, SEVEN]
