"""schemathesis finds nothing in a few seconds; `make fuzz-api` gives it minutes."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conditions import running
from tests.integration.http_schema import broker_of, look
from tests.interop.omq import OmqBroker

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OmqBroker]:
    folder: Path = tmp_path_factory.mktemp("schema")
    with running(broker_of(folder)) as broker:
        assert isinstance(broker, OmqBroker)
        yield broker


@pytest.mark.parametrize("user", ["owner", pytest.param("root", marks=pytest.mark.long)])
def test_the_api_is_as_it_is_described(broker: OmqBroker, user: str) -> None:
    found = look(broker, user, examples=2, seed=1, phases="fuzzing")
    assert not found, found
