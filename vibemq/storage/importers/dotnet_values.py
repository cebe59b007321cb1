"""Single values of the .NET VibeMQ's SQLite file. Everything here raises ValueError for what it cannot read."""

import json
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

from vibemq.model.options import PRIORITY_MAX, DeliveryMode, Overflow, QueueOptions
from vibemq.model.records import Reason

_TIME_SPAN = re.compile(r"(?:(\d{1,8})\.)?(\d{1,2}):(\d{2}):(\d{2})(?:\.(\d{1,7}))?")
_FRACTION = re.compile(r"\.(\d+)")


def options(values: dict[str, Any]) -> QueueOptions:
    """camelCase queue options with integer enums; what is absent takes the .NET default."""
    overflow = Overflow(_integer(values, "overflowStrategy", 0))
    ttl = values.get("messageTtl")
    name = values.get("deadLetterQueueName")
    return QueueOptions(
        mode=DeliveryMode(_integer(values, "mode", 0)),
        overflow=overflow,
        max_messages=_integer(values, "maxQueueSize", 10_000),
        message_ttl_ms=None if ttl is None else time_span_ms(ttl),
        # The .NET broker accepts a redirect without a DLQ and then loses the messages; ours would refuse the queue.
        dead_letter=bool(values.get("enableDeadLetterQueue", False)) or overflow is Overflow.REDIRECT_TO_DLQ,
        dead_letter_name=None if name is None else text(name, "deadLetterQueueName"),
        max_attempts=max(1, _integer(values, "maxRetryAttempts", 3)),
    )


def _integer(values: dict[str, Any], name: str, default: int) -> int:
    value = values.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError(f"{name} is {repr(value)[:40]}, not a whole number of 0 or more that fits into 63 bits")
    return value


def time_span_ms(value: Any) -> int:
    """`[d.]hh:mm:ss[.fffffff]` in ms. What is below a ms is cut off, for a .NET client that compares must not find more
    than it declared; but less than one ms counts as one, so that no TTL becomes 0."""
    found = _TIME_SPAN.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a duration of the form [d.]hh:mm:ss[.fffffff]")
    days, hours, minutes, seconds, fraction = found.groups()
    whole = ((int(days or 0) * 24 + int(hours)) * 60 + int(minutes)) * 60 + int(seconds)
    ticks = int((fraction or "0").ljust(7, "0"))
    return whole * 1000 + ticks // 10_000 or (1 if ticks else 0)


def instant(value: Any, missing: int) -> int:
    """ISO-8601 round-trip text in ms since 1970; without an offset it is UTC. `missing` stands in for null."""
    if value is None:
        return missing
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an ISO 8601 time")
    # .NET writes 7 digits of a second, Python reads 6.
    when = datetime.fromisoformat(_FRACTION.sub(lambda found: "." + found[1][:6].ljust(6, "0"), value))
    when = when if when.tzinfo is not None else when.replace(tzinfo=UTC)
    return max(0, int(when.timestamp() * 1000))


def text(value: Any, name: str) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{name} is {value!r}, not text")
    if "�" in value and name == "id":
        raise ValueError(f"{name} is not valid UTF-8")
    return value


def json_object(value: Any, name: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except RecursionError:
        raise ValueError(f"{name} is nested too deeply") from None
    if not isinstance(found, dict):
        raise ValueError(f"{name} is not a JSON object")
    return found


def payload_text(payload: Any) -> str:
    """A payload that was embedded in another JSON document, as a document of its own."""
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":"))


def headers_text(value: Any) -> list[tuple[str, str]]:
    return [] if value is None else headers(json_object(value, "headers_json"))


def headers(values: Any) -> list[tuple[str, str]]:
    """Pairs of a JSON object whose values are texts; null counts as no header."""
    if values is None:
        return []
    if not isinstance(values, dict):
        raise ValueError("headers are no JSON object")
    return [(name, text(value, f"header {name!r}")) for name, value in values.items() if value not in (None, "")]


def priority(value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= PRIORITY_MAX:
        raise ValueError(f"priority is {value!r}")
    return value


def reason(value: Any) -> Reason:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"reason is {value!r}")
    return Reason(value)


def stretches(
    messages: Sequence[tuple[bytes, int, int]],
) -> Iterator[tuple[int, list[tuple[bytes, int, int]]]]:
    """Neighbouring (row, published_at, priority) with one instant together."""
    for published_at, group in groupby(messages, key=itemgetter(1)):
        yield published_at, list(group)
