"""The undertaker: when the benchmark ends, however it ends, nothing that it started stays.

It runs beside the benchmark and reads its standard input: `+GROUP` and `-GROUP` for process groups that begin and end,
`folder PATH` for what is to be removed. The end of the input, which even `kill -9` cannot keep from coming, is its cue.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[2]
"""Where `python -m bench…` works."""


class Reaper:
    """The benchmark's end of the line."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.common.reaper"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def begun(self, group: int) -> None:
        self._say(f"+{group}")

    def ended(self, group: int) -> None:
        self._say(f"-{group}")

    def remove_at_end(self, folder: Path) -> None:
        self._say(f"folder {folder}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


def main() -> None:
    groups: set[int] = set()
    folders: list[str] = []
    for line in sys.stdin:
        word = line.strip()
        if word.startswith("folder "):
            folders.append(word.removeprefix("folder "))
        elif word.startswith("+"):
            groups.add(int(word))
        else:
            groups.discard(-int(word))
    for group in groups:
        try:
            os.killpg(group, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
