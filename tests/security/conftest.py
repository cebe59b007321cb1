"""One broker for all attacks that leave it running: users, every protocol, HTTP, and limits that are soon reached."""

from collections.abc import Iterator

import pytest

from tests.integration.access import EVERYBODY
from tests.integration.conditions import running
from tests.security.target import Target


@pytest.fixture(scope="session")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    limits = "[limits]\nhandshake_timeout_ms = 3000\n"
    with running(Target(tmp_path_factory.mktemp("target"), toml=f"{EVERYBODY}\n{limits}")) as target:
        yield target
