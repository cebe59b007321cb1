"""What docs/howto/eventmesh-http.md shows: the session with curl, as the page prints it."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.pages import DOCS, blocks
from tests.integration.test_eventmesh_http_life import MeshDoors
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

SHOWN = list(blocks(DOCS / "howto" / "eventmesh-http.md"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def test_the_session_with_curl(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    broker = MeshDoors(tmp_path)
    broker.start()
    subscriber_port = str(free_port())

    def real(text: str) -> str:
        return text.replace("10105", str(broker.ports["eventmesh-http"])).replace("8088", subscriber_port)

    [program] = [block.text for block in SHOWN if block.words == ("python", "fragment")]
    got = tmp_path / "got"
    try:
        with got.open("w") as out, (tmp_path / "errors").open("w") as errors:
            process = subprocess.Popen([sys.executable, "-c", real(program)], stdout=out, stderr=errors)
        try:
            wait_until(lambda: accepts(int(subscriber_port)))
            commands = [block.text for block in SHOWN if block.words == ("sh",)]
            assert len(commands) == 6
            for command in commands:
                said = subprocess.run(["sh", "-ec", real(command)], capture_output=True, text=True, check=True).stdout
                assert said.startswith('{"retCode":0,"retMsg":"success'), (command, said)
                if "unsubscribe" not in command and "publish" in command + said:
                    wait_until(got.read_text)
            assert len(got.read_text().splitlines()) <= 4
            wait_until(lambda: 'orders {"order":1}' in got.read_text().replace(": ", ":"))
        finally:
            process.kill()
            process.wait()
    finally:
        broker.stop()


def accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
