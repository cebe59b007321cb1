"""zlib payloads (RFC 1950) with a bound on what comes out, a piece at a time.

A megabyte of data may hold a gigabyte: nothing is decompressed beyond the limit, and a large payload is decompressed
over several turns of the event loop.
"""

import zlib
from enum import IntEnum

from vibemq.errors import InvalidMessage

PIECE_BYTES = 1 << 18
"""Of output; about half a millisecond."""


class CompressionType(IntEnum):
    """CAT of a message."""

    NONE = 0
    ZLIB = 1


class Inflater:
    """Decompresses one payload.

    Args:
        data: the whole zlib stream.
        bytes_max: most bytes that may come out.
    """

    def __init__(self, data: bytes, bytes_max: int) -> None:
        self._left = data
        self._bytes_max = bytes_max
        self._stream = zlib.decompressobj()
        self._pieces: list[bytes] = []
        self._size = 0

    def step(self) -> bool:
        """Decompress one more piece; whether that was the last.

        Raises:
            InvalidMessage: it is no zlib stream, not a whole one, or larger than the limit.
        """
        # One byte more than allowed tells a stream of just that size from a larger one.
        wanted = min(PIECE_BYTES, self._bytes_max - self._size + 1)
        try:
            piece = self._stream.decompress(self._left, wanted)
        except zlib.error as error:
            raise InvalidMessage(f"a payload that is not zlib data: {error}") from None
        self._left = self._stream.unconsumed_tail
        self._size += len(piece)
        if self._size > self._bytes_max:
            raise InvalidMessage(f"a payload that decompresses to more than {self._bytes_max} bytes")
        self._pieces.append(piece)
        if self._stream.eof:
            return True
        if not piece and not self._left:
            raise InvalidMessage("a zlib payload that is cut short")
        return False

    @property
    def size(self) -> int:
        """Of what has been decompressed so far."""
        return self._size

    def result(self) -> bytes:
        """Once `step` has said that it is done."""
        return b"".join(self._pieces)


def inflate(data: bytes, bytes_max: int) -> bytes:
    """Decompress at once what is known to be small. Raises InvalidMessage as `Inflater.step`."""
    inflater = Inflater(data, bytes_max)
    while not inflater.step():
        pass
    return inflater.result()
