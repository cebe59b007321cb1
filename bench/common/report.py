"""Where results go: JSON lines in a file, tables on the terminal."""

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from vibemq.cli.admin.doctor.fsync import fsync_latencies_ms

RESULTS = Path("build/bench")


class Journal:
    """One run's results, a JSON object a line; what stands in it is safe from a run that is interrupted."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("w")
        self.write("machine", **_machine())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, event: str, **fields: Any) -> None:
        self._file.write(json.dumps({"event": event, **fields}, default=str) + "\n")
        self._file.flush()


def fsync_ms(folder: Path) -> tuple[float, float]:
    """Median and 99th percentile of one flush of one overwritten block."""
    latencies = fsync_latencies_ms(folder)
    return latencies[len(latencies) // 2], latencies[min(len(latencies) - 1, int(len(latencies) * 0.99))]


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns aligned by spaces; figures to the right."""
    lines = [list(head), *map(list, rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(head))]

    def text(line: list[str]) -> str:
        cells = [
            cell.rjust(width) if _is_figure(cell) else cell.ljust(width)
            for cell, width in zip(line, widths, strict=True)
        ]
        return "  ".join(cells).rstrip()

    rule = "  ".join("-" * width for width in widths)
    return "\n".join([text(lines[0]), rule, *map(text, lines[1:])])


def si(value: float) -> str:
    """Three figures: 1.23M, 45.6k, 789, 0.123."""
    for limit, unit in ((1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _is_figure(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "-≥≤"


def _machine() -> dict[str, Any]:
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "commit": commit.stdout.strip(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": sys.version.split()[0],
        "load": os.getloadavg(),
    }
