"""Durations, sizes and instants as people write them: one grammar for the command line, settings, Spark and URLs.

    duration   a sum of numbers with units: 250ms, 30s, 5m, 2h, 7d, 1w, 1h30m. Only 0 needs no unit.
    size       bytes, or a number with a unit: 4096, 64KiB, 10MB, 2GiB. k, m, g and t alone are KiB, MiB, GiB and TiB.
    instant    RFC 3339, or another form of ISO 8601 that has a zone. A leap second is the one that follows it.

Imports nothing but the standard library: Spark's executors read their options with it.
"""

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

NUMBER_MAX: Final = (1 << 63) - 1
"""Of every number that is stored or set."""
DURATION_MAX_MS: Final = 36_500 * 86_400_000
"""A hundred years: clocks and system calls have room for it."""
DURATION_EXAMPLES: Final = "250ms, 30s, 5m, 2h, 7d or 1h30m"
SIZE_EXAMPLES: Final = "4096, 64KiB, 10MB or 2GiB"

_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DECIMAL: Final = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_BINARY: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE_BYTES: Final = {"": 1, "b": 1, **_DECIMAL, **_BINARY, **{f"{unit}ib": factor for unit, factor in _BINARY.items()}}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)\s*")
_LEAP_SECOND: Final = re.compile(r"(?<=[0-9]{2}:[0-9]{2}:)60")
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]*)")


def whole_ms(milliseconds: float) -> int:
    """The rule for every duration: to the nearest one, and what is above 0 is at least 1: 0 may mean that there is no
    limit, or no delay."""
    return round(milliseconds) or int(milliseconds > 0)


def duration_ms(text: str) -> int:
    """Milliseconds, see `whole_ms`.

    Raises:
        ValueError: what it should be, to be put behind the name of the option.
    """
    stripped = text.strip().lower()
    if stripped == "0":
        return 0
    total, at = 0.0, 0
    while match := _PART.match(stripped, at):
        number, unit = match.groups()
        if unit not in _DURATION_MS:
            break
        total += float(number) * _DURATION_MS[unit]
        at = match.end()
    if not stripped or at != len(stripped) or math.isinf(total):
        raise ValueError(f"a duration with its unit, such as {DURATION_EXAMPLES}")
    return whole_ms(total)


def size_bytes(text: str) -> int:
    """Bytes. Raises ValueError as `duration_ms` does."""
    match = _SIZE.fullmatch(text.strip().lower())
    factor = _SIZE_BYTES.get(match.group(2)) if match else None
    if match is None or factor is None or math.isinf(value := float(match.group(1)) * factor):
        raise ValueError(f"a size, such as {SIZE_EXAMPLES}")
    # The largest whole numbers are not floats.
    return int(match.group(1)) * factor if match.group(1).isdecimal() else round(value)


def instant_ms(text: str) -> int:
    """Milliseconds since 1970, less than 0 before; what is less than one is cut off. Raises ValueError."""
    plain, leaps = _LEAP_SECOND.subn("59", text.upper(), count=1)
    moment = datetime.fromisoformat(plain)
    if moment.tzinfo is None:
        raise ValueError(f"{text[:40]!r} has no time zone; write 2026-11-26T00:35:00Z")
    return (moment - EPOCH) // _MILLISECOND + 1000 * leaps
