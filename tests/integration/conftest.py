"""What several files of tests begin with."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.checkpointers import begin_to_fork, forked_checkpointers
from tests.docs.quick_commands import quick_commands
from tests.integration.http_api import ApiClient, serving
from vibemq.config import Auth


@pytest.fixture(scope="session")
def forking() -> None:
    begin_to_fork()


@pytest.fixture(scope="module", autouse=True)
def checkpointers(forking: None) -> Iterator[None]:
    # Not of the package: folders of tests are none, and it would last as long as the session.
    with forked_checkpointers():
        yield


@pytest.fixture(scope="session")
def commands() -> Iterator[Path]:
    """A folder with `vibemq` and `vibemq-admin` that start quickly, for tests of more than how a command starts."""
    with tempfile.TemporaryDirectory(prefix="vmq-") as folder, quick_commands(Path(folder)) as path:
        yield path


@pytest.fixture
def auth() -> Auth:
    """Who may sign in at `api`: nobody is asked to. Files about users have their own."""
    return Auth()


@pytest.fixture
async def api(tmp_path: Path, auth: Auth) -> AsyncIterator[ApiClient]:
    """The HTTP API of a broker in memory. A file that needs another broker has its own."""
    async with serving(tmp_path, auth=auth) as client:
        yield client
