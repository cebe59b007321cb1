"""The file of the history, replaced whole: one line of text, one of JSON, and the rings' bytes one after the other.

    vibemq-history 1 <byteorder> <CRC-32 of all that follows, 8 hex digits>
    {"saved_at": …, "restarts": […], "queues": [[name, incarnation], …]}
    ring of the broker, rings of the queues in that order

Everything here blocks. A file that cannot be used is left out, and the history begins anew.
"""

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from vibemq.server.monitoring.history.rings import Ring

NAME = "history"
MAGIC = f"vibemq-history 1 {sys.byteorder}".encode()
CRC_DIGITS = 8


class UnreadableHistory(Exception):
    """The sentence says why."""


@dataclass(slots=True)
class Saved:
    """What the file keeps."""

    broker: Ring
    queues: dict[tuple[str, str], Ring] = field(default_factory=dict)
    """By name and incarnation."""
    restarts: list[int] = field(default_factory=list)
    saved_at: int = 0


def save(path: Path, saved: Saved) -> None:
    """The rings may be recorded in meanwhile: each is copied when its turn comes.

    Raises:
        OSError
    """
    partial = path.with_name(f"{path.name}.new")
    try:
        _write(partial, saved)
        os.replace(partial, path)
    except OSError:
        # What is there of it would keep a full disk from being drained.
        with suppress(OSError):
            partial.unlink()
        raise


def _write(path: Path, saved: Saved) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(MAGIC + b" " + b"0" * CRC_DIGITS + b"\n")
        crc = 0
        for piece in _pieces(saved):
            crc = zlib.crc32(piece, crc)
            file.write(piece)
        file.seek(len(MAGIC) + 1)
        file.write(f"{crc:08x}".encode())
        file.flush()
        os.fsync(file.fileno())


def _pieces(saved: Saved) -> Iterator[bytes]:
    queues = dict(saved.queues)
    about = {"saved_at": saved.saved_at, "restarts": saved.restarts, "queues": [list(key) for key in queues]}
    yield orjson.dumps(about) + b"\n"
    for ring in (saved.broker, *queues.values()):
        yield bytes(ring.buffer)


def load(path: Path, broker_series: int, queue_series: int, *, bytes_max: int) -> Saved | None:
    """None: there is no file.

    Raises:
        UnreadableHistory
    """
    try:
        with path.open("rb") as file:
            head = file.readline(len(MAGIC) + CRC_DIGITS + 2)
            data = file.read(bytes_max + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableHistory(f"{path} cannot be read: {error.strerror or error}") from error
    if not head.startswith(MAGIC):
        raise UnreadableHistory(f"{path} is of another version, or of another machine")
    if len(data) > bytes_max or head[len(MAGIC) + 1 :].strip() != f"{zlib.crc32(data):08x}".encode():
        raise UnreadableHistory(f"{path} is damaged")
    try:
        return _read(data, broker_series, queue_series)
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableHistory(f"{path} is of another version") from error


def _read(data: bytes, broker_series: int, queue_series: int) -> Saved:
    line, _, rings = data.partition(b"\n")
    about = orjson.loads(line)
    cut = _cutter(rings)
    broker = Ring(broker_series, cut(len(Ring(broker_series).buffer)))
    size = len(Ring(queue_series).buffer)
    queues = {(str(name), str(incarnation)): Ring(queue_series, cut(size)) for name, incarnation in about["queues"]}
    return Saved(broker, queues, [int(at) for at in about["restarts"]], int(about["saved_at"]))


def _cutter(data: bytes) -> Callable[[int], bytearray]:
    at = 0

    def cut(size: int) -> bytearray:
        nonlocal at
        piece = bytearray(data[at : at + size])
        at += size
        if len(piece) != size:
            raise ValueError("too short")
        return piece

    return cut
