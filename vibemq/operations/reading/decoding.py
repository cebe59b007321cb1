"""gzip and brotli for people who look at a message: as much as they want to see, bounded in bytes and in time. Pure."""

import zlib
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import NamedTuple

import brotli

from vibemq.errors import InvalidPayload, MessageTooLarge

DECODED_BYTES_MAX = 16_777_216
"""Of one body that is opened."""
DECODED_S_MAX = 2.0
PIECE_BYTES = 65_536
"""Of the compressed body and of the opened one: what is unpacked at once."""
_GZIP_WINDOW = 16 + zlib.MAX_WBITS


class Decoded(NamedTuple):
    """What has come out of a compressed body."""

    data: bytes
    whole: bool
    """There is nothing behind it."""


def decoded(packed: bytes | memoryview, how: str, most: int, monotonic: Callable[[], float]) -> Decoded:
    """The first `most` bytes of what the body holds; takes little more memory than these. Runs in a thread.

    Raises:
        InvalidPayload: it is not compressed so, is damaged or cut short, or takes too long.
    """
    end = monotonic() + DECODED_S_MAX
    # Its value is the buffer itself: pieces that are joined would be there twice.
    opened, size = BytesIO(), 0
    unpacked = _gunzipped if how == "gzip" else _unbrotlied
    try:
        for piece in unpacked(memoryview(packed)):
            opened.write(piece[: most - size])
            size += len(piece)
            if size > most:
                return Decoded(opened.getvalue(), whole=False)
            if monotonic() >= end:
                raise InvalidPayload(
                    f"the body cannot be opened as {how} within {DECODED_S_MAX:g} s; load it as it is, without decode"
                )
    except (zlib.error, brotli.error) as error:
        raise InvalidPayload(f"the body cannot be opened as {how}: {error}; load it without decode") from None
    return Decoded(opened.getvalue(), whole=True)


def decoded_whole(packed: bytes | memoryview, how: str, monotonic: Callable[[], float]) -> bytes:
    """Raises InvalidPayload as `decoded`; MessageTooLarge when there is more than `DECODED_BYTES_MAX`."""
    found = decoded(packed, how, DECODED_BYTES_MAX, monotonic)
    if not found.whole:
        raise MessageTooLarge(
            f"the body holds more than {DECODED_BYTES_MAX:,} bytes once it is opened as {how}; load it without decode"
        )
    return found.data


def _parts(packed: memoryview) -> Iterator[memoryview]:
    """What an unpacker has not used of its input it copies, each time."""
    return (packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES))


def _gunzipped(packed: memoryview) -> Iterator[bytes]:
    """Of all members of the stream, one behind the other."""
    if not packed:
        return
    unpacker = zlib.decompressobj(_GZIP_WINDOW)
    for part in _parts(packed):
        waiting: bytes | memoryview = part
        while waiting:
            if unpacker.eof:
                unpacker = zlib.decompressobj(_GZIP_WINDOW)
            yield unpacker.decompress(waiting, PIECE_BYTES)
            waiting = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    while not unpacker.eof:
        piece = unpacker.decompress(b"", PIECE_BYTES)
        if not (piece or unpacker.eof):
            raise zlib.error("it is cut short")
        yield piece


def _unbrotlied(packed: memoryview) -> Iterator[bytes]:
    unpacker = brotli.Decompressor()
    for part in _parts(packed):
        if unpacker.is_finished():
            raise brotli.error("something follows its end")
        yield unpacker.process(part, output_buffer_limit=PIECE_BYTES)
        while not unpacker.can_accept_more_data():
            yield unpacker.process(b"", output_buffer_limit=PIECE_BYTES)
    while not unpacker.is_finished():
        piece = unpacker.process(b"", output_buffer_limit=PIECE_BYTES)
        if not piece and unpacker.can_accept_more_data():
            raise brotli.error("it is cut short")
        yield piece
