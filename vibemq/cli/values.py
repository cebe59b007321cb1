"""Text of the command line to numbers and pairs. Pure; every refusal says what would have been right."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from vibemq.errors import ConfigInvalid

IDS_MAX: Final = 100_000

_DURATION_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE_BYTES: Final = {
    "": 1,
    "b": 1,
    "k": 1_000,
    "kb": 1_000,
    "kib": 1 << 10,
    "m": 1_000_000,
    "mb": 1_000_000,
    "mib": 1 << 20,
    "g": 1_000_000_000,
    "gb": 1_000_000_000,
    "gib": 1 << 30,
    "tib": 1 << 40,
}
_NUMBER_AND_UNIT = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)


def duration_ms(text: str | int) -> int:
    """`250ms`, `30s`, `5m`, `2h`, `7d`, `1w`, and sums such as `1h30m`; a bare number is seconds."""
    if isinstance(text, int):
        return text
    stripped = text.strip().lower()
    total, at = 0.0, 0
    while match := _NUMBER_AND_UNIT.match(stripped, at):
        number, unit = match.groups()
        if unit not in _DURATION_MS and not (unit == "" and match.end() == len(stripped) and at == 0):
            break
        total += float(number) * _DURATION_MS.get(unit, 1_000)
        at = match.end()
    if not stripped or at != len(stripped):
        raise ConfigInvalid(f"{text!r} is no duration; write 250ms, 30s, 5m, 2h, 7d or 1h30m")
    return round(total)


def seconds(text: str | float) -> float:
    """A duration as seconds, above 0."""
    value = duration_ms(text) / 1000 if isinstance(text, str) else float(text)
    if value <= 0:
        raise ConfigInvalid(f"{text!r} is too short; give more than 0 seconds")
    return value


def size_bytes(text: str | int) -> int:
    """`4096`, `64KiB`, `10MB`, `2GiB`."""
    if isinstance(text, int):
        return text
    match = _NUMBER_AND_UNIT.fullmatch(text.strip())
    factor = _SIZE_BYTES.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ConfigInvalid(f"{text!r} is no size; write 4096, 64KiB, 10MB or 2GiB")
    return round(float(match.group(1)) * factor)


def key_value(text: str) -> tuple[str, str]:
    """`key=value`; the value may hold further `=`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigInvalid(f"{text!r} is no pair; write key=value")
    return key.strip(), value


def key_values(texts: list[str] | None) -> dict[str, str]:
    return dict(key_value(text) for text in texts or ())


def with_keys(url: str, keys: Mapping[str, str]) -> str:
    """A connection string, in either form, with further keys; these win."""
    if "://" in url:
        sign = "&" if "?" in url else "?"
        return url + sign + "&".join(f"{key}={quote(value)}" for key, value in keys.items())
    return ";".join([url.strip().rstrip(";"), *(f"{key}={_quoted(value)}" for key, value in keys.items())]).lstrip(";")


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def id_runs(texts: list[str]) -> list[int]:
    """Dead-letter ids from `17`, `20-25` and comma lists of both, sorted, each once."""
    ids: set[int] = set()
    for part in (part.strip() for text in texts for part in text.split(",")):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise ConfigInvalid(f"{part!r} is no id; write 17, 20-25 or a comma list of them")
        if int(last or first) - int(first) >= IDS_MAX:
            raise ConfigInvalid(f"{part!r} names more than {IDS_MAX:,} ids; use the other filters for so many")
        ids.update(range(int(first), int(last or first) + 1))
    return sorted(ids)
