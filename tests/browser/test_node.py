"""The pure parts of the console under node, where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="no node on the path (Debian: apt-get install nodejs)")
def test_the_pure_parts_of_the_console() -> None:
    assert NODE is not None
    run = subprocess.run([NODE, "--test", str(Path(__file__).parent / "node")], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout[-5000:]
