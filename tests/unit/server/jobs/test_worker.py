"""What a worker tells of the end of its job."""

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vibemq.errors import JobStateConflict
from vibemq.model.jobs.job import JobState
from vibemq.server.jobs.worker import JobServices, JobWorker, Runs

pytestmark = pytest.mark.anyio


class Cancelled:
    """An engine whose job somebody has cancelled."""

    async def ask(self, make: Any) -> Any:
        raise JobStateConflict("job 1 is cancelled")


async def test_an_end_that_somebody_was_faster_with_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    services = SimpleNamespace(local=Cancelled(), store=None, exports=None)
    worker = JobWorker(cast(JobServices, services), 1, cast(Runs, None))
    with caplog.at_level(logging.INFO, "vibemq.jobs"):
        await worker._end(JobState.DONE)
    assert caplog.messages == []
