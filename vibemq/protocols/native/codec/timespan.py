"""Durations as .NET writes them in JSON: `[-][d.]hh:mm:ss[.fffffff]`, in and out of milliseconds.

A TimeSpan counts ticks of 100 ns, a queue counts ms. Ticks below a millisecond are cut off, so that what a .NET client
reads back is never more than it declared: its comparison takes a longer declared TTL as harmless. Only a TTL below one
millisecond is read as one, because zero would switch it off.
"""

import re

_TEXT = re.compile(r"(?P<days>\d{1,8}\.)?(?P<h>\d{1,2}):(?P<m>\d{2}):(?P<s>\d{2})(?:\.(?P<ticks>\d{1,7}))?", re.ASCII)
_TICKS_PER_MS = 10_000
_DAY_MS = 86_400_000
TIMESPAN_MS_MAX = ((1 << 63) - 1) // _TICKS_PER_MS
"""A TimeSpan counts its ticks in 63 bits."""


def parse_timespan(text: str) -> int:
    """Milliseconds. Raises ValueError for a negative span or any other text."""
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time span like 1.02:03:04.5 (days.hours:minutes:seconds)")
    hours, minutes, seconds = int(found["h"]), int(found["m"]), int(found["s"])
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text[:40]!r} is not a time span: hours go to 23, minutes and seconds to 59")
    days = int(found["days"][:-1]) if found["days"] else 0
    ticks = int((found["ticks"] or "").ljust(7, "0"))
    whole_ms = ((days * 24 + hours) * 60 + minutes) * 60_000 + seconds * 1_000
    span_ms = whole_ms + ticks // _TICKS_PER_MS
    return span_ms or (1 if ticks else 0)


def format_timespan(span_ms: int) -> str:
    """The constant ("c") form, as .NET prints it: days and fraction only when there are any."""
    days, rest = divmod(span_ms, _DAY_MS)
    seconds, ms = divmod(rest, 1_000)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    if days:
        text = f"{days}.{text}"
    return f"{text}.{ms * _TICKS_PER_MS:07}" if ms else text
