"""Which job of an earlier run a replay goes on with."""

from typing import Any, cast

import pytest

from vibemq.cli.admin.dlq.replay_command import _key, _unfinished
from vibemq.client import Client

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
    assert await _unfinished(cast(Client, FakeJobs("alice", [job])), SAME) == job
    assert await _unfinished(cast(Client, FakeJobs("bob", [job])), SAME) is None
