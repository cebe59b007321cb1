"""Bodies in chunks, read to the letter of RFC 9112, 7.1. Pure.

h11 takes a line feed alone for the end of a trailer, joins continued ones, and lets a carriage return stand in an
extension. A proxy in front that ends a line elsewhere sees another end of the body, and what is the rest of a body for
one of the two is the next request for the other.

A chunk costs the same however small it is, so a reader takes a number of them and then waits for its next turn.
"""

import re
from typing import Any, NoReturn, Protocol

import h11

from vibemq.web.heads import HeadRefused

EXTRA_BYTES_MAX = 16_384
"""Of extensions and trailers of one body; nobody reads them."""
FRAMING_BYTES_MAX = 16_384
"""Of the sizes and line ends of one body, beside as many as its data has."""
CHUNKS_PER_TURN = 500
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})((?:[ \t]*;[\t -~\x80-\xff]*)?)\r\n")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t -~\x80-\xff]*\r\n")
_END = b"\r\n"


class _Received(Protocol):
    """h11's buffer."""

    def maybe_extract_at_most(self, count: int) -> bytearray | None: ...

    def maybe_extract_next_line(self) -> bytearray | None:
        """Up to CR LF, which is part of it."""


class ChunkReader:
    """Stands in for h11's reader of chunks."""

    def __init__(self) -> None:
        self._left = 0
        """Of the chunk that is being read."""
        self._footer = b""
        """What has to come behind it."""
        self._in_trailers = False
        self._extra_bytes = 0
        self._framing_bytes = 0
        self._data_bytes = 0
        self._turn_left = CHUNKS_PER_TURN

    @property
    def waits_for_turn(self) -> bool:
        """It has read as many chunks as it may, and there may be more in the buffer."""
        return self._turn_left <= 0

    def begin_turn(self) -> None:
        self._turn_left = CHUNKS_PER_TURN

    def __call__(self, received: _Received) -> Any:
        """An event, with the data of all chunks that have come; None: more has to come. Raises HeadRefused."""
        parts: list[bytearray] = []
        while not self._in_trailers and self._turn_left > 0 and (part := self._read_data(received)) is not None:
            parts.append(part)
        if parts:
            return h11.Data(data=b"".join(parts))
        return self._read_trailers(received) if self._in_trailers else None

    def _read_data(self, received: _Received) -> bytearray | None:
        """Of one chunk, as much as there is; None: more has to come, or all has."""
        if self._footer and not self._read_footer(received):
            return None
        if not self._left:
            line = received.maybe_extract_next_line()
            if line is None:
                return None
            self._turn_left -= 1
            self._left = self._size_in(line)
            if not self._left:
                self._in_trailers = True
                return None
        data = received.maybe_extract_at_most(self._left)
        if data is None:
            return None
        self._data_bytes += len(data)
        self._left -= len(data)
        self._footer = b"" if self._left else _END
        return data

    def _size_in(self, line: bytearray) -> int:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise HeadRefused("a chunk of the body does not begin with its size and CR LF")
        self._note(len(found[2]))
        self._framing_bytes += len(found[1]) + 2 * len(_END)
        if self._framing_bytes > FRAMING_BYTES_MAX + self._data_bytes:
            raise HeadRefused("the chunks of the body are too small for their number; send larger ones", 431)
        return int(found[1], 16)

    def _read_footer(self, received: _Received) -> bool:
        data = received.maybe_extract_at_most(len(self._footer))
        if data is None:
            return False
        if not self._footer.startswith(data):
            raise HeadRefused("a chunk of the body is longer than its size says")
        self._footer = self._footer[len(data) :]
        return not self._footer

    def _read_trailers(self, received: _Received) -> Any:
        while (line := received.maybe_extract_next_line()) is not None:
            if line == _END:
                return h11.EndOfMessage()
            if _TRAILER.fullmatch(line) is None:
                raise HeadRefused("what comes behind the last chunk is no header; end the body with an empty line")
            self._note(len(line))
        return None

    def _note(self, count: int) -> None:
        self._extra_bytes += count
        if self._extra_bytes > EXTRA_BYTES_MAX:
            raise HeadRefused(f"the body has more than {EXTRA_BYTES_MAX:,} bytes beside its chunks; send less", 431)

    def read_eof(self) -> NoReturn:
        """The client has gone in the middle of the body."""
        raise HeadRefused("the body has no end")
