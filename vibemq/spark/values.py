"""Option texts to values. Each reader takes the text and raises ValueError with what it should be."""

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from vibemq.model import quantities
from vibemq.model.quantities import duration_ms as duration_ms
from vibemq.model.quantities import size_bytes as size_bytes

DEFAULT_PORT = 2925
INSTANT_MAX = 1 << 53
INSTANT_DIGITS = 18
"""What is longer is beyond the largest anyway."""

_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


class Endpoint(NamedTuple):
    host: str
    port: int
    tls: bool


class Start(NamedTuple):
    """Where a range begins or ends: a word, an instant, or a position for each queue."""

    word: str = ""
    """`group`, `earliest`, `latest`, or empty."""
    at_ms: int | None = None
    positions: tuple[tuple[str, int | str], ...] = ()

    def of(self, queue: str) -> int | str | None:
        return dict(self.positions).get(queue)


class NewCheckpoint(NamedTuple):
    """What a query without a checkpoint does with groups that were read with one."""

    word: str
    """`refuse`, `continue` or `replay`."""
    loss: str = ""
    """For which loss of a checkpoint: the name that the refusal printed. Empty: for none yet."""

    def __str__(self) -> str:
        return f"{self.word}:{self.loss}" if self.loss else self.word


def new_checkpoint(value: str) -> NewCheckpoint:
    found = re.fullmatch(r"refuse|(?:continue|replay)(?::[0-9a-f]{16})?", value.strip().lower())
    if found is None:
        raise ValueError("refuse, continue or replay, the last two with the name that the refused query printed")
    word, _, loss = found[0].partition(":")
    return NewCheckpoint(word, loss)


def text(value: str) -> str:
    if not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


def boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered in _TRUE or lowered in _FALSE:
        return lowered in _TRUE
    raise ValueError("true or false")


def whole(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    def read(value: str) -> int:
        try:
            number = int(value.strip().replace("_", ""))
        except ValueError:
            number = least - 1
        if not least <= number <= most:
            raise ValueError(
                f"a whole number, {least} or more" if most > 2**62 else f"a whole number, {least} to {most}"
            )
        return number

    return read


def one_of(*words: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return lowered

    return read


def names(value: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    if not found:
        raise ValueError("a comma list of names")
    return found


def instant_ms(value: str) -> int:
    at_ms = _milliseconds(value.strip())
    if at_ms is None or not 0 <= at_ms <= INSTANT_MAX:
        raise ValueError("ms since 1970, or ISO 8601 with a zone such as 2026-01-31T10:00:00Z, not before 1970")
    return at_ms


def _milliseconds(text: str) -> int | None:
    """Since 1970; None: it is no instant."""
    if text.isascii() and text.isdigit():
        return int(text[:INSTANT_DIGITS])
    try:
        return quantities.instant_ms(text)
    except (ValueError, OverflowError):
        return None


def endpoints(value: str) -> tuple[Endpoint, ...]:
    """`vibemqs://` counts for the rest of the list too, as in vibemqs://a:2925,b:2925."""
    if "@" in value or "=" in value:
        raise ValueError(
            "an address without credentials (they would show in the plan) or other options of clients; use passwordFile"
            " or tokenFile, tls and so on"
        )
    found: list[Endpoint] = []
    tls = False
    for item in names(value):
        scheme, separator, rest = item.rpartition("://")
        if separator and scheme.lower() not in ("vibemq", "vibemqs"):
            raise ValueError(f"an address that begins with vibemq:// or vibemqs://, not {scheme}://")
        tls = scheme.lower() == "vibemqs" if separator else tls
        found.append(Endpoint(*_host_and_port(rest.rstrip("/")), tls))
    return tuple(found)


def _host_and_port(item: str) -> tuple[str, int]:
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.%\w]+)\]|([^\s:/\[\]?]+))(?::(\d{1,5}))?", item)
    if found is None or not 0 < int(found[3] or DEFAULT_PORT) < 65536:
        raise ValueError("host:port, vibemq://host:port or vibemqs://host:port, several with commas")
    return found[1] or found[2], int(found[3] or DEFAULT_PORT)


def start(*words: str) -> Callable[[str], Start]:
    """Of one of these words, or JSON: {"orders": 123}, {"orders": "earliest"}, or an offset from a checkpoint."""
    meaning = f'{", ".join(words)}, or JSON such as {{"orders": 123}}'

    def read(value: str) -> Start:
        lowered = value.strip().lower()
        if lowered in words:
            return Start(lowered)
        try:
            found = json.loads(value)
        except ValueError:
            raise ValueError(meaning) from None
        return Start(positions=_positions(found, words, meaning))

    return read


def _positions(found: Any, words: tuple[str, ...], meaning: str) -> tuple[tuple[str, int | str], ...]:
    if isinstance(found, dict) and isinstance(found.get("q"), dict):
        found = {queue: entry.get("s") if isinstance(entry, dict) else entry for queue, entry in found["q"].items()}
    if not isinstance(found, dict) or not found:
        raise ValueError(meaning)
    for queue, position in found.items():
        is_sequence = isinstance(position, int) and not isinstance(position, bool) and position > 0
        if not (is_sequence or position in words):
            raise ValueError(f"{meaning}; {position!r} of queue {queue!r} is neither a sequence, from 1, nor a word")
    return tuple(sorted(found.items()))
