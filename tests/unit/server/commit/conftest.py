"""What the tests of the committer share."""

from collections.abc import AsyncIterator

import pytest

from tests.unit.server.commit.committing import Bench
from tests.unit.server.fakes import FakeStorage


@pytest.fixture(params=[False, True], ids=["on-the-loop", "in-a-thread"])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    bench = Bench(FakeStorage(blocking_append=request.param))
    yield bench
    bench.storage.gate.set()
    await bench.store.close()
