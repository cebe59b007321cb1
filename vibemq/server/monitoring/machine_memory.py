"""How much memory this process may have, and how much the machine has left."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

MEMINFO = "/proc/meminfo"
OWN_CGROUPS = "/proc/self/cgroup"
CGROUPS = "/sys/fs/cgroup"

Read = Callable[[str], str]
"""The text of a file; raises OSError."""


@dataclass(frozen=True, slots=True)
class MachineMemory:
    """0 is what is not known."""

    limit_bytes: int = 0
    """Of this process: what the machine has, or less if a control group allows less."""
    total_bytes: int = 0
    available_bytes: int = 0
    """What the machine can still give out without swapping, caches included."""


def read_text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def machine_memory(read: Read = read_text) -> MachineMemory:
    """As it is now: limits of control groups change while a process runs."""
    machine = dict(_meminfo(_text(read, MEMINFO)))
    total = machine.get("MemTotal", 0)
    limits = [limit for limit in (total, *_cgroup_limits(read)) if limit]
    return MachineMemory(min(limits, default=0), total, machine.get("MemAvailable", 0))


def _text(read: Read, path: str) -> str:
    """Empty where there is no such file, as with other systems and other versions of control groups."""
    try:
        return read(path)
    except OSError:
        return ""


def _meminfo(text: str) -> Iterator[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.partition(":")
        match value.split():
            case [number, "kB"] if number.isdecimal():
                yield name, int(number) * 1024


def _cgroup_limits(read: Read) -> Iterator[int]:
    """Of the groups that the process is in and of those around them, in both versions."""
    for line in _text(read, OWN_CGROUPS).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            folder, name = CGROUPS, "memory.max"
        elif "memory" in controllers.split(","):
            folder, name = f"{CGROUPS}/memory", "memory.limit_in_bytes"
        else:
            continue
        # In a container the path may be the host's: then only the first folder is there, and it is the container's.
        for part in ["", *filter(None, path.split("/"))]:
            folder = f"{folder}/{part}" if part else folder
            limit = _text(read, f"{folder}/{name}").strip()
            if limit.isdecimal():
                yield int(limit)
