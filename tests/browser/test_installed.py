"""The wheel as people have it: what is in it, and its console on a machine without Node and without a network."""

import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.browser.brokers import ServedBroker
from vibemq._version import __version__
from vibemq.web.console.files import STATIC, read_assets

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("browser")]

REPOSITORY = Path(__file__).parents[2]
CONSOLE = "vibemq/web/console/"
GUARD = """
import sys

def look(event, arguments):
    host = {"socket.connect": lambda: arguments[1][0], "socket.getaddrinfo": lambda: arguments[0]}.get(event)
    if host is not None and host() not in (None, "", "localhost", "127.0.0.1", "::1"):
        with open(__file__ + ".refused", "a") as refused:
            refused.write(f"{event} {host()}\\n")
        raise OSError("there is no network")

sys.addaudithook(look)
"""
"""Of every Python that is started: nothing beyond this machine is looked up or called."""


@dataclass
class Installation:
    room: Path
    environment: dict[str, str]

    @property
    def serve(self) -> list[str]:
        return [str(self.room / "bin" / "vibemq"), "serve"]

    def refused(self) -> str:
        """What was looked up and called beyond this machine."""
        told = self.room.parent / "guard" / "sitecustomize.py.refused"
        return told.read_text() if told.exists() else ""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("hatchling", reason="hatchling, which builds the wheel, is not installed")
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [made] = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """In a folder of its own, beside the dependencies of this environment."""
    folder = tmp_path_factory.mktemp("installed")
    room, guard = folder / "room", folder / "guard"
    guard.mkdir()
    (guard / "sitecustomize.py").write_text(GUARD)
    # Nothing is on the path: neither Node nor another program.
    environment = {"PYTHONPATH": f"{guard}:{room}", "PATH": "", "HOME": str(folder)}
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-compile", "--target", str(room)]
    subprocess.run([*pip, str(wheel)], cwd=folder, env=environment, check=True, capture_output=True)
    found = Installation(room, environment)
    assert found.refused() == ""
    return found


@pytest.fixture(scope="module")
def served(installed: Installation, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    room = tmp_path_factory.mktemp("served")
    with ServedBroker(room, serve=installed.serve, environment=installed.environment) as broker:
        yield broker


def test_the_console_has_few_bytes_and_all_licences_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        sizes = {one.filename: one.compress_size for one in archive.infolist()}
        for path in filter(Path.is_file, STATIC.rglob("*")):
            assert archive.read(f"{CONSOLE}static/{path.relative_to(STATIC).as_posix()}") == path.read_bytes()
        [about] = [name for name in sizes if name.endswith(".dist-info/METADATA")]
        licence = archive.read(f"{Path(about).parent}/licenses/LICENSE")
        metadata = archive.read(about).decode()
    assert sum(size for name, size in sizes.items() if name.startswith(CONSOLE)) <= 300_000
    vendored = (STATIC / "vendor" / "VENDORED.md").read_text()
    texts = re.findall(r"\[(licences/\S+\.txt)\]", vendored)
    assert len(texts) == 5
    assert {f"{CONSOLE}static/vendor/{text}" for text in texts} <= set(sizes)
    assert licence == (REPOSITORY / "LICENSE").read_bytes()
    assert "License-Expression: MIT" in metadata
    # Of another licence, and for tests alone.
    assert not any("axe" in Path(name).name for name in sizes)
    assert {name.partition("/")[0] for name in sizes} == {"vibemq", Path(about).parent.name, "pyspark_vibemq.py"}


def test_an_installed_broker_serves_every_file_of_its_console(installed: Installation, served: ServedBroker) -> None:
    with httpx.Client(base_url=served.origin, trust_env=False) as http:
        assert http.get("/", follow_redirects=True).url == served.console
        for name, asset in read_assets().items():
            assert http.get(f"/console/v/{__version__}/{name}").content == asset.content, name
        assert http.get("/api/v1/overview").json()["state"] == "ok"
    where = [sys.executable, "-c", "import vibemq; print(vibemq.__file__)"]
    found = subprocess.run(where, cwd="/", env=installed.environment, check=True, capture_output=True, text=True)
    assert Path(found.stdout.strip()) == installed.room / "vibemq" / "__init__.py"
    assert installed.refused() == ""


def test_an_installed_broker_shows_its_overview(
    installed: Installation, served: ServedBroker, opened: Callable[..., Any]
) -> None:
    """A request to another origin is noted by `opened`."""
    page = opened(served.origin)
    failed: list[str] = []
    page.on("response", lambda answer: answer.ok or answer.status in (303, 304) or failed.append(answer.url))
    page.goto(served.origin)
    page.get_by_role("heading", name="Overview").wait_for()
    page.get_by_text("All is well.").wait_for()
    page.get_by_role("heading", name="This broker has no queues yet").wait_for()
    assert not failed
    assert installed.refused() == ""


def test_the_guard_sees_a_way_to_the_network(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(GUARD)
    calls = "import socket; socket.create_connection(('192.0.2.1', 9))"
    run = subprocess.run(
        [sys.executable, "-c", calls], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert "there is no network" in run.stderr
    assert (tmp_path / "sitecustomize.py.refused").read_text() == "socket.getaddrinfo 192.0.2.1\n"
