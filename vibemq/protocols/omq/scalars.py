"""Numbers and times in atoms, as OCaml's own converters read and write them.

Source: docs/spec/omq.md, "Numbers" and "Times".
"""

import math
import re
from dataclasses import dataclass
from datetime import date

from vibemq.protocols.omq.sexp import Sexp

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
_UINT64_MAX = (1 << 64) - 1
_DIGITS_MAX = 64
"""Of a number within 64 bits, the binary form being the longest."""

_INT = re.compile(
    r"(?P<sign>[-+]?)(?:0[xX](?P<x>[0-9a-fA-F][0-9a-fA-F_]*+)|0[oO](?P<o>[0-7][0-7_]*+)|0[bB](?P<b>[01][01_]*+)"
    r"|0[uU](?P<u>[0-9][0-9_]*+)|(?P<d>[0-9][0-9_]*+))"
)
_BASES = {"x": 16, "o": 8, "b": 2, "u": 10, "d": 10}

# Possessive, and digits behind a point alone: an atom of very many digits is looked at once.
_HEX_FLOAT = re.compile(r"[-+]?0[xX](?:[0-9a-fA-F]++(?:\.[0-9a-fA-F]*+)?|\.[0-9a-fA-F]++)(?:[pP][-+]?[0-9]++)?")
_DECIMAL_FLOAT = re.compile(r"[-+]?(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)(?:[eE][-+]?[0-9]++)?")
_WORD_FLOAT = re.compile(r"([-+]?)(?:inf|infinity|(nan(?:\([0-9a-z]*\))?))", re.IGNORECASE)

_TIME = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)[ T](?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.\d++)?)?"
    r" ?(?P<zone>[zZ]|UTC|GMT|[-+]\d\d?(?::\d\d){0,2}|[A-Za-z][A-Za-z0-9_+/-]*)?",
    re.ASCII,
)
_UTC = frozenset(("z", "utc", "gmt"))
_EPOCH = date(1970, 1, 1).toordinal()


def int64_of_text(text: str) -> int:
    """`Int64.of_string`. Raises ValueError."""
    found = _INT.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not an integer")
    kind = str(found.lastgroup)
    digits = found[kind].replace("_", "").lstrip("0")
    if len(digits) > _DIGITS_MAX:
        raise ValueError(f"{text[:40]!r} is beyond 64 bits")
    value = int(digits or "0", _BASES[kind])
    negative = found["sign"] == "-"
    if value > (INT64_MAX + negative if kind == "d" else _UINT64_MAX):
        raise ValueError(f"{text[:40]!r} is beyond 64 bits")
    if negative:
        value = -value
    # Forms with a prefix name a pattern of 64 bits, whose highest one is the sign.
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def float_of_text(text: str) -> float:
    """`float_of_string`. Raises ValueError."""
    plain = text.replace("_", "").lstrip(" \t\n\r\f\v")
    if _DECIMAL_FLOAT.fullmatch(plain):
        return float(plain)
    if _HEX_FLOAT.fullmatch(plain):
        try:
            return float.fromhex(plain)
        except OverflowError:
            return -math.inf if plain.startswith("-") else math.inf
    if word := _WORD_FLOAT.fullmatch(plain):
        value = math.nan if word[2] else math.inf
        return -value if word[1] == "-" else value
    raise ValueError(f"{text[:40]!r} is not a number")


def text_of_float(value: float) -> str:
    """As sexplib writes it: 15 digits, or the 17 that lose nothing."""
    short = f"{value:.15G}"
    return short if float(short) == value or math.isnan(value) else f"{value:.17G}"


@dataclass(frozen=True, slots=True)
class CoreTime:
    """A `Core.Time.t` with its zone, as `(2023-11-14 17:13:20.123456-05:00)`."""

    epoch_us: int
    zone_s: int = 0
    """Seconds east of Greenwich."""

    @property
    def epoch_s(self) -> int:
        return self.epoch_us // 1_000_000

    def atoms(self) -> tuple[bytes, bytes]:
        seconds, micros = divmod(self.epoch_us + self.zone_s * 1_000_000, 1_000_000)
        days, seconds = divmod(seconds, 86_400)
        day = date.fromordinal(_EPOCH + days).isoformat()
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
        return day.encode(), (clock + self._zone()).encode()

    def _zone(self) -> str:
        if not self.zone_s:
            return "Z"
        east, sign = abs(self.zone_s), "-" if self.zone_s < 0 else "+"
        zone = f"{sign}{east // 3600:02}:{east // 60 % 60:02}"
        return zone + f":{east % 60:02}" if east % 60 else zone


Time = float | CoreTime


def second_of(time: "Time | None") -> int | None:
    """Whole seconds since 1970, rounded down; None when the time does not name an instant."""
    if time is None:
        return None
    if isinstance(time, CoreTime):
        return time.epoch_s
    return math.floor(time) if math.isfinite(time) else None


def time_of_sexp(value: Sexp) -> "Time | None":
    """Any of the forms in which OCaml programs write a `Time.t`; None for one without a known zone.

    Raises ValueError.
    """
    if isinstance(value, bytes):
        text = _text(value)
        return _core_time(text) if "-" in text[4:5] and ":" in text else float_of_text(text)
    if not 2 <= len(value) <= 3 or not all(isinstance(part, bytes) for part in value):
        raise ValueError("a time is a number, or (YYYY-MM-DD HH:MM:SS.uuuuuuZ)")
    return _core_time(" ".join(_text(part) for part in value if isinstance(part, bytes)))


def _text(atom: bytes) -> str:
    try:
        return atom.decode("ascii")
    except UnicodeDecodeError:
        raise ValueError("no number or time holds such bytes") from None


def _core_time(text: str) -> CoreTime | None:
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:40]!r} is not a time")
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"] or 0)
    if hour > 24 or minute > 59 or second > 60:
        raise ValueError(f"{text[:40]!r} is not a time")
    days = date(int(found["year"]), int(found["month"]), int(found["day"])).toordinal() - _EPOCH
    zone_s = _zone_s(found["zone"])
    if zone_s is None:
        return None
    seconds = days * 86_400 + hour * 3600 + minute * 60 + second - zone_s
    return CoreTime(seconds * 1_000_000 + _micros(text), zone_s)


def _micros(text: str) -> int:
    fraction = re.search(r"\.(\d+)", text)
    return int(fraction[1][:6].ljust(6, "0")) if fraction else 0


def _zone_s(zone: str | None) -> int | None:
    if zone is None:
        return None
    if zone.lower() in _UTC:
        return 0
    if zone[0] not in "+-":
        return None
    parts = [int(part) for part in zone[1:].split(":")] + [0, 0]
    east = parts[0] * 3600 + parts[1] * 60 + parts[2]
    return -east if zone[0] == "-" else east
