"""What several files of tests of the store begin with."""

from collections.abc import Iterator

import pytest

from tests.checkpointers import begin_to_fork, forked_checkpointers


@pytest.fixture(scope="session")
def forking() -> None:
    begin_to_fork()


@pytest.fixture
def quick_checkpointers(forking: None) -> Iterator[None]:
    """Forked ones, in place of an interpreter for each: for tests of what is in the store, not of that process."""
    with forked_checkpointers():
        yield
