"""JSON of very many values, checked in steps: it is cut at commas, and each part is made JSON of its own.

The brackets that are open at a cut say how. `[1,{"a":2` and `,"b":3}]` are JSON together exactly when
`[1,{"a":2,"":0}]` and `[{"":0,"b":3}]` are.
"""

from collections.abc import Callable
from itertools import accumulate

from vibemq.model.steps import Steps

PART_BYTES = 2_048
"""So few objects that they are gone again before the collector of garbage has begun to look at them."""
STEP_BYTES = 16_384

_NO_BRACKETS = bytes(set(range(256)).difference(b"[]{}"))
_LEVELS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
"""What a bracket does to the depth, as signed bytes."""
_LEVELS_AT_ONCE = 65_536
_ROUNDS = 3
"""So often the innermost brackets are taken away at once, and what is left one by one."""
_OPENED = {0x5B: b"[", 0x7B: b'{"":'}
_CLOSED = {0x5B: b"]", 0x7B: b"}"}
_BEFORE = {0x5B: b"[0", 0x7B: b'{"":0'}
"""What makes the innermost bracket have an item before the comma of the cut."""
_BEHIND = {0x5B: b",0]", 0x7B: b',"":0}'}


def is_json_in_parts(payload: bytes, depth_max: int, is_json: Callable[[bytes], bool]) -> Steps[bool]:
    """Whether it is JSON of at most so many levels. `is_json` is asked for each part, of any depth."""
    start, opened, step_end = 0, b"", STEP_BYTES
    while True:
        part = yield from _part(payload, start, 4 * depth_max + 8)
        end = start + len(part)
        last = end == len(payload)
        brackets = opened + brackets_of(part)
        if not part or not is_shallow(brackets, depth_max):
            return False
        left = _left_open(brackets)
        if bool(left) is last:
            return False
        if len(part) > STEP_BYTES:
            yield
        if not is_json(_begun(opened) + payload[start:end] + (b"" if last else _ended(left))):
            return False
        if last:
            return True
        start, opened = end, left
        if end >= step_end:
            step_end = end + STEP_BYTES
            yield


def _part(payload: bytes, start: int, pieces_max: int) -> Steps[bytes]:
    """From there up to a comma or the end, without escapes; b"": there is none in JSON of so few texts without a comma
    between them. Each level has a name at most, and the innermost a text."""
    size = PART_BYTES
    while True:
        window = without_escapes(payload[start : start + size])
        if start + size >= len(payload):
            return window
        cut = _last_comma(window, pieces_max)
        if cut:
            return window[: max(cut, 0)]
        size *= 2
        if size > STEP_BYTES:
            yield


def without_escapes(window: bytes) -> bytes:
    """The same length; each quote that is left begins or ends a text."""
    return window.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in window else window


def _last_comma(window: bytes, pieces_max: int) -> int:
    """Where the last comma outside of texts stands; 0: behind the first byte there is none yet, -1: nor can there be
    one in JSON."""
    pieces = window.split(b'"')
    at = len(window)
    for index in range(len(pieces) - 1, -1, -1):
        at -= len(pieces[index])
        comma = pieces[index].rfind(b",") if index % 2 == 0 else -1
        if comma >= 0:
            return at + comma
        at -= 1
        if len(pieces) - index > pieces_max:
            return -1
    return 0


def brackets_of(window: bytes) -> bytes:
    """Those outside of texts, of JSON without escaped quotes."""
    return b"".join(window.split(b'"')[::2]).translate(None, _NO_BRACKETS)


def is_shallow(brackets: bytes, depth_max: int) -> bool:
    levels = memoryview(brackets.translate(_LEVELS)).cast("b")
    depth = 0
    for start in range(0, len(levels), _LEVELS_AT_ONCE):
        depths = list(accumulate(levels[start : start + _LEVELS_AT_ONCE], initial=depth))
        if max(depths) > depth_max:
            return False
        depth = depths[-1]
    return True


def _left_open(brackets: bytes) -> bytes:
    """Those that are not closed. Which of them belong together is the matter of who reads the parts."""
    for _ in range(_ROUNDS):
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    left = bytearray()
    for bracket in brackets:
        if bracket in _OPENED:
            left.append(bracket)
        elif left:
            left.pop()
    return bytes(left)


def _begun(opened: bytes) -> bytes:
    return b"".join([*map(_OPENED.__getitem__, opened[:-1]), *map(_BEFORE.__getitem__, opened[-1:])])


def _ended(opened: bytes) -> bytes:
    return b"".join([*map(_BEHIND.__getitem__, opened[-1:]), *map(_CLOSED.__getitem__, reversed(opened[:-1]))])
