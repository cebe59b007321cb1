"""Whether payloads are JSON as the .NET peer reads it: one strict value, at most 64 levels deep.

Its reader gives up its connection over a payload that is not, so none may get through; and a check of every message
must be cheap. `JsonCheck.bad` parses a whole batch at once: payloads are joined into one array with an unguessable
string between them. The array has the right length and that string at every odd place exactly when each payload is
one value of its own: text that closes or opens a bracket too many would swallow a separator or move it.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

import orjson

from vibemq.model.steps import Steps
from vibemq.protocols.native.codec.json_parts import (
    brackets_of,
    is_json_in_parts,
    is_shallow,
    without_escapes,
)

VALUES_AT_ONCE = 16_384
"""Reading so many takes about a millisecond."""
_CONTAINERS = (dict, list)


class JsonCheck:
    """Args:
    depth_max: levels of brackets allowed.
    nonce: text that no peer can know.
    """

    def __init__(self, *, depth_max: int, nonce: str) -> None:
        self._depth_max = depth_max
        self._nonce = nonce
        self._separator = b"," + orjson.dumps(nonce) + b","

    def bad(self, payloads: Sequence[bytes]) -> list[int]:
        """Indexes of the payloads that are not JSON; absent (empty) ones must be left out by the caller."""
        if not payloads or self._all_good(payloads):
            return []
        return [index for index, payload in enumerate(payloads) if not self.is_json(payload)]

    def bad_in_steps(self, payloads: Sequence[bytes]) -> Steps[list[int]]:
        """The same, for many values."""
        found: list[int] = []
        first = values = 0
        for index, payload in enumerate(payloads):
            its = values_in(payload)
            values += its
            if values <= VALUES_AT_ONCE:
                continue
            if index > first:
                found += [first + each for each in self.bad(payloads[first:index])]
                yield
            first, values = index, its
            if its > VALUES_AT_ONCE:
                if not (yield from self.is_json_in_steps(payload)):
                    found.append(index)
                first, values = index + 1, 0
                yield
        return found + [first + each for each in self.bad(payloads[first:])]

    def _all_good(self, payloads: Sequence[bytes]) -> bool:
        text = b"[" + self._separator.join(payloads) + b"]"
        try:
            values = orjson.loads(text)
        except orjson.JSONDecodeError:
            return False
        count = len(payloads)
        if len(values) != 2 * count - 1 or values[1::2] != [self._nonce] * (count - 1):
            return False
        # N levels need N brackets to open and N to close, so a short payload cannot be too deep.
        longest = 2 * self._depth_max
        return all(
            type(value) not in _CONTAINERS or len(payload) <= longest or self._is_shallow(payload)
            for value, payload in zip(values[::2], payloads, strict=True)
        )

    def is_json(self, payload: bytes) -> bool:
        return _is_json(payload) and self._is_shallow(payload)

    def is_json_in_steps(self, payload: bytes) -> Steps[bool]:
        return is_json_in_parts(payload, self._depth_max, _is_json)

    def _is_shallow(self, payload: bytes) -> bool:
        """Whether valid JSON is within the depth. Brackets inside strings do not count."""
        if payload.count(b"[") + payload.count(b"{") <= self._depth_max:
            return True
        if b"\\" in payload:
            payload = payload.replace(b"\\\\", b"").replace(b'\\"', b"")
        return is_shallow(brackets_of(payload), self._depth_max)


VALUES_OF_OBJECT_MAX = 1_024
"""Of one that a request describes something with: a few names, and a list of some more."""


def small_object(payload: bytes) -> Any:
    """What JSON says that is such an object. To read anything that fits into a frame would hold up everybody.

    Raises ValueError, also for what is too large to be one.
    """
    if values_in(payload) > VALUES_OF_OBJECT_MAX:
        raise ValueError(f"it has more than {VALUES_OF_OBJECT_MAX:,} values")
    return orjson.loads(payload)


NAMES_MAX, LISTS_MAX = 32_768, 131_072
"""Of the arguments of an operation, which may have a hundred thousand pairs of numbers."""


def is_read_at_once(payload: bytes) -> bool:
    """Whether JSON is no more than arguments may be: many small objects and lists take far longer to make than numbers
    and texts."""
    if values_in(payload) <= VALUES_AT_ONCE:
        return True
    if payload.count(b'":') - payload.count(b'\\":') > NAMES_MAX or payload.count(b'"') > 2 * LISTS_MAX:
        return False  # As most of them are written; and to count is quick.
    outside = b"".join(without_escapes(payload).split(b'"')[::2])
    return outside.count(b":") <= NAMES_MAX and outside.count(b"{") <= NAMES_MAX and outside.count(b"[") <= LISTS_MAX


def values_in(payload: bytes) -> int:
    """About how many values JSON has, at most: cheap, and what reading it costs goes by it."""
    return len(payload) - len(payload.translate(None, b",[{"))


def _is_json(payload: bytes) -> bool:
    """Of any depth that the readers know."""
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return _is_json_by_the_letter(payload)
    return True


def _is_json_by_the_letter(payload: bytes) -> bool:
    """For what orjson refuses although the grammar allows it: lone surrogate escapes, numbers beyond a double."""
    try:
        _BY_THE_LETTER.decode(payload.decode())
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_BY_THE_LETTER = json.JSONDecoder(parse_constant=_refuse, parse_int=str, parse_float=str)
"""Made once: to make one takes longer than to refuse a short payload with it."""


def as_json(payload: bytes) -> tuple[bytes, bool]:
    """Any bytes as a JSON string: their text, or, when they are not UTF-8, base64 and True."""
    try:
        return orjson.dumps(payload.decode()), False
    except UnicodeDecodeError:
        return b'"' + base64.b64encode(payload) + b'"', True
