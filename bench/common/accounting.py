"""What processes and disks have used, read from /proc and /sys. Linux only."""

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_USER, _PARENT, _CHILDREN_USER = 11, 1, 13
"""Fields of /proc/PID/stat behind the command's name."""


def process_tree(roots: Iterable[int]) -> list[int]:
    """The processes and all their living descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[_PARENT]), []).append(int(entry.name))
    found: list[int] = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.append(pid)
            waiting += children.get(pid, [])
    return found


def cpu_seconds(roots: Iterable[int]) -> float:
    """User and system time of the living tree, and of what the roots have reaped."""
    roots = set(roots)
    ticks = 0
    for pid in process_tree(roots):
        fields = _stat(pid)
        if fields:
            upto = _CHILDREN_USER + 2 if pid in roots else _USER + 2
            ticks += sum(map(int, fields[_USER:upto]))
    return ticks / _TICKS_PER_S


def memory_mib(roots: Iterable[int], kind: str = "RssAnon", *, children: bool = True) -> float:
    """`kind` is a line of /proc/PID/status: VmRSS (all), RssAnon (private), RssFile (mapped files)."""
    kib = 0
    for pid in process_tree(roots) if children else roots:
        try:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        kib += sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
    return kib / 1024


def machine_busy_s() -> tuple[float, float]:
    """Busy seconds of all cores since boot, and those stolen by the host."""
    fields = [int(text) for text in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (fields[0] + fields[1] + fields[2] + fields[5] + fields[6]) / _TICKS_PER_S, fields[7] / _TICKS_PER_S


def disk_flushes(folder: Path) -> int:
    """Flush requests that the folder's disk has finished since boot; 0 when the kernel does not tell."""
    device = folder.stat().st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        return int(fields[15])
    except (OSError, IndexError):
        return 0


def disk_mib(folder: Path) -> float:
    """Blocks really used: files may be sparse."""
    used = 0
    for path in folder.rglob("*"):
        try:
            used += path.lstat().st_blocks * 512
        except OSError:
            continue
    return used / 2**20


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return []
