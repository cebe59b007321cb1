"""Header blocks of rows: their limits, and the few headers that mean something to the broker.

A block is walked without decoding what nobody reads; what a block means is remembered, because publishers repeat
themselves (`priority: high`, say).
"""

from dataclasses import dataclass

from vibemq.errors import InvalidMessage
from vibemq.model.arguments import utf16_units
from vibemq.model.extras.message_extra import MessageExtra
from vibemq.model.options import PRIORITY_MAX, Priority

NO_HEADERS = b"\0\0"

PRIORITY = b"priority"
TTL = b"vibemq-ttl-ms"
DELAY = b"vibemq-delay-ms"
DELIVER_AT = b"vibemq-deliver-at-ms"
DEDUP = b"vibemq-dedup-id"
_KNOWN = frozenset((PRIORITY, TTL, DELAY, DELIVER_AT, DEDUP))

_PRIORITY_NAMES = {member.name.lower().encode(): int(member) for member in Priority}
_CACHE_BLOCKS_MAX = 1024
_CACHE_BLOCK_BYTES_MAX = 512
_INSTANT_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Meaning:
    """What one publish asks for beyond its place in the queue. Times relative to the publish are still relative."""

    priority: int = int(Priority.NORMAL)
    ttl_ms: int = 0
    delay_ms: int = 0
    deliver_at: int = 0
    dedup_id: bytes = b""

    def at(self, now: int) -> MessageExtra:
        """For a publish at the instant `now`."""
        return MessageExtra(
            self.priority,
            now + self.ttl_ms if self.ttl_ms else 0,
            self.deliver_at or (now + self.delay_ms if self.delay_ms else 0),
            self.dedup_id,
        )


NOTHING = Meaning()


class HeaderReader:
    """Reads header blocks within the protocol's limits."""

    def __init__(self, *, headers_max: int, value_units_max: int) -> None:
        self._headers_max = headers_max
        self._value_units_max = value_units_max
        self.known: dict[bytes, Meaning | None] = {}
        """Complete blocks seen before -> their meaning; None for the ordinary ones."""
        self._sound: set[bytes] = set()

    def read(self, block: bytes) -> tuple[int, Meaning | None]:
        """(bytes of the header block at the start of `block`, its meaning).

        Raises:
            InvalidMessage: too many headers, a value too long, or a number that is none.
            IndexError: the block is cut short.
        """
        size, found = self.walk(block)
        meaning = _meaning(found) if found else None
        if size == len(block) <= _CACHE_BLOCK_BYTES_MAX:
            if len(self.known) >= _CACHE_BLOCKS_MAX:
                self.known.clear()
            self.known[block] = meaning
        return size, meaning

    def check(self, block: bytes) -> None:
        """Make sure that `block` is a header block and nothing else, whatever its headers say. Raises as `read`."""
        if block in self._sound:
            return
        if self.walk(block)[0] != len(block):
            raise IndexError("there are bytes behind the header block")
        if len(block) <= _CACHE_BLOCK_BYTES_MAX:
            if len(self._sound) >= _CACHE_BLOCKS_MAX:
                self._sound.clear()
            self._sound.add(block)

    def walk(self, block: bytes) -> tuple[int, dict[bytes, bytes]]:
        """(bytes used, the known headers with their last values). Raises as `read`, but looks at no value."""
        count = block[0] << 8 | block[1]
        if count > self._headers_max:
            raise InvalidMessage(f"{count} headers; a message may have {self._headers_max}")
        found: dict[bytes, bytes] = {}
        at = 2
        for _ in range(count):
            value_at = at + 2 + (block[at] << 8 | block[at + 1])
            size = block[value_at] << 8 | block[value_at + 1]
            end = value_at + 2 + size
            # UTF-16 units are never more than UTF-8 bytes.
            if size > self._value_units_max:
                self._check_units(block[value_at + 2 : end])
            key = block[at + 2 : value_at]
            if key in _KNOWN and size:
                found[key] = block[value_at + 2 : end]
            at = end
        if at > len(block):
            raise IndexError("header block is cut short")
        return at, found

    def _check_units(self, value: bytes) -> None:
        units = utf16_units(value.decode(errors="replace"))
        if units > self._value_units_max:
            raise InvalidMessage(f"a header value of {units:,} characters; the limit is {self._value_units_max:,}")


def _meaning(found: dict[bytes, bytes]) -> Meaning | None:
    meaning = Meaning(
        priority=_priority(found.get(PRIORITY)),
        ttl_ms=_number(found, TTL, 1),
        delay_ms=_number(found, DELAY, 0),
        deliver_at=_number(found, DELIVER_AT, 0),
        dedup_id=found.get(DEDUP, b""),
    )
    return None if meaning == NOTHING else meaning


def _priority(raw: bytes | None) -> int:
    """By name in any case or by number, clamped. What cannot be read is Normal: nobody asked for less."""
    if raw is None:
        return int(Priority.NORMAL)
    name = raw.strip().lower()
    if name in _PRIORITY_NAMES:
        return _PRIORITY_NAMES[name]
    try:
        return min(max(int(name[:20]), 0), PRIORITY_MAX)
    except ValueError:
        return int(Priority.NORMAL)


def _number(found: dict[bytes, bytes], key: bytes, least: int) -> int:
    raw = found.get(key)
    if raw is None:
        return 0
    number = int(raw) if raw.isdigit() and len(raw) < 20 else -1
    if not least <= number <= _INSTANT_MAX:
        shown = raw[:40].decode(errors="replace")
        raise InvalidMessage(f"header {key.decode()} is {shown!r}; it must be a whole number of ms, {least} or more")
    return number
