"""Packages of npm, in the exact versions of the lock file beside `package.json`."""

import shutil
import subprocess
from pathlib import Path

FETCH_S_MAX = 120.0
OUT_OF_REACH = (
    "ENOTFOUND",
    "EAI_AGAIN",
    "ECONNREFUSED",
    "ECONNRESET",
    "EHOSTUNREACH",
    "ENETUNREACH",
    "ERR_SOCKET_TIMEOUT",
    "ETIMEDOUT",
)
"""What npm calls a registry that it cannot reach."""


class NotFetched(Exception):
    """There is no npm, or it reaches no registry; nothing has been installed."""


def install(room: Path) -> None:
    """Make `node_modules` of the folder.

    Raises:
        NotFetched
        RuntimeError: npm refuses what it has found, such as a package with another hash than that of the lock file.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise NotFetched("npm is not on the path (Debian: apt-get install npm)")
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    try:
        run = subprocess.run(command, cwd=room, capture_output=True, text=True, timeout=FETCH_S_MAX)
    except subprocess.TimeoutExpired:
        raise NotFetched(f"npm has not got the packages within {FETCH_S_MAX:.0f} s") from None
    if run.returncode == 0:
        return
    if any(code in run.stderr for code in OUT_OF_REACH):
        raise NotFetched(run.stderr[-2000:])
    raise RuntimeError(f"npm ci: {run.stderr[-2000:]}")
