"""Queue options between the .NET client, the seed's documents and the model.

    .NET, in the payload                      seed, in headers            model
    mode                  int or name         deliveryMode                mode
    maxQueueSize          int                 maxQueueSize                max_messages
    messageTtl            TimeSpan            messageTtl (ms)             message_ttl_ms
    enableDeadLetterQueue bool                enableDeadLetterQueue       dead_letter
    deadLetterQueueName   text                deadLetterQueueName         dead_letter_name
    overflowStrategy      int or name         overflowStrategy            overflow
    maxRetryAttempts      int                 maxRetryAttempts            max_attempts

Whoever names at least one option gets .NET's defaults for the other six, and the broker's own for what .NET does not
know (durability, timeouts, dedup …). Whoever names none gets the broker's defaults altogether.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import orjson

from vibemq.errors import InvalidOptions
from vibemq.model.options import DeliveryMode, Overflow, QueueOptions, enum_of
from vibemq.model.shared.queue_info import QueueInfo
from vibemq.protocols.native.codec.json_check import small_object
from vibemq.protocols.native.codec.timespan import TIMESPAN_MS_MAX, format_timespan, parse_timespan

DOTNET_DEFAULTS: dict[str, Any] = {
    "mode": DeliveryMode.ROUND_ROBIN,
    "max_messages": 10_000,
    "message_ttl_ms": None,
    "dead_letter": False,
    "dead_letter_name": None,
    "overflow": Overflow.DROP_OLDEST,
    "max_attempts": 3,
}


def options_of(payload: bytes | None, headers: Mapping[str, str], broker: QueueOptions) -> QueueOptions | None:
    """What a CreateQueue asks for; None = the broker's defaults.

    Raises:
        InvalidOptions: the sentence names the option.
    """
    values = _object(payload)
    given = {name: value for name, value in headers.items() if name.lower() in _SEED_HEADERS} | (values or {})
    if not given and values is None:
        return None
    changes = dict(DOTNET_DEFAULTS)
    for name, value in given.items():
        known = _FIELDS.get(name) or _FIELDS.get(_SEED_HEADERS.get(name.lower(), ""))
        if known is None or value is None:
            continue
        field, read = known
        changes[field] = read(name, value)
    return broker.with_changes(**changes)


def _object(payload: bytes | None) -> dict[str, Any] | None:
    """The payload's object; None when it is absent or JSON null. JSON that orjson cannot hold is refused here too."""
    if payload is None:
        return None
    try:
        value = small_object(payload)
    except ValueError as error:
        raise InvalidOptions(f"the options of CreateQueue cannot be read: {error}") from None
    if value is None or isinstance(value, dict):
        return value
    raise InvalidOptions(f"the options of CreateQueue must be a JSON object, not {type(value).__name__}")


def _mode(name: str, value: Any) -> DeliveryMode:
    return DeliveryMode(enum_of(DeliveryMode, _digits(value), name))


def _overflow(name: str, value: Any) -> Overflow:
    return Overflow(enum_of(Overflow, _digits(value), name))


def _digits(value: Any) -> Any:
    return int(value) if isinstance(value, str) and value.strip().isdecimal() and len(value) < 20 else value


def _number(name: str, value: Any) -> int:
    number = _digits(value)
    if type(number) is not int or not 0 <= number < 2**63:
        raise InvalidOptions(f"queue option {name} is {value!r}; it must be a whole number, 0 or more")
    return number


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    if isinstance(value, bool):
        return value
    raise InvalidOptions(f"queue option {name} is {value!r}; it must be true or false")


def _text(name: str, value: Any) -> str | None:
    if isinstance(value, str):
        return value or None
    raise InvalidOptions(f"queue option {name} must be text, not {type(value).__name__}")


def _ttl(name: str, value: Any) -> int:
    """A TimeSpan, or whole milliseconds as a number or as digits."""
    value = _digits(value)
    if isinstance(value, str):
        try:
            return parse_timespan(value)
        except ValueError as error:
            raise InvalidOptions(f"queue option {name}: {error}") from None
    return _number(name, value)


_Reading = tuple[str, Callable[[str, Any], Any]]
_FIELDS: dict[str, _Reading] = {
    "mode": ("mode", _mode),
    "deliveryMode": ("mode", _mode),
    "maxQueueSize": ("max_messages", _number),
    "messageTtl": ("message_ttl_ms", _ttl),
    "enableDeadLetterQueue": ("dead_letter", _switch),
    "deadLetterQueueName": ("dead_letter_name", _text),
    "overflowStrategy": ("overflow", _overflow),
    "maxRetryAttempts": ("max_attempts", _number),
}
_INT_MAX = (1 << 31) - 1
_SEED_HEADERS = {name.lower(): name for name in _FIELDS}


def queue_info_json(info: QueueInfo) -> bytes:
    """The payload of a QueueInfo reply. .NET reads integers for enums and fails on names, and on numbers that do not
    fit into its own: those of queues that others have declared without a limit."""
    options = info.options
    values: dict[str, Any] = {
        "name": info.name,
        "messageCount": min(info.ready, _INT_MAX),
        "subscriberCount": info.consumers,
        "deliveryMode": int(options.mode),
        "maxSize": min(options.max_messages, _INT_MAX),
        "createdAt": _instant(info.created_at),
    }
    if options.message_ttl_ms is not None:
        values["messageTtl"] = format_timespan(min(options.message_ttl_ms, TIMESPAN_MS_MAX))
    values["enableDeadLetterQueue"] = options.dead_letter
    if options.dead_letter_name is not None:
        values["deadLetterQueueName"] = options.dead_letter_name
    values["overflowStrategy"] = int(options.overflow)
    values["maxRetryAttempts"] = min(options.max_attempts, _INT_MAX)
    return orjson.dumps(values)


def _instant(instant_ms: int) -> str:
    whole = datetime.fromtimestamp(instant_ms // 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}.{instant_ms % 1_000:03}Z"
