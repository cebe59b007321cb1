"""Pages of the audit file, read in a thread beside the loop."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
from anyio import CapacityLimiter, to_thread

from vibemq.operations.monitoring.audit_records import AuditPage, AuditWanted
from vibemq.server.access.audit_file import Position, end_of, newest_first, oldest_first

EXAMINED_BYTES_MAX = 4 << 20
"""Of one page: with a filter that fits little, an answer comes before everything was read, and says where to go on."""
TOGETHER_MAX = 2
STRAY_MS = 86_400_000
"""Records are in the order in which they were written; the clock may have been set back meanwhile."""
STRAY_BYTES = 256 << 10
"""It may have been behind for a run, by years: newer records are looked for behind so many bytes of records that are
much too old."""


class AuditReader:
    """Of one folder. `catch_up`: waits, in the reader's thread, for records that are still on their way to the file."""

    def __init__(self, folder: Path, catch_up: Callable[[], None] = lambda: None) -> None:
        self._folder = folder
        self._catch_up = catch_up
        self._slots = CapacityLimiter(TOGETHER_MAX)

    async def page(self, wanted: AuditWanted) -> AuditPage:
        return await to_thread.run_sync(self._page, wanted, limiter=self._slots)

    def _page(self, wanted: AuditWanted) -> AuditPage:
        self._catch_up()
        end = end_of(self._folder)
        if wanted.newest_first:
            lines = newest_first(self._folder, wanted.after or end)
        else:
            lines = oldest_first(self._folder, wanted.after or (0, 0))
        found: list[dict[str, Any]] = []
        examined_bytes = examined = stray_bytes = 0
        last: Position | None = wanted.after
        for position, line in lines:
            if len(found) == wanted.limit or examined_bytes >= EXAMINED_BYTES_MAX:
                return AuditPage(found, last, examined, end)
            last = position
            examined += 1
            examined_bytes += len(line)
            record = _record(line)
            if record is not None and wanted.fits(record):
                found.append(record)
            if record is not None and wanted.newest_first:
                stray_bytes = stray_bytes + len(line) if _is_long_before(record, wanted.since) else 0
                if stray_bytes >= STRAY_BYTES:
                    break
        # Who reads on as records come in goes on behind the last one.
        return AuditPage(found, None, examined, end if wanted.newest_first else (last or (0, 0)))


def _is_long_before(record: dict[str, Any], since_ms: int) -> bool:
    """Whether what is behind it is older than that, unless the clock was set back by more than hours."""
    at = record.get("at")
    return isinstance(at, int) and at < since_ms - STRAY_MS


def _record(line: bytes) -> dict[str, Any] | None:
    """None: it was cut by a crash."""
    try:
        record = orjson.loads(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
