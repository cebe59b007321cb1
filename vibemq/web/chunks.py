"""Bodies in chunks, read to the letter of RFC 9112, 7.1. Pure.

h11 takes a line feed alone for the end of a trailer, joins continued ones, and lets a carriage return stand in an
extension. A proxy in front that ends a line elsewhere sees another end of the body, and what is the rest of a body for
one of the two is the next request for the other.
"""

import re
from typing import Any, NoReturn, Protocol

import h11

from vibemq.web.heads import HeadRefused

EXTRA_BYTES_MAX = 16_384
"""Of extensions and trailers of one body; nobody reads them."""
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

    def __call__(self, received: _Received) -> Any:
        """An event; None: more has to come. Raises HeadRefused."""
        if self._footer and not self._read_footer(received):
            return None
        if self._in_trailers:
            return self._read_trailers(received)
        begins = not self._left
        if begins:
            line = received.maybe_extract_next_line()
            if line is None:
                return None
            self._left = self._size_in(line)
            if not self._left:
                self._in_trailers = True
                return self._read_trailers(received)
        data = received.maybe_extract_at_most(self._left)
        if data is None:
            return None
        self._left -= len(data)
        self._footer = b"" if self._left else _END
        return h11.Data(data=bytes(data), chunk_start=begins, chunk_end=not self._left)

    def _size_in(self, line: bytearray) -> int:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise HeadRefused("a chunk of the body does not begin with its size and CR LF")
        self._note(len(found[2]))
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
