"""The command line against a real broker in a process of its own."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.integration.cli_online.verbs import Run
from tests.names import queue_named_after
from vibemq.cli import main
from vibemq.cli.admin import main as admin_main
from vibemq.cli.child import BrokerProcess
from vibemq.cli.entry import run_app


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path_factory.mktemp("broker") / "data")
    anyio.run(process.start)
    yield process
    anyio.run(process.stop)


@pytest.fixture(autouse=True)
def _surroundings(broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIBEMQ_URL", broker.url)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses."""
    return queue_named_after(request)


@pytest.fixture
def vibemq(capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Run `vibemq … --json`, or `vibemq-admin` when the first word is "admin": (code, objects on stdout, stderr)."""

    def run(*words: object) -> tuple[int, list[Any], str]:
        texts = [*map(str, words), "--json"]
        if texts[0] == "admin":
            code = run_app(admin_main.app, "vibemq-admin", texts[1:])
        else:
            code = run_app(main.app, "vibemq", texts)
        captured = capfdbinary.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err.decode()

    return run
