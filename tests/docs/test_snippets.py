"""Every program and every command of the documentation, run against a broker as the page's reader would."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.ledger import BrokerProcess
from tests.docs.pages import REPOSITORY, Block, blocks, pages
from tests.docs.quick_commands import PYTHON, quick_commands

pytestmark = pytest.mark.slow

TIMEOUT_S = 60
PASSWORD = "secret"
SUPERUSER = re.compile(r'^superuser = "(\w+)".*$', re.MULTILINE)
PLUGINS_LEFT_OUT = ("asyncio", "xdist", "hypothesispytest", "_hypothesis_pytestplugin")
"""Of pytest: a reader may have others than the first, which take longer to import than the page's tests take."""
NOTEBOOK = Path(__file__).with_name("notebook.py")
RUN = {("python",), ("python", "cell"), ("python", "worker"), ("python", "tests"), ("sh", "run")}
WITH_BLOCKS = [page for page in pages() if any(block.words in RUN for block in blocks(page))]


class Reader:
    """Somebody who works through one page, in a folder of his own, beside a running broker."""

    def __init__(self, folder: Path, broker: BrokerProcess, commands: Path, *, superuser: str) -> None:
        """`commands`: a folder for PATH. `superuser`: as whom commands run that name no user; "" = nobody."""
        self._folder = folder
        self._places = {
            "vibemq://localhost:2925": broker.url,
            "vibemq://localhost": broker.url,
            "localhost:2926": f"127.0.0.1:{broker.http_port}",
        }
        self._commands = commands
        self._environment = os.environ | {
            "VIBEMQ_URL": broker.url.replace("://", f"://{superuser}:{PASSWORD}@") if superuser else broker.url,
            "PATH": f"{commands}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(REPOSITORY),
            "HOME": str(folder),
            "NO_COLOR": "1",
        }
        self._workers: list[tuple[Block, subprocess.Popen[str]]] = []
        self._cells: list[str] = []

    def follow(self, block: Block) -> str:
        """What the block printed; nothing yet for a worker, and for the cells of a notebook."""
        text = block.text
        for shown, real in self._places.items():
            text = text.replace(shown, real)
        if "cell" in block.words:
            self._cells.append(text)
            return ""
        return self._run(block, self._command(block, text))

    def run_cells(self, block: Block) -> str:
        """What the cells before `block` printed."""
        cells, self._cells = self._cells, []
        return self._run(block, [sys.executable, str(NOTEBOOK), json.dumps(cells)])

    @property
    def has_cells(self) -> bool:
        return bool(self._cells)

    def _run(self, block: Block, command: list[str]) -> str:
        process = subprocess.Popen(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if "worker" in block.words:
            self._workers.append((block, process))
            return ""
        try:
            printed, complaints = process.communicate(timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, complaints = process.communicate()
            pytest.fail(f"{block.place} did not end\n{printed}{complaints}")
        assert process.returncode == 0, f"{block.place} ended with {process.returncode}\n{printed}{complaints}"
        return printed

    def _command(self, block: Block, text: str) -> list[str]:
        if block.words[0] == "sh":
            return ["bash", "-euo", "pipefail", "-c", text]
        if "tests" in block.words:
            tests = self._folder / "test_page.py"
            tests.write_text(text, encoding="utf-8")
            without = [word for name in PLUGINS_LEFT_OUT for word in ("-p", f"no:{name}")]
            return [sys.executable, "-m", "pytest", "-q", "-W", "error", *without, str(tests)]
        return [str(self._commands / PYTHON), text]

    def dismiss_workers(self) -> None:
        """Stop them with Ctrl-C; one that ended before was no worker, and says why on its standard error."""
        for block, process in self._workers:
            ended_early = process.poll() is not None
            if not ended_early:
                process.send_signal(signal.SIGINT)
            _, complaints = process.communicate(timeout=TIMEOUT_S)
            assert not ended_early, f"{block.place} ended with {process.returncode}\n{complaints}"

    def kill_workers(self) -> None:
        for _, process in self._workers:
            process.kill()
            process.communicate()


@pytest.fixture(scope="module")
def commands() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vmq-") as folder, quick_commands(Path(folder)) as path:
        yield path


@contextmanager
def reader_of(folder: Path, page: Path, commands: Path) -> Iterator[Reader]:
    settings = "\n".join(block.text for block in blocks(page) if block.words == ("toml", "broker"))
    found = SUPERUSER.search(settings)
    # What the page says comes from a secret.
    config = SUPERUSER.sub(rf'\g<0>\nsuperuser_password = "{PASSWORD}"', settings)
    file = folder / "vibemq.toml"
    file.write_text(config, encoding="utf-8")
    broker = BrokerProcess(folder / "broker", arguments=("--config", str(file)))
    broker.start()
    try:
        place = folder / "reader"
        place.mkdir()
        reader = Reader(place, broker, commands, superuser=found[1] if found else "")
        try:
            yield reader
        finally:
            reader.kill_workers()
    finally:
        broker.stop()


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda page: str(page.relative_to(REPOSITORY)))
@pytest.mark.long_where(page=REPOSITORY / "docs" / "howto" / "pytest.md")
def test_what_the_page_shows_works(page: Path, tmp_path: Path, commands: Path) -> None:
    printed = ""
    with reader_of(tmp_path, page, commands) as reader:
        for block in blocks(page):
            if block.words in RUN:
                printed = reader.follow(block)
            elif block.words == ("text", "output"):
                if reader.has_cells:
                    printed = reader.run_cells(block)
                assert printed.strip() == block.text.strip(), block.place
        assert not reader.has_cells, f"{page} has cells of a notebook without an output behind them"
        reader.dismiss_workers()
