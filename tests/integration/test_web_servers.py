"""Real web servers whose workers are forked from a process that has a client."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import vibemq
from tests.crash.ledger import BrokerProcess
from tests.docs.pages import REPOSITORY, blocks
from tests.waiting import killed_if_late

pytestmark = pytest.mark.slow

PAGE = REPOSITORY / "docs/howto/processes.md"
WORKERS = 2
LISTENING = re.compile(r"Listening at: (http://\S+)")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    broker = BrokerProcess(tmp_path / "data")
    broker.start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("preload", [["--preload"], []], ids=["preload", "no-preload"])
def test_gunicorn(broker: BrokerProcess, tmp_path: Path, preload: list[str]) -> None:
    """The program of the documentation; its workers are killed in between."""
    [program] = [block.text for block in blocks(PAGE) if "def application" in block.text]
    Path(tmp_path, "shop.py").write_text(program.replace("vibemq://localhost", broker.url))
    command = ["-m", "gunicorn", *preload, "--workers", str(WORKERS), "--bind", "127.0.0.1:0", "shop:application"]
    with (
        subprocess.Popen([sys.executable, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as server,
        killed_if_late(server),
    ):
        assert server.stderr is not None
        try:
            url = next(found[1] for line in server.stderr if (found := LISTENING.search(line)))
            answers = [httpx.get(url, timeout=30).text for _ in range(8)]
            assert sorted(map(int, answers)) == list(range(1, 9))
            for worker in children(server.pid):
                subprocess.run(["kill", "-9", str(worker)], check=True)
            assert httpx.get(url, timeout=30).text == "9\n"
        finally:
            server.send_signal(signal.SIGTERM)
            rest = server.stderr.read()
        assert server.wait(30) == 0
    assert "Traceback" not in rest
    with vibemq.sync.connect(broker.url) as mq:
        assert len(mq.fetch("orders", max=100)) == 9


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))
