"""What a queue can be told, with the defaults our own client uses.

A .NET client's CreateQueue starts from its own defaults (10,000 messages, DropOldest, no DLQ); that translation
belongs to the native protocol's folder.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import IntEnum
from functools import lru_cache
from typing import Any

from vibemq.errors import InvalidOptions, InvalidQueueName
from vibemq.model.arguments import shown, utf16_units
from vibemq.model.quantities import NUMBER_MAX


class DeliveryMode(IntEnum):
    ROUND_ROBIN = 0
    FAN_OUT_WITH_ACK = 1
    FAN_OUT_WITHOUT_ACK = 2
    PRIORITY_BASED = 3


class Durability(IntEnum):
    """Ordered by strength: the strongest policy of a batch decides when its effects are released."""

    TRANSIENT = 0
    ASYNC = 1
    WEAK = 2
    STRONG = 3


class Overflow(IntEnum):
    DROP_OLDEST = 0
    DROP_NEWEST = 1
    BLOCK_PUBLISHER = 2
    REDIRECT_TO_DLQ = 3


class Retention(IntEnum):
    SETTLED = 0
    LOG = 1


class LostConnection(IntEnum):
    """What the loss of a consumer's connection means for what it held."""

    FAIL = 0
    """A failed delivery: counts towards `max_attempts`, so a message that kills its consumers ends in the DLQ."""
    RELEASE = 1


class Priority(IntEnum):
    """The four names of the protocol. Inside, 0 to 31 are allowed; above CRITICAL they still sort higher."""

    LOW = 0
    NORMAL = 1
    HIGH = 2
    CRITICAL = 3


PRIORITY_MAX = 31
QUEUE_NAME_UNITS_MAX = 256
TEXT_OPTIONS = frozenset({"dead_letter_name"})
"""Options whose value may be any text; all others are numbers, true or false, or words for numbers."""
UNLIMITED_ATTEMPTS = NUMBER_MAX
"""As `max_attempts`: no number of failed attempts makes a message a dead letter."""
DEDUP_IDS_MAX = 250_000
"""Most dedup ids a queue remembers: beyond it the oldest are forgotten before their window is over, so that a fast
publisher cannot fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOptions:
    """Options of one queue; 0 or None switches a limit off. Times in ms."""

    mode: DeliveryMode = DeliveryMode.ROUND_ROBIN
    durability: Durability = Durability.STRONG
    retention: Retention = Retention.SETTLED
    overflow: Overflow = Overflow.DROP_NEWEST
    max_messages: int = 0
    max_bytes: int = 0
    message_ttl_ms: int | None = None
    dead_letter: bool = True
    dead_letter_name: str | None = None
    max_attempts: int = 3
    ack_timeout_ms: int = 30_000
    retry_base_ms: int = 2_000
    retry_max_ms: int = 120_000
    lost_connection: LostConnection = LostConnection.FAIL
    hold_behind_failed: bool = False
    """A message that has failed goes when its backoff has passed since it was the next one of its group; until then
    what is behind it waits."""
    highest_priority_only: bool = False
    """Of those who subscribe to a fan-out queue without a group name, and want the same messages, only the consumers of
    the highest priority are given any. Without acknowledgements nothing is kept for whoever comes."""
    dedup_window_ms: int = 120_000
    retain_ms: int = 0
    """Log retention: messages older than this may go. 0 = no limit of age."""
    retain_messages: int = 0
    retain_bytes: int = 0
    expires_ms: int = 0
    """The queue is deleted when nobody has consumed from it nor declared it for so long. 0 = never."""
    auto_delete: bool = False
    """The queue is deleted when its last consumer has left, once there has been one."""
    exclusive: bool = False
    """The queue is its connection's own, and is deleted with it."""

    def __post_init__(self) -> None:
        for name in (f.name for f in fields(self)):
            value = getattr(self, name)
            if isinstance(value, int) and value < 0:
                raise InvalidOptions(f"queue option {name} is {value}; it must be 0 or more")
            if isinstance(value, int) and value > NUMBER_MAX:
                raise InvalidOptions(f"queue option {name} is {value}; it must be {NUMBER_MAX} or less")
        if self.message_ttl_ms == 0:
            # Two words for no limit would be two different queues to whoever compares.
            object.__setattr__(self, "message_ttl_ms", None)
        if self.max_attempts < 1:
            object.__setattr__(self, "max_attempts", 1)
        if self.overflow is Overflow.REDIRECT_TO_DLQ and not self.dead_letter:
            raise InvalidOptions("overflow redirect-to-dlq needs dead_letter; switch it on or choose another overflow")

    def with_changes(self, **changes: Any) -> "QueueOptions":
        return replace(self, **changes)

    def check_together(self) -> None:
        """What only a queue's whole set of options can show; changes are checked when they are applied.

        Raises:
            InvalidOptions: limits of a log that is none, or what only a fan-out can have.
        """
        if self.retention is Retention.SETTLED and (self.retain_ms or self.retain_messages or self.retain_bytes):
            raise InvalidOptions(
                "retain_ms, retain_messages and retain_bytes limit a log, but the retention is settled; "
                "choose retention log (or mode broadcast), or leave them out"
            )
        if self.highest_priority_only and not self.is_fan_out:
            raise InvalidOptions(
                "highest_priority_only is for fan-out queues; in the others only the consumers of the highest priority "
                "receive anyway; leave it out, or choose a fan-out mode"
            )

    @property
    def goes_away(self) -> bool:
        """Whether the broker deletes the queue by itself."""
        return self.expires_ms > 0 or self.auto_delete or self.exclusive

    @property
    def consumers_settle(self) -> bool:
        """False when a hand-out is itself the settlement."""
        return self.mode is not DeliveryMode.FAN_OUT_WITHOUT_ACK

    @property
    def is_fan_out(self) -> bool:
        return self.mode in (DeliveryMode.FAN_OUT_WITH_ACK, DeliveryMode.FAN_OUT_WITHOUT_ACK)


@lru_cache(maxsize=4096)
def check_queue_name(name: str) -> str:
    """Return `name`, or raise InvalidQueueName with the rule: 1..256 UTF-16 units of letters, digits, `-`, `_`, `.`."""
    if 1 <= utf16_units(name) <= QUEUE_NAME_UNITS_MAX and all(_may_name_a_queue(c) for c in name):
        return name
    raise InvalidQueueName(
        f"queue name {name[:64]!r} is not allowed; use 1 to {QUEUE_NAME_UNITS_MAX} letters, digits, '-', '_' or '.'"
    )


OWN_QUEUE_PREFIX = "~"
"""Begins the names of queues that are the broker's own. No user has a right to them (`vibemq.auth.policy`), and no name
that a user may give to a queue begins so."""


def is_own_queue(name: str) -> bool:
    return name.startswith(OWN_QUEUE_PREFIX)


def check_new_queue_name(name: str) -> str:
    """The same for a queue that is created by a command, which may be the broker's own."""
    check_queue_name(name.removeprefix(OWN_QUEUE_PREFIX))
    return name


def _may_name_a_queue(character: str) -> bool:
    # Only the basic plane: the .NET peer looks at UTF-16 units and refuses surrogates.
    return (character.isalpha() or character.isdecimal() or character in "-_.") and character < "\U00010000"


def options_to_dict(options: QueueOptions) -> dict[str, Any]:
    """Plain JSON values, enums as their numbers; the stored form."""
    values = {f.name: getattr(options, f.name) for f in fields(options)}
    return {name: int(value) if isinstance(value, IntEnum) else value for name, value in values.items()}


def options_tag(incarnation: str, options: QueueOptions) -> str:
    """Another one when the options change, or when the queue is made anew: 24 hex digits."""
    told = repr((incarnation, sorted(options_to_dict(options).items())))
    return hashlib.blake2b(told.encode(), digest_size=12).hexdigest()


BROADCAST = "broadcast"
"""A word for three options: fan-out over a log, so that whoever comes later can read from the beginning; and a reader
that is gone is no fault of the messages."""


def spelled_out(values: dict[str, Any]) -> dict[str, Any]:
    """The same options with `mode="broadcast"` in the model's own words: fan-out with ack, retention log, and, if
    nothing else is said, lost_connection release.

    Raises:
        InvalidOptions: broadcast, and a retention that is not log.
    """
    mode = values.get("mode")
    if not isinstance(mode, str) or _squash(mode) != BROADCAST:
        return values
    if enum_of(Retention, values.get("retention", Retention.LOG), "retention") is not Retention.LOG:
        raise InvalidOptions("mode broadcast means retention log; leave retention out, or choose fan-out-with-ack")
    return {
        "lost_connection": LostConnection.RELEASE,
        **values,
        "mode": DeliveryMode.FAN_OUT_WITH_ACK,
        "retention": Retention.LOG,
    }


_ENUMS: dict[str, type[IntEnum]] = {
    "mode": DeliveryMode,
    "durability": Durability,
    "retention": Retention,
    "overflow": Overflow,
    "lost_connection": LostConnection,
}
_NAMES = {name: {int(member): member.name.lower() for member in enum} for name, enum in _ENUMS.items()}


def options_in_words(options: Mapping[str, Any]) -> dict[str, Any]:
    """The names of choices in place of their numbers; `options_from_dict` reads them too. What is no such number, and
    options that are not known, stay as they are."""
    return {name: _word(name, value) for name, value in options.items()}


def option_text(name: str, value: Any) -> str:
    """A value of an option in a sentence: as a person writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    word = _word(name, value)
    return word if name in _ENUMS and isinstance(word, str) else repr(word)


def _word(name: str, value: Any) -> Any:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return _NAMES[name].get(value, value) if is_number and name in _NAMES else value


def options_from_dict(values: dict[str, Any], base: QueueOptions | None = None) -> QueueOptions:
    """Read options from JSON-like values: enums by number or by name in any case (`"fan-out"` styles included), and
    the mode `"broadcast"`, which is a fan-out over a log.

    Raises:
        InvalidOptions: an unknown key, an unknown enum name or a value of the wrong type; the sentence names it.
    """
    if base is not None:
        return _changed(values, base)
    # Many queues have the same options: they are read once, and shared.
    spelling = repr(values)
    found = _READ.get(spelling)
    if found is None:
        found = _changed(values, QueueOptions())
        if len(_READ) >= _READ_MAX:
            _READ.clear()
        _READ[spelling] = found
    return found


_READ: dict[str, QueueOptions] = {}
_READ_MAX = 256


def _changed(values: dict[str, Any], base: QueueOptions) -> QueueOptions:
    known = {f.name for f in fields(QueueOptions)}
    changes: dict[str, Any] = {}
    for name, value in spelled_out(values).items():
        if name not in known:
            raise InvalidOptions(f"unknown queue option {name!r}; known are {', '.join(sorted(known))}")
        changes[name] = _option_value(name, value, getattr(base, name))
    return base.with_changes(**changes)


def _option_value(name: str, value: Any, default: Any) -> Any:
    if name in _ENUMS:
        return enum_of(_ENUMS[name], value, name, besides=BROADCAST if name == "mode" else "")
    if name in TEXT_OPTIONS:
        if value is None or isinstance(value, str):
            return value
        raise InvalidOptions(f"queue option {name} must be text, not {type(value).__name__}")
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        raise InvalidOptions(f"queue option {name} must be true or false, not {value!r}")
    if value is None and name == "message_ttl_ms":
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOptions(f"queue option {name} must be a whole number, not {value!r}")
    return value


def enum_of(enum: type[IntEnum], value: object, name: str, *, besides: str = "") -> IntEnum:
    """A member by number or by name, ignoring case, `-`, `_` and blanks.

    Args:
        besides: what else may be chosen, for the sentence.

    Raises:
        InvalidOptions
    """
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return enum(value)
        except ValueError:
            pass
    elif isinstance(value, str):
        wanted = _squash(value)
        for member in enum:
            if _squash(member.name) == wanted:
                return member
    names = ", ".join(m.name.lower() for m in enum) + (f", or {besides}" if besides else "")
    raise InvalidOptions(f"{shown(value)} is not a value for {name}; choose one of {names}")


def _squash(text: str) -> str:
    return text.replace("_", "").replace("-", "").replace(" ", "").lower()
